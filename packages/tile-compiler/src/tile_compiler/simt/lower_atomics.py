"""Print element atomics as calls of the device header. Last, because the passes on synchronization look for them."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.rewrite import is_call, map_kernels
from tile_compiler.simt.context import SimtContext
from tilelang.ir import tile_ir
from tilelang.ops.atomic import ELEMENT

_FUNCTIONS = {"add": "add", "max": "max", "min": "min", "and": "and", "or": "or", "xor": "xor", "exchange": "exchange"}
_WITHOUT_ORDER = ("relaxed",)


def lower_atomics(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """`tl.atomic_elem` becomes `tl::atomic_*` of the device header; a store is an exchange whose result is dropped.

    before:     T.tl.atomic_elem(address_of(H[v]), 1)   {op: add}
    after:      T.call_extern("int32", "tl::atomic_add", address_of(H[v]), 1)

    Raises UnsupportedOnTarget for an atomic load, which the header does not have, and for orders but relaxed.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        body = _Lower(ctx).statement(kernel.body)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


class _Lower:
    def __init__(self, ctx: SimtContext) -> None:
        self.ctx = ctx
        self.span: Any = None

    def statement(self, body: Any) -> Any:
        for node in tile_ir.walk(body):
            if isinstance(node, (tir.Evaluate, tir.Bind, tir.BufferStore)) and _has_atomic(node):
                self.span = node.span or self.span
        return tvm_ffi.structural_map(body, (ir.Call, self.call))

    def call(self, node: Any) -> Any:
        if not is_call(node, ELEMENT):
            return node
        attrs = tile_ir.attrs_of(node)
        op, order = str(attrs["op"]), str(attrs.get("memory_order", "relaxed"))
        name = _FUNCTIONS.get("exchange" if op == "store" else op)
        if name is None or order not in _WITHOUT_ORDER:
            raise UnsupportedOnTarget(
                f"T.atomic_{op} with memory order {order}",
                at=self.span,
                expected="a relaxed update of one element",
                repair="drop memory_order; for a load, read the element after a kernel ends or a barrier",
            )
        return tir.call_extern(str(node.ty), f"tl::atomic_{name}", *node.args)


def _has_atomic(node: Any) -> bool:
    return any(is_call(n, ELEMENT) for n in tile_ir.walk(node))
