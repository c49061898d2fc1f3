"""Give every shared buffer its place in the block's dynamic shared memory."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.rewrite import Rewriter, map_kernels
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import SharedMemoryOverflow
from tile_compiler.simt.operators.nests import is_shared
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

OFFSET = "tl.offset"
ALIGNMENT = 128
SWIZZLE_ALIGNMENT = 1024  # of the pattern that the hardware's 128-byte mode has


def plan_shared_memory(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Allocations of shared memory move to the kernel's start, one after another.

    before:     ...; s = alloc((4096,)); ...; t = alloc((64,)); ...
    after:      s = alloc((4096,), offset 0); t = alloc((64,), offset 8192); ...

    SharedMemoryOverflow, with each buffer's bytes, if the architecture has less.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        mover = _Collect()
        body = mover.body(kernel.body)
        placed, total = [], 0
        for node in mover.found:
            size = _bytes(node.buffer)
            step = SWIZZLE_ALIGNMENT if size % SWIZZLE_ALIGNMENT == 0 else ALIGNMENT
            total = -(-total // step) * step
            placed.append(tir.AllocBuffer(node.buffer, {OFFSET: total}, span=node.span))
            total += size
        if total > ctx.arch.shared_limit:
            each = ", ".join(f"{n.buffer.name} {_bytes(n.buffer)}" for n in mover.found)
            raise SharedMemoryOverflow(
                f"the kernel needs {total} bytes of shared memory for a block",
                at=kernel.span,
                found=f"{each} bytes",
                expected=f"at most {ctx.arch.shared_limit} bytes on {ctx.arch.name}",
                repair="use smaller tiles or fewer stages",
            )
        ctx.shared_bytes[kernel.index] = total
        whole = tile_ir.sequence([*placed, *tile_ir.statements(body)])
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, whole, kernel.span)

    return map_kernels(func, rule)


class _Collect(Rewriter):
    def __init__(self) -> None:
        self.found: list[tir.AllocBuffer] = []

    def alloc(self, node: tir.AllocBuffer) -> Any:
        if not is_shared(node.buffer):
            return node
        if node.buffer not in [f.buffer for f in self.found]:
            self.found.append(node)
        return None


def _bytes(buffer: Any) -> int:
    kind = dtype_of(tile_ir.dtype_name(buffer))
    (size,) = (int(s) for s in buffer.ty.shape)
    return -(-size * kind.bits * kind.lanes // 8)
