"""Walks of statements that the checker has made before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.block_memory import orders
from tile_compiler.simt.checker.remote import is_remote
from tile_compiler.simt.shadow import Shadow
from tile_compiler.simt.thread_values import Array, Unknown
from tilelang.ir import tile_ir

if TYPE_CHECKING:
    from tile_compiler.simt.enumeration import Block

MOST = 256  # walks that are kept


@dataclass(frozen=True, eq=False)
class Runs:
    """A table in which neighbours are mostly alike: where other values begin, and the values."""

    first: Array
    values: Array
    size: int

    @staticmethod
    def of(table: Array) -> Runs:
        first = np.concatenate([[0], np.flatnonzero(table[1:] != table[:-1]) + 1])[: len(table)]
        return Runs(first, table[first], len(table))

    def whole(self) -> Array:
        return np.repeat(self.values, np.diff(np.append(self.first, self.size)))


@dataclass(frozen=True, eq=False)
class _Walk:
    """`ended`: of each mbarrier, the phases that had ended before; `after`: the state that the walk left; `told`: what
    its warps did to barriers; `trace`: the hash of what it did."""

    ended: list[int]
    after: Shadow
    told: list[tuple[Any, ...]]
    trace: int


class Recall:
    """A statement does again what it did, if it begins in a state that nothing can tell apart from that of then, and if all
    that it evaluates has the values of then: it meets what it met, and leaves the state that it left.

    So loops whose trip counts vary, as those over the keys in blocks that stay for tiles of unequal length, are walked
    as long as something new happens. What is evaluated are indices, conditions, bounds, and arguments of calls that
    order threads; of these, the largest parts that name nothing which the statement itself defines (`_terms`).
    Coordinates of bulk copies in global memory are not among them. Phases of mbarriers count by their parity, so
    later ones are shifted by those that have ended in between.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.walks: dict[Any, _Walk] = {}
        self.terms: dict[Any, list[Any] | None] = {}

    def walk(self, node: Any, go: Callable[[], None], key: int | None = None) -> None:
        """`go` walks `node`; `key` is that of the state, if it is known already."""
        block = self.block
        name = self._name(node, key) if block.recalls else None
        if name is None:
            go()
            return
        found = self.walks.get(name)
        if found is not None:
            self._repeat(found)
            return
        ended = _phases(block.state) or []
        told, (outer, block.trace) = len(block.replay.told), (block.trace, [])
        go()
        block.trace, trace = outer, hash(tuple(block.trace))
        block.trace.append(trace)
        if (
            block.state is not None
            and _phases(block.state) is not None
            and not block.trusted
            and len(self.walks) < MOST
        ):
            self.walks[name] = _Walk(ended, block.state.copy(Runs.of), block.replay.told[told:], trace)

    def _repeat(self, walk: _Walk) -> None:
        block = self.block
        more = [now - then for now, then in zip(_phases(block.state) or [], walk.ended)]
        block.state = walk.after.copy(Runs.whole)
        assert block.state.engines is not None
        barriers = block.state.engines.barriers
        block.replay.again(walk.told, {b.number: n * b.count for b, n in zip(barriers, more)})
        for barrier, count in zip(barriers, more):
            assert barrier.ended is not None
            barrier.ended += count
        block.trace.append(walk.trace)

    def _name(self, node: Any, key: int | None) -> Any | None:
        """What two walks of `node` that do the same have in common; None if nothing says so."""
        block = self.block
        state = block.state
        if state is None or _phases(state) is None or block.trusted or block.undecided or block.depth:
            return None
        if node not in self.terms:
            self.terms[node] = self._terms(node)
        terms = self.terms[node]
        if terms is None:
            return None
        values: list[Any] = [block.mask.tobytes()]
        for term in terms:
            try:
                values.append(np.asarray(block.value(term), np.int64).tobytes())
            except Unknown as unknown:
                values.append(unknown.varying)
        return node, block.producing, state.key() if key is None else key, tuple(values)

    def _terms(self, node: Any) -> list[Any] | None:
        """What is evaluated below `node`; None if it leaves more behind than a state."""
        if not any(is_call(n, "tirx.call_extern") and orders(str(n.args[0].value)) for n in tile_ir.walk(node)):
            return None
        own: set[Any] = set()
        for n in tile_ir.walk(node, tir.For, tir.Bind, tir.While, tir.BufferStore, tir.AllocBuffer, ir.Call):
            if isinstance(n, (tir.For, tir.Bind)):
                own.add(n.loop_var if isinstance(n, tir.For) else n.var)
            elif isinstance(n, tir.While) or is_call(n, "tirx.break_loop", "tirx.continue_loop"):
                return None
            elif isinstance(n, (tir.BufferStore, tir.AllocBuffer)) and n.buffer in self.block.followed:
                return None
        found: dict[Any, None] = {}
        for part in self._evaluated(node):
            self._largest(part, own, found)
        return list(found)

    def _evaluated(self, node: Any) -> Iterator[Any]:
        """The expressions of the statements that a walk looks at."""
        block = self.block
        if isinstance(node, tir.SeqStmt):
            for part in node.seq:
                yield from self._evaluated(part)
        elif isinstance(node, tir.AttrStmt):
            yield from self._evaluated(node.body)
        elif isinstance(node, tir.Bind):
            yield node.value
        elif isinstance(node, tir.For):
            if not block._is_quiet(node):
                yield from (node.min, node.extent)
                yield from self._evaluated(node.body)
        elif isinstance(node, tir.IfThenElse):
            yield node.condition
            for case in (node.then_case, node.else_case):
                if case is not None:
                    yield from self._evaluated(case)
        elif isinstance(node, tir.BufferStore):
            yield from (node.value, *node.indices)
        elif isinstance(node, tir.Evaluate) and not block._is_quiet(node):
            yield node.value

    def _largest(self, node: Any, own: set[Any], found: dict[Any, None]) -> None:
        """The largest parts of an expression that can be evaluated without what is defined inside."""
        if isinstance(node, (tir.IntImm, tir.FloatImm, ir.StringImm)):
            return
        if isinstance(node, ir.Call) and is_call(node, "tirx.call_extern"):
            name = str(node.args[0].value)
            by_map = name.startswith(("tl::tma_load", "tl::tma_store", "tl::tma_reduce")) and not is_remote(name)
            for argument in node.args[1:]:
                if not by_map or is_call(argument, "tirx.address_of"):
                    self._largest(argument, own, found)
            return
        named = list(tile_ir.walk(node, ir.Var, ir.TensorLoad, ir.Call))
        loads = [n.source for n in named if isinstance(n, ir.TensorLoad)]
        opaque = any(is_call(n, "tirx.call_extern", "tirx.address_of", "tl.atomic_elem") for n in named)
        if not opaque and all(b in self.block.followed for b in loads):
            if not any(n in own for n in named if isinstance(n, ir.Var)):
                found.setdefault(node)
                return
            if isinstance(node, ir.Var):
                return
        if isinstance(node, ir.TensorLoad):
            parts = list(node.indices)
        elif isinstance(node, ir.Call):
            parts = list(node.args)
        else:
            names = ("a", "b", "value", "condition", "true_value", "false_value", "base", "stride")
            parts = [p for p in (getattr(node, n, None) for n in names) if isinstance(p, ir.Expr)]
        for part in parts:
            self._largest(part, own, found)


def _phases(state: Shadow | None) -> list[int] | None:
    """How many phases of each mbarrier have ended; None if that is not known, or if nothing is asynchronous."""
    if state is None or state.engines is None:
        return None
    found = [b.ended for b in state.engines.barriers if b.ended is not None]
    return found if len(found) == len(state.engines.barriers) else None
