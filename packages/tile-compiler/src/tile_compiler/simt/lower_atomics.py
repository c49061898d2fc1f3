"""Print element atomics as calls of the device header. Last, because the passes on synchronization look for them."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call, map_kernels
from tile_compiler.simt.context import SimtContext
from tilelang.ir import tile_ir
from tilelang.ops.atomic import ELEMENT

_FUNCTIONS = {"store": "exchange"}  # the others have the names of the header


def lower_atomics(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """`tl.atomic_elem` becomes `tl::atomic_*` of the device header; a store is an exchange whose result is dropped.

    before:     T.tl.atomic_elem(address_of(H[v]), 1)   {op: add, memory_order: release}
    after:      T.call_extern("int32", "tl::atomic_add<tl::release>", address_of(H[v]), 1)

    before:     T.tl.atomic_elem(address_of(S[v : v + 4]), part[0:4])   {op: add}
    after:      T.call_extern("float32", "tl::atomic_add_x4", address_of(S[v]), part[0:4])
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        body = tvm_ffi.structural_map(kernel.body, (ir.Call, _lowered))
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


def _lowered(node: Any) -> Any:
    if not is_call(node, ELEMENT):
        return node
    attrs = tile_ir.attrs_of(node)
    op, order = str(attrs["op"]), str(attrs.get("memory_order", "relaxed"))
    target = node.args[0].args[0]
    last = target.indices[-1]
    if isinstance(last, ir.prim.Ramp):
        first = tir.address_of(tir.BufferLoad(target.source, [*target.indices[:-1], last.base]))
        return tir.call_extern(str(node.ty), f"tl::atomic_{op}_x{int(last.lanes)}", first, node.args[1])
    name = f"tl::atomic_{_FUNCTIONS.get(op, op)}" + ("" if order == "relaxed" else f"<tl::{order}>")
    return tir.call_extern(str(node.ty), name, *(node.args[:1] if op == "load" else node.args))
