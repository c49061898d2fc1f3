"""Guard every access that cannot be proven in bounds."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.ranges import RangeRewriter, Ranges, conjunction
from tile_compiler.rewrite import is_call, map_kernels
from tilelang.ir import tile_ir

UNSAFE = "tl.disable_safe_memory_access"


def bounds(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """Give element loads and stores that may leave their buffer a condition; needless ones are proven away.

    before:     for i in T.parallel(128): B[bx * 128 + i] = A[bx * 128 + i]
    after:      for i in T.parallel(128):
                    if bx * 128 + i < n:
                        B[bx * 128 + i] = A[bx * 128 + i]

    A load that is not under such a condition becomes `if_then_else(inside, load, 0)`, or the buffer's
    `T.annotate_safe_value` instead of 0. Regions of tile operators are left to the operators' lowering.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        if ctx.options.get(UNSAFE):
            ctx.report.assume(kernel.span, f"all accesses are in bounds ({UNSAFE})")
            return kernel
        guard = Guard(Ranges.of_kernel(func, kernel), safe_values(kernel.body))
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, guard.body(kernel.body), kernel.span)

    return map_kernels(func, rule)


def safe_values(body: Any) -> dict[Any, Any]:
    """What reads outside a buffer give instead of 0: buffer -> expression, from `tl.safe_value`."""
    found = {}
    for node in tile_ir.walk(body):
        if is_call(node, "tl.safe_value"):
            found[node.args[0].source] = node.args[1]
    return found


class Guard(RangeRewriter):
    """The rewriter of this pass; tile operator lowerings use it on the loops that they make."""

    def __init__(self, ranges: Ranges, safe: dict[Any, Any]) -> None:
        super().__init__(ranges)
        self.safe = safe

    def expr(self, node: Any) -> Any:
        if not tile_ir.holds(node, ir.TensorLoad, ir.Call, ir.prim.Select):
            return node
        rules = ((ir.TensorLoad, self._load), (ir.Call, self._call), (ir.prim.Select, self._plain))
        return tvm_ffi.structural_mutate(node, rules)

    def store(self, node: tir.BufferStore) -> Any:
        needed = self.ranges.outside(node.buffer, node.indices)
        if not needed:
            return super().store(node)
        condition = conjunction([self.expr(c) for c in needed])
        with self.ranges.given(*needed):
            return tir.IfThenElse(condition, super().store(node), None, span=node.span)

    def _load(self, node: Any, mutator: Any) -> Any:
        needed = self.ranges.outside(node.source, node.indices)
        with self.ranges.given(*needed):
            inner = mutator.default_mutate(node)
        if not needed:
            return inner
        return tir.if_then_else(conjunction([self.expr(c) for c in needed]), inner, self.safe_value(node.source))

    def safe_value(self, buffer: Any) -> Any:
        dtype = tile_ir.dtype_name(buffer)
        value = self.safe.get(buffer)
        if value is None:
            return zero(dtype)
        return value if str(value.ty) == dtype else tir.Cast(dtype, value)

    def _call(self, node: Any, mutator: Any) -> Any:
        if is_call(node, "prim.if_then_else"):
            condition, then, other = node.args
            guarded = self.expr(condition)
            with self.ranges.given(condition):
                then = self.expr(then)
            with self.ranges.given(tir.Not(condition)):
                other = self.expr(other)
            return tir.if_then_else(guarded, then, other)
        if is_call(node, "tirx.address_of", "tirx.buffer_data", "tvm_access_ptr"):
            return self._address(node)
        if is_call(node, "tl.atomic_elem"):
            target = node.args[0].args[0]
            needed = self.ranges.outside(target.source, target.indices)
            call = mutator.default_mutate(node)
            if not needed:
                return call
            return tir.if_then_else(conjunction([self.expr(c) for c in needed]), call, zero(str(node.ty)))
        return mutator.default_mutate(node)

    def _address(self, node: Any) -> Any:
        """An address is no access; its indices may contain some."""
        if not isinstance(node.args[0], ir.TensorLoad):
            return node
        load = node.args[0]
        indices = [self.expr(i) for i in load.indices]
        if all(a.same_as(b) for a, b in zip(indices, load.indices)):
            return node
        return ir.Call(
            node.op, [tir.BufferLoad(load.source, indices)], attrs=node.attrs, ret_ty=node.ty, span=node.span
        )

    @staticmethod
    def _plain(node: Any, mutator: Any) -> Any:
        return mutator.default_mutate(node)  # both sides of a Select are evaluated: its condition protects nothing


def zero(dtype: str) -> Any:
    """The 0 of any element type."""
    if dtype == "bool":
        return tir.const(False, "bool")
    small = dtype.startswith(("float8", "float4", "float6"))  # tirx has no constants of these
    return tir.Cast(dtype, tir.const(0, "float32")) if small else tir.const(0, dtype)
