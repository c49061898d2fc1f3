"""Give on-chip buffers a place in the worker's scratch memory."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.passes.lower_tile_ops import alias_roots
from tile_compiler.rewrite import Rewriter, is_call, map_kernels
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

OFFSET = "tl.offset"  # AllocBuffer annotation: byte offset in scratch
ALIGNMENT = 64  # a cache line, and the widest vector register
LARGEST_ON_STACK = 4096  # bytes; larger private buffers go to scratch, so that a worker's stack stays small


def plan_scratch(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """Move shared and fragment buffers to the top of the kernel, each with its offset; small private ones stay.

    before:     for k in 4:
                    a = T.alloc_buffer((64, 64), scope="shared")
    after:      a = T.alloc_buffer((64, 64), scope="shared", annotations={"tl.offset": 0})
                for k in 4: ...

    A view of an on-chip buffer follows it to the top.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        planner = _Planner(alias_roots(func.body))
        body = planner.body(kernel.body)
        body = tile_ir.sequence([*planner.placed, *tile_ir.statements(body)])
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


class _Planner(Rewriter):
    def __init__(self, roots: dict[Any, Any]) -> None:
        self.roots = roots
        self.moved: set[Any] = set()
        self.placed: list[Any] = []
        self.next = 0

    def alloc(self, node: tir.AllocBuffer) -> Any:
        size = byte_size(node.buffer, node.span)
        if str(node.buffer.scope()) in tile_ir.PRIVATE and size <= LARGEST_ON_STACK:
            return node
        if node.buffer not in self.moved:
            self.placed.append(tir.AllocBuffer(node.buffer, {OFFSET: self.next}, span=node.span))
            self.moved.add(node.buffer)
            self.next = -(-(self.next + size) // ALIGNMENT) * ALIGNMENT
        return None

    def alias(self, node: tir.DeclBuffer) -> Any:
        if self.roots.get(node.buffer) not in self.moved:
            return node
        self.placed.append(node)
        return None


def byte_size(buffer: Any, span: Any = None) -> int:
    """Bytes that a buffer's storage takes."""
    elements = 1
    for size in buffer.ty.shape:
        length = tile_ir.static(size)
        if length is None:
            raise UnsupportedOnTarget(
                f"{buffer.name} has a size that is not known when compiling",
                at=span,
                found=f"shape {[str(s) for s in buffer.ty.shape]}",
                expected="on-chip buffers of constant shape",
            )
        elements *= length
    dtype = dtype_of(tile_ir.dtype_name(buffer))
    # On chip an element of a type under a byte takes a byte of its own; only global memory is packed.
    return elements * max(dtype.bits, 8) * dtype.lanes // 8


def scratch_of(body: Any) -> tuple[list[tuple[Any, int]], int, Any]:
    """((buffer, offset) pairs, bytes, the body without them) of a kernel after this pass; views count as buffers."""
    offsets: dict[Any, int] = {}
    rest, total = [], 0
    for s in tile_ir.statements(body):
        if isinstance(s, tir.AllocBuffer) and s.annotations and OFFSET in s.annotations:
            offsets[s.buffer] = int(tile_ir.plain(s.annotations[OFFSET]))
            end = offsets[s.buffer] + byte_size(s.buffer)
            total = max(total, -(-end // ALIGNMENT) * ALIGNMENT)
        elif isinstance(s, tir.DeclBuffer) and is_call(s.data, "tirx.buffer_data") and s.data.args[0] in offsets:
            offsets[s.buffer] = offsets[s.data.args[0]]
        else:
            rest.append(s)
    return list(offsets.items()), total, tile_ir.sequence(rest)
