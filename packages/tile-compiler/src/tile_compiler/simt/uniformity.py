"""Which values are the same for all threads of a block."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.statement_tree import leaves
from tilelang.ir import tile_ir


class Uniformity:
    """Variables and private buffers whose value may differ between threads, to a fixed point."""

    def __init__(self, kernel: tile_ir.Kernel) -> None:
        self.varying: set[Any] = {var for var, _ in kernel.threads}
        size = -1
        while size != len(self.varying):
            size = len(self.varying)
            self._statement(kernel.body, False)

    def varies(self, node: Any) -> bool:
        """Whether an expression may differ between threads."""
        for part in tile_ir.walk(tir.Evaluate(node), ir.Var, ir.Call):
            if isinstance(part, ir.Var) and part in self.varying:
                return True
            if is_call(part, "tirx.call_extern", "tl.atomic_elem"):
                return True
        return False

    def part(self, loop: tir.For | tir.While) -> bool:
        """Whether some threads may leave a loop, or an iteration of it, while others go on."""
        return self._some_leave(loop.body, False)

    def _some_leave(self, node: Any, divergent: bool) -> bool:
        if isinstance(node, tir.SeqStmt):
            return any(self._some_leave(part, divergent) for part in node.seq)
        if isinstance(node, tir.IfThenElse):
            inside = divergent or self.varies(node.condition)
            cases = [node.then_case] + ([] if node.else_case is None else [node.else_case])
            return any(self._some_leave(case, inside) for case in cases)
        if isinstance(node, tir.AttrStmt):
            return self._some_leave(node.body, divergent)
        return divergent and leaves(node)

    def _mark(self, name: Any) -> None:
        self.varying.add(name)

    def _statement(self, node: Any, divergent: bool) -> None:
        if isinstance(node, tir.Bind):
            if self.varies(node.value):
                self._mark(node.var)
        elif isinstance(node, tir.BufferStore):
            if str(node.buffer.scope()) in tile_ir.PRIVATE:
                if divergent or self.varies(node.value) or any(self.varies(i) for i in node.indices):
                    self._mark(node.buffer)
        elif isinstance(node, tir.Evaluate):
            if is_call(node.value, "tirx.call_extern"):
                for part in tile_ir.walk(node.value, ir.TensorLoad):
                    if str(part.source.scope()) in tile_ir.PRIVATE:
                        self._mark(part.source)
        elif isinstance(node, tir.For):
            varying = self.varies(node.extent) or self.varies(node.min)
            if varying:
                self._mark(node.loop_var)
            self._statement(node.body, divergent or varying or self.part(node))
        elif isinstance(node, tir.While):
            self._statement(node.body, divergent or self.varies(node.condition) or self.part(node))
        elif isinstance(node, tir.IfThenElse):
            inside = divergent or self.varies(node.condition)
            self._statement(node.then_case, inside)
            if node.else_case is not None:
                self._statement(node.else_case, inside)
        elif isinstance(node, tir.AttrStmt):
            inner = node.body
            if tile_ir.as_thread_group(node) is not None and isinstance(inner, tir.IfThenElse):
                inner = inner.then_case  # the group is all that there is, as far as it is concerned
            self._statement(inner, divergent)
        elif isinstance(node, tir.SeqStmt):
            for part in node.seq:
                self._statement(part, divergent)
