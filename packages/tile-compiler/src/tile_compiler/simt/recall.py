"""Walks of statements that the checker has made before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.block_memory import orders
from tile_compiler.simt.checker.remote import is_remote
from tile_compiler.simt.held_state import Left, Runs, Walk
from tile_compiler.simt.thread_values import Unknown, can_be_followed
from tilelang.ir import tile_ir

if TYPE_CHECKING:
    from tile_compiler.simt.loop_walks import LoopWalks

MOST = 1024  # walks that are kept


class Recall:
    """A statement does again what it did, if it begins in a state that nothing can tell apart from that of then, and if all
    that it evaluates has the values of then: it meets what it met, and leaves the state that it left.

    So loops whose trip counts vary, as those over the keys in blocks that stay for tiles of unequal length, are walked
    as long as something new happens. What is evaluated are indices, conditions, bounds, and arguments of calls that
    order threads; of these, the largest parts that name nothing which the statement itself defines (`_terms`).
    Coordinates of bulk copies in global memory are not among them. Phases of mbarriers count by their parity, so
    later ones are shifted by those that have ended in between.
    """

    def __init__(self, block: LoopWalks) -> None:
        self.block = block
        self.walks: dict[Any, Walk] = {}
        self.terms: dict[int, tuple[Any, list[Any] | None]] = {}  # by identity: == of IR nodes is slow
        self.bodies: dict[int, tuple[Any, list[Any]]] = {}
        self.loops: dict[tuple[int, bool], tuple[Any, bool]] = {}

    def walk(self, node: Any, go: Callable[[], None]) -> None:
        """`go` walks `node`."""
        block = self.block
        name = self._name(node) if block.recalls else None
        if name is None:
            go()
            return
        found = self.walks.get(name)
        if found is not None:
            self._repeat(found)
            return
        before = block.phases() or []
        told, (outer, block.trace) = len(block.replay.told), (block.trace, [])
        go()
        block.trace, trace = outer, hash(tuple(block.trace))
        block.trace.append(trace)
        after = block.phases()
        if after is not None and not block.trusted and len(self.walks) < MOST:
            key, left = block.key(), block.left
            state = left.walk.after if left is not None else block.copied(Runs.of)
            self.walks[name] = Walk(before, after, state, key, block.replay.told[told:], trace)

    def _repeat(self, walk: Walk) -> None:
        block = self.block
        phases = block.phases() or []
        more = [now - then for now, then in zip(phases, walk.before)]
        counts = [count for _, count in block.allocated] * block.lanes.blocks
        block.replay.again(walk.told, {n: m * count for n, (m, count) in enumerate(zip(more, counts))})
        block.leave(Left(walk, [m + ended for m, ended in zip(more, walk.ended)]))
        block.trace.append(walk.trace)

    def _name(self, node: Any) -> Any | None:
        """What two walks of `node` that do the same have in common; None if nothing says so."""
        block = self.block
        if block.phases() is None or block.trusted or block.undecided or block.depth:
            return None
        terms = self._known_terms(node)
        if terms is None:
            return None
        values: list[Any] = [block.mask.tobytes()]
        for term in terms:
            try:
                value = np.asarray(block.value(term), np.int64)
                values.append(value[: 1 if (value == value[0]).all() else None].tobytes())
            except Unknown as unknown:
                values.append(unknown.varying)
        return hash(node), block.producing, block.key(), tuple(values)

    def _known_terms(self, node: Any) -> list[Any] | None:
        if hash(node) not in self.terms:
            self.terms[hash(node)] = (node, self._terms(node))
        return self.terms[hash(node)][1]

    def parts(self, body: Any) -> list[Any]:
        """The statements of a loop's body: neighbours as one for `walk`, apart from loops (whose iterations are recalled)
        and from what leaves more behind than a state."""
        if hash(body) not in self.bodies:
            self.bodies[hash(body)] = (body, list(self._parts(body)))
        return self.bodies[hash(body)][1]

    def _parts(self, body: Any) -> Iterator[Any]:
        together: list[Any] = []
        for stmt in tile_ir.statements(body):
            if isinstance(stmt, tir.Bind) and self.block._is_quiet(stmt):
                yield stmt  # before its neighbours, which change nothing that it names
            elif isinstance(stmt, tir.Bind) or self._leaves_more(stmt) or self.has_loops(stmt):
                if together:
                    yield tile_ir.sequence(together)
                yield stmt
                together = []
            else:
                together.append(stmt)
        if together:
            yield tile_ir.sequence(together)

    def has_loops(self, node: Any, unrolled: bool = False) -> bool:
        """Whether loops below are walked: those that repeat, or `unrolled` ones too."""
        name = hash(node), unrolled
        if name not in self.loops:
            found = (n for n in tile_ir.walk(node, tir.For) if unrolled or n.kind == tir.ForKind.SERIAL)
            self.loops[name] = node, any(not self.block._is_quiet(n) for n in found)
        return self.loops[name][1]

    def _leaves_more(self, node: Any) -> bool:
        return any(
            isinstance(n, tir.While)
            or is_call(n, "tirx.break_loop", "tirx.continue_loop")
            or (isinstance(n, tir.BufferStore) and n.buffer in self.block.followed)
            or (isinstance(n, tir.AllocBuffer) and can_be_followed(n.buffer))
            for n in tile_ir.walk(node, tir.While, tir.BufferStore, tir.AllocBuffer, ir.Call)
        )

    def _terms(self, node: Any) -> list[Any] | None:
        """What is evaluated below `node`; None if it leaves more behind than a state."""
        if not any(is_call(n, "tirx.call_extern") and orders(str(n.args[0].value)) for n in tile_ir.walk(node)):
            return None
        if self._leaves_more(node) or isinstance(node, tir.For):
            return None
        bound = {n.var: n.value for n in tile_ir.walk(node, tir.Bind)}
        own = {*bound, *(n.loop_var for n in tile_ir.walk(node, tir.For))}
        found: dict[Any, None] = {}
        named: list[Any] = []  # of its own variables, those that what is evaluated depends on
        for part in self._evaluated(node):
            self._largest(part, own, found, named)
        seen: set[Any] = set()
        while named:
            var = named.pop()
            if var in bound and var not in seen:
                seen.add(var)
                self._largest(bound[var], own, found, named)
        return list(found)

    def _evaluated(self, node: Any) -> Iterator[Any]:
        """The expressions that a walk looks at, of statements that touch what threads share, or registers of products."""
        block = self.block
        if block._is_quiet(node) and not any(block._registers_in(node)):
            return
        if isinstance(node, tir.SeqStmt):
            for part in node.seq:
                yield from self._evaluated(part)
        elif isinstance(node, tir.AttrStmt):
            yield from self._evaluated(node.body)
        elif isinstance(node, tir.Bind):
            if not block._is_quiet(node.value):
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
            if not block._is_quiet(node):
                yield from (node.value, *node.indices)
        elif isinstance(node, tir.Evaluate) and not block._is_quiet(node):
            yield node.value

    def _largest(self, node: Any, own: set[Any], found: dict[Any, None], named: list[Any]) -> None:
        """The largest parts of an expression that can be evaluated without what is defined inside, which is `named`."""
        if isinstance(node, (tir.IntImm, tir.FloatImm, ir.StringImm)):
            return
        if isinstance(node, ir.Call) and is_call(node, "tirx.call_extern"):
            name = str(node.args[0].value)
            by_map = name.startswith(("tl::tma_load", "tl::tma_store", "tl::tma_reduce")) and not is_remote(name)
            for argument in node.args[1:]:
                if not by_map or is_call(argument, "tirx.address_of"):
                    self._largest(argument, own, found, named)
            return
        named = list(tile_ir.walk(node, ir.Var, ir.TensorLoad, ir.Call))
        loads = [n.source for n in named if isinstance(n, ir.TensorLoad)]
        opaque = any(is_call(n, "tirx.call_extern", "tirx.address_of", "tl.atomic_elem") for n in named)
        if not opaque and all(b in self.block.followed for b in loads):
            if not any(n in own for n in named if isinstance(n, ir.Var)):
                found.setdefault(node)
                return
            if isinstance(node, ir.Var):
                named.append(node)
                return
        if isinstance(node, ir.TensorLoad):
            parts = list(node.indices)
        elif isinstance(node, ir.Call):
            parts = list(node.args)
        else:
            names = ("a", "b", "value", "condition", "true_value", "false_value", "base", "stride")
            parts = [p for p in (getattr(node, n, None) for n in names) if isinstance(p, ir.Expr)]
        for part in parts:
            self._largest(part, own, found, named)
