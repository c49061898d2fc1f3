"""Buffers whose elements are vectors become buffers of scalars."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import map_kernels
from tile_compiler.simt.context import SimtContext
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of


def split_vectors(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """An access of a vector element is an access of its neighbouring scalars.

    before:     wide = view(tile, (2,), float32x4); wide[i] = wide[i] + 1
    after:      wide = view(tile, (8,), float32);   wide[i * 4 : +4] = wide[i * 4 : +4] + 1
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        scalars = {
            node.buffer: _scalar(node.buffer)
            for node in tile_ir.walk(kernel.body, tir.AllocBuffer, tir.DeclBuffer)
            if dtype_of(tile_ir.dtype_name(node.buffer)).lanes > 1
        }
        if not scalars:
            return kernel
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, _rewritten(kernel.body, scalars), kernel.span)

    return map_kernels(func, rule)


def _scalar(buffer: Any) -> Any:
    kind, shape = dtype_of(tile_ir.dtype_name(buffer)), list(buffer.ty.shape)
    shape[-1] = shape[-1] * kind.lanes
    return tir.decl_buffer(shape, kind.scalar, name=str(buffer.name), scope=str(buffer.scope()), layout=None)


def _rewritten(body: Any, scalars: dict[Any, Any]) -> Any:
    def neighbours(buffer: Any, indices: Any) -> list[Any]:
        lanes = dtype_of(tile_ir.dtype_name(buffer)).lanes
        last = indices[-1]
        return [*indices[:-1], tir.Ramp(last * lanes, tir.const(1, str(last.ty)), lanes)]

    def load(node: Any) -> Any:
        new = scalars.get(node.source)
        return node if new is None else tir.BufferLoad(new, neighbours(node.source, node.indices))

    def store(node: Any) -> Any:
        new = scalars.get(node.buffer)
        return node if new is None else tir.BufferStore(new, node.value, neighbours(node.buffer, node.indices))

    def alias(node: Any) -> Any:
        new = scalars.get(node.buffer)
        return node if new is None else tir.DeclBuffer(new, data=node.data, span=node.span)

    def alloc(node: Any) -> Any:
        new = scalars.get(node.buffer)
        return node if new is None else tir.AllocBuffer(new, node.annotations, span=node.span)

    rules = [(ir.TensorLoad, load), (tir.BufferStore, store), (tir.DeclBuffer, alias), (tir.AllocBuffer, alloc)]
    return tvm_ffi.structural_map(body, rules)
