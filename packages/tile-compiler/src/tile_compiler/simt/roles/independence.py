"""What a producer can know by itself: values that nothing the block computes has a part in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import is_tile_operator
from tile_compiler.rewrite import is_call
from tile_compiler.simt.operators.nests import is_fragment, is_global, is_shared
from tile_compiler.simt.pipeline_schedule import touched
from tilelang.ir import tile_ir


class Independence:
    """A producer runs ahead of the other threads and keeps scalars of its own, so it can follow loops, conditions and
    coordinates that hang on the grid, on arguments, on memory that the kernel only reads, and on scalars made of those.

    It cannot follow what hangs on shared memory, fragments, memory that the kernel writes, the thread's number or a call
    with effects: those values do not exist yet when the producer asks, or are not the same. Found by following values
    forward, through the conditions under which they are stored as well, to a fixed point. `also`: variables that do not
    count as known either, and what to call them.
    """

    def __init__(
        self,
        kernel: tile_ir.Kernel,
        written: Collection[Any],
        roots: Mapping[Any, Any],
        also: Mapping[Any, str] | None = None,
    ) -> None:
        self.written, self.roots = written, roots
        self.reasons: dict[Any, str] = {var: "the thread's number" for var, _ in kernel.threads} | dict(also or {})
        self.left: dict[Any, str] = {}  # loops that are left for such a reason
        size = -1
        while size != len(self.reasons) + len(self.left):
            size = len(self.reasons) + len(self.left)
            self._statement(kernel.body, "", [])

    def fault(self, node: Any) -> str:
        """What an expression or region hangs on that a producer cannot know; "" if there is nothing."""
        for n in tile_ir.walk(node, ir.Var, ir.TensorLoad, ir.Call):
            if isinstance(n, ir.TensorLoad):
                found = self._memory(n.source)
            elif isinstance(n, ir.Var):
                found = self.reasons.get(n, "")
            else:
                found = "a call with effects" if is_call(n, "tirx.call_extern", "tl.atomic_elem") else ""
            if found:
                return found
        return ""

    def fault_of(self, node: Any) -> str:
        """The same for the number of times that a loop or condition lets its body run."""
        if isinstance(node, tir.For):
            return self.fault(node.min) or self.fault(node.extent) or self.left.get(node, "")
        return self.fault(node.condition) or self.left.get(node, "")

    def _memory(self, buffer: Any) -> str:
        if is_shared(buffer) or is_fragment(buffer):
            return f"{buffer.name}, which the block's threads write"
        if is_global(buffer) and self.roots.get(buffer, buffer) in self.written:
            return f"{buffer.name}, which the kernel writes"
        return self.reasons.get(buffer, "")

    def _statement(self, node: Any, around: str, loops: list[Any]) -> None:
        """`around`: the reason why a producer does not know whether `node` runs, if there is one."""
        if isinstance(node, tir.SeqStmt):
            for part in node.seq:
                self._statement(part, around, loops)
        elif isinstance(node, tir.Bind):
            self._mark(node.var, self.fault(node.value))
        elif isinstance(node, tir.BufferStore):
            if str(node.buffer.scope()) in tile_ir.PRIVATE:
                self._mark(node.buffer, around or self.fault(node.value) or self._any(node.indices))
        elif isinstance(node, (tir.For, tir.While)):
            inside = around or self.fault_of(node)
            if isinstance(node, tir.For):
                self._mark(node.loop_var, inside)
            self._statement(node.body, inside, [*loops, node])
        elif isinstance(node, tir.IfThenElse):
            inside = around or self.fault(node.condition)
            for case in (node.then_case, node.else_case):
                if case is not None:
                    self._statement(case, inside, loops)
        elif isinstance(node, tir.AttrStmt):
            self._statement(node.body, around, loops)
        elif isinstance(node, tir.Evaluate):
            if is_call(node.value, "tirx.break_loop", "tirx.continue_loop") and loops and around:
                self.left.setdefault(loops[-1], around)
            effects = is_tile_operator(node) or is_call(node.value, "tirx.call_extern", "tl.atomic_elem")
            for buffer in touched(node)[1] if effects else ():
                if str(buffer.scope()) in tile_ir.PRIVATE:
                    self._mark(buffer, f"{buffer.name}, which a call writes")

    def _any(self, nodes: Any) -> str:
        return next((found for found in map(self.fault, nodes) if found), "")

    def _mark(self, name: Any, reason: str) -> None:
        if reason:
            self.reasons.setdefault(name, reason)


class Alike(Independence):
    """The same question for the blocks of a cluster: what is not the same in all of them.

    `number` is the block's number along the axis of clusters of `size` blocks; its quotient by the size is the cluster's.
    """

    def __init__(
        self, kernel: tile_ir.Kernel, written: Collection[Any], roots: Mapping[Any, Any], number: Any, size: int
    ) -> None:
        self.number, self.size = number, size
        super().__init__(kernel, written, roots, {number: "the block's place in its cluster"})

    def fault(self, node: Any) -> str:
        return super().fault(tile_ir.map_nodes(node, (ir.prim.FloorDiv, self._cluster)))

    def _cluster(self, node: Any) -> Any:
        by = tile_ir.static(node.b)
        mine = by is not None and by % self.size == 0 and node.a.same_as(self.number)
        return tir.const(0, str(node.ty)) if mine else node
