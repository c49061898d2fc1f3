"""What of a kernel sizes and block coordinates decide: trip counts, branches, and what is done only under a condition."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.ranges import conjunction, conjuncts, reads_memory
from tile_compiler.rewrite import is_call, substitute
from tile_compiler.simt.block_memory import ADDRESS, buffer_at, orders
from tile_compiler.simt.thread_values import can_be_followed
from tilelang.ir import tile_ir

FIRST = 2  # iterations of a loop that are looked at where its variable has a part in a trip count or a condition
COUNTED = "tl::load_to_lds"  # what waits count one by one: with fewer of them, they wait for less


@dataclass
class Deciding:
    """`ways`: trip counts and conditions each value of which makes a walk of its own. `guards`: conditions under which accesses
    are added and nothing else happens: a walk in which one holds meets all that is met where it does not."""

    ways: list[Any] = field(default_factory=list)
    guards: list[Any] = field(default_factory=list)


def deciding(kernel: tile_ir.Kernel, tracked: Collection[Any]) -> Deciding:
    """The trip counts and conditions around what a walk follows: shared memory, `tracked` tensors, synchronization, small
    integers of a thread's own, ways out of a loop.

    What depends on a loop's variable is followed by the walk itself; here it counts for the loop's first iterations, in
    which sizes and coordinates that have a part in it show.
    """
    return _Search(kernel, tracked).found


class _Search:
    def __init__(self, kernel: tile_ir.Kernel, tracked: Collection[Any]) -> None:
        self.tracked = tracked
        self.found = Deciding()
        self.seen: set[tuple[int, Any]] = set()
        self.loops = {n.loop_var for n in tile_ir.walk(kernel.body, tir.For)}
        self.bound = {n.var: n.value for n in tile_ir.walk(kernel.body, tir.Bind)}
        self.threads = {v for v, _ in kernel.threads}
        self.names: dict[Any, frozenset[Any]] = {}  # that variables depend on, through Binds
        for node in tile_ir.walk(kernel.body, tir.For, tir.IfThenElse, tir.While):
            self._visit(node)

    def _visit(self, node: Any) -> None:
        parts = [node.extent, node.min] if isinstance(node, tir.For) else conjuncts(node.condition)
        parts = [part for part in parts if (names := self._names(part)) and not names & self.threads]
        if not any(self._names(part) - self.loops for part in parts) or not self._matters(node):
            return
        into = self.found.guards if self._only_adds(node) else self.found.ways
        if not isinstance(node, tir.For) and not any(reads_memory(self._inlined(part)) for part in parts):
            parts = [conjunction(parts)]  # what memory says would hide what sizes say
        for whole in parts:
            names = self._names(whole)
            if not names & self.loops:
                into.append(whole)
            elif names - self.loops:
                whole = self._inlined(whole)
                into += [substitute(whole, dict.fromkeys(self.loops, tir.const(n, "int32"))) for n in range(FIRST)]

    def _matters(self, node: Any) -> bool:
        """Whether a walk would look at what stands below."""
        return any(
            (isinstance(n, ir.Var) and tile_ir.is_buffer(n) and (n in self.tracked or _is_kept(n)))
            or (is_call(n, "tirx.call_extern") and orders(str(n.args[0].value)))
            or is_call(n, "tirx.break_loop", "tirx.continue_loop")
            for n in tile_ir.walk(node, ir.Var, ir.Call)
        )

    def _only_adds(self, node: Any) -> bool:
        """Whether a statement is a condition under which there are more accesses, and nothing that others depend on."""
        if not isinstance(node, tir.IfThenElse) or node.else_case is not None:
            return False
        return not any(
            (isinstance(n, tir.BufferStore) and can_be_followed(n.buffer))
            or isinstance(n, tir.While)
            or is_call(n, "tirx.break_loop", "tirx.continue_loop")
            or (is_call(n, *ADDRESS) and can_be_followed(buffer_at(n)))
            or (is_call(n, "tirx.call_extern") and _is_awaited(str(n.args[0].value)))
            for n in tile_ir.walk(node.then_case, tir.BufferStore, tir.While, ir.Call)
        )

    def _names(self, node: Any) -> frozenset[Any]:
        """The variables that an expression depends on, through Binds."""
        found: set[Any] = set()
        for n in tile_ir.walk(node, ir.Var):
            if n not in self.names:
                self.names[n] = self._names(self.bound[n]) if n in self.bound else frozenset((n,))
            found |= self.names[n]
        return frozenset(found)

    def _inlined(self, node: Any) -> Any:
        while any(n in self.bound for n in tile_ir.walk(node, ir.Var)):
            node = substitute(node, self.bound)
        return node


def _is_kept(buffer: Any) -> bool:
    return str(buffer.scope()) in tile_ir.SHARED or can_be_followed(buffer)


def _is_awaited(name: str) -> bool:
    """Whether a function synchronizes, or others wait for it by its number; copies of `cp.async` are counted where they are
    committed."""
    return name.startswith(COUNTED) or (orders(name) and not name.startswith("tl::cp_async<"))
