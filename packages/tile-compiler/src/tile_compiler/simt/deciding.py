"""What of a kernel sizes and block coordinates decide: trip counts, branches, and what is done only under a condition."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.ranges import conjunction, conjuncts, reads_memory
from tile_compiler.rewrite import is_call, substitute
from tile_compiler.simt.block_memory import ADDRESS, buffer_at, orders
from tile_compiler.simt.thread_values import ThreadValues, Unknown, can_be_followed
from tilelang.ir import tile_ir

FIRST = 2  # iterations of a loop that are looked at where its variable has a part in a trip count or a condition
SAMPLES = (lambda threads: 0, lambda threads: threads // 2, lambda threads: threads - 1)  # the threads that are asked
_DIVIDING = (ir.prim.FloorDiv, ir.prim.FloorMod, ir.prim.Div, ir.prim.Mod)
_CUTTING = (*_DIVIDING, ir.prim.Min, ir.prim.Max, ir.prim.Select, ir.Call)
COUNTED = "tl::load_to_lds"  # what waits count one by one: with fewer of them, they wait for less


@dataclass
class Deciding:
    """`ways`: trip counts and conditions each value of which makes a walk of its own. `guards`: conditions under which accesses
    are added and nothing else happens: a walk in which one holds meets all that is met where it does not. `counting`: sizes that
    say when a `while` ends; `repeating`: those that a trip count depends on; `beside`: those that lie between the places of
    threads."""

    ways: list[Any] = field(default_factory=list)
    guards: list[Any] = field(default_factory=list)
    counting: set[Any] = field(default_factory=set)
    repeating: set[Any] = field(default_factory=set)
    beside: set[Any] = field(default_factory=set)


def deciding(kernel: tile_ir.Kernel, tracked: Collection[Any], large: Mapping[Any, Any], host: list[Any]) -> Deciding:
    """The trip counts and conditions around what a walk follows: shared memory, `tracked` tensors, synchronization, small
    integers of a thread's own, ways out of a loop; and the comparisons inside indices of such memory.

    What depends on a loop's variable is followed by the walk itself; here it counts for the loop's first iterations, in
    which sizes and coordinates that have a part in it show. What depends on the thread counts for the first, the last, and one
    between them. `large`: values of sizes and coordinates with which a predicate of the thread is nothing to decide where it
    holds, after the Binds of the `host`.
    """
    return _Search(kernel, tracked, large, host).found


class _Search:
    def __init__(
        self, kernel: tile_ir.Kernel, tracked: Collection[Any], large: Mapping[Any, Any], host: list[Any]
    ) -> None:
        self.tracked = tracked
        self.found = Deciding()
        self.loops = {n.loop_var for n in tile_ir.walk(kernel.body, tir.For)}
        binds = [*host, *tile_ir.walk(kernel.body, tir.Bind)]
        self.bound = {n.var: n.value for n in binds}
        self.threads = {v: int(e) for v, e in kernel.threads}
        self.samples = [{v: at(e) for v, e in self.threads.items()} for at in SAMPLES]
        self.decided = frozenset(large)
        self.sizes = self.decided - {v for v, _ in kernel.grid}
        self.holding: list[Any] = []  # predicates of threads that hold for all of them, if sizes are large
        self.cutting: set[Any] = set()  # sizes that must not be large for other predicates to hold
        self.names: dict[Any, frozenset[Any]] = {}  # that variables depend on, through Binds
        self.large = ThreadValues(len(SAMPLES) * FIRST)
        self.large.values = {**large, **dict.fromkeys(self.loops, np.repeat(np.arange(FIRST), len(SAMPLES)))}
        self.large.values |= {v: np.tile([one[v] for one in self.samples], FIRST) for v in self.threads}
        for bind in binds:
            self.large.values[bind.var] = _value(self.large, bind.value)
        for node in tile_ir.walk(kernel.body, tir.For, tir.IfThenElse, tir.While):
            self._visit(node)
        for part in self.holding:
            if self._names(part) & self.cutting:
                self._add(part, self.found.guards, self.samples)
        for node in tile_ir.walk(kernel.body, tir.BufferStore, ir.TensorLoad):
            buffer = node.buffer if isinstance(node, tir.BufferStore) else node.source
            if buffer in tracked or _is_kept(buffer):
                for index in node.indices:
                    self._index(index)

    def _visit(self, node: Any) -> None:
        parts = [node.extent, node.min] if isinstance(node, tir.For) else conjuncts(node.condition)
        if isinstance(node, tir.While):
            self.found.counting |= self._names(node.condition) & self.decided
        alike = [part for part in parts if not self._names(part) & self.threads.keys()]
        apart = [part for part in parts if self._names(part) & self.threads.keys() and self._names(part) & self.decided]
        if apart and isinstance(node, tir.For):
            apart = [node.extent > tir.const(n, str(node.extent.ty)) for n in range(FIRST)]
        adds = None
        if apart and not isinstance(node, tir.While) and all(map(self._holds, apart)):
            adds = self._only_adds(node)
            if adds:
                self.holding += apart
                apart = []
        if (not any(self._names(part) - self.loops for part in alike) and not apart) or not self._matters(node):
            return
        if isinstance(node, tir.For):
            self.found.repeating |= (self._names(node.extent) | self._names(node.min)) & self.sizes
        into = self.found.guards if (self._only_adds(node) if adds is None else adds) else self.found.ways
        if alike and not isinstance(node, tir.For) and not any(reads_memory(self._inlined(part)) for part in alike):
            alike = [conjunction(alike)]  # what memory says would hide what sizes say
        for part in alike:
            self._add(part, into, [{}])
        for part in apart:
            self._add(part, into, self.samples)
            self.cutting |= self._names(part) & self.sizes

    def _add(self, part: Any, into: list[Any], threads: Sequence[dict[Any, int]]) -> None:
        """A decision, for each of these threads and for the first iterations of the loops around."""
        names = self._names(part)
        iterations = range(FIRST if names & self.loops else 1)
        if not names - self.loops:
            return
        if threads == [{}] and not names & self.loops:
            into.append(part)
            return
        whole = self._inlined(part)
        for n in iterations:
            at = {v: tir.const(n, str(v.ty)) for v in self.loops}
            into += [substitute(whole, at | {v: tir.const(i, str(v.ty)) for v, i in one.items()}) for one in threads]

    def _holds(self, condition: Any) -> bool:
        """Whether a condition holds for all threads where sizes are large."""
        value = _value(self.large, condition)
        return not isinstance(value, Unknown) and bool(np.all(value))

    def _index(self, index: Any) -> None:
        """Whether sizes lie between the places of threads, and where they cut or divide what threads differ in."""
        if not self._names(index) & self.sizes or not self._names(index) & self.threads.keys():
            return
        self.found.beside |= self._names(index) & self.sizes
        for node in tile_ir.walk(tir.Evaluate(self._inlined(index)), *_CUTTING):
            condition = _cut(node)
            names = frozenset() if condition is None else self._names(condition)
            if names & self.sizes and names & self.threads.keys() and not reads_memory(condition):
                self._add(condition, self.found.ways, self.samples)

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
        if isinstance(node, tir.For):
            body = node.body if self._names(node.extent) & self.threads.keys() else None
        else:
            body = node.then_case if isinstance(node, tir.IfThenElse) and node.else_case is None else None
        return body is not None and not any(
            (isinstance(n, tir.BufferStore) and can_be_followed(n.buffer))
            or isinstance(n, tir.While)
            or is_call(n, "tirx.break_loop", "tirx.continue_loop")
            or (is_call(n, *ADDRESS) and can_be_followed(buffer_at(n)))
            or (is_call(n, "tirx.call_extern") and _is_awaited(str(n.args[0].value)))
            for n in tile_ir.walk(body, tir.BufferStore, tir.While, ir.Call)
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


def _cut(node: Any) -> Any | None:
    """The comparison that decides what a part of an index is; None of parts that are no more than sums and products."""
    if isinstance(node, ir.prim.Select):
        return node.condition
    if is_call(node, "prim.if_then_else"):
        return node.args[0]
    if isinstance(node, ir.Call) or (isinstance(node, _DIVIDING) and tile_ir.static(node.b) is not None):
        return None
    return node.a < node.b


def _value(values: ThreadValues, node: Any) -> Any:
    try:
        return values.value(node)
    except Unknown as unknown:
        return unknown


def _is_kept(buffer: Any) -> bool:
    return str(buffer.scope()) in tile_ir.SHARED or can_be_followed(buffer)


def _is_awaited(name: str) -> bool:
    """Whether a function synchronizes, or others wait for it by its number; copies of `cp.async` are counted where they are
    committed."""
    return name.startswith(COUNTED) or (orders(name) and not name.startswith("tl::cp_async<"))
