"""Give every shared buffer its place in the block's dynamic shared memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import alias_roots
from tile_compiler.rewrite import Rewriter, map_kernels
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import SharedMemoryOverflow
from tile_compiler.simt.operators.nests import is_shared
from tile_compiler.simt.roles.channels import is_role
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Layout

OFFSET = "tl.offset"
ALIGNMENT = 128
SWIZZLE_ALIGNMENT = 1024  # of the pattern that the hardware's 128-byte mode has
BARRIER_BYTES = 8

MERGE = "tir.merge_static_smem"  # the user's wish: False keeps all buffers apart
# Sharing costs a barrier between the last use of one buffer and the first of the next. Below this saving it buys nothing:
# 32 blocks, the most that a multiprocessor holds, with 4 KiB each fit in the 128 KiB that sm_80 and newer have at least.
WORTH = 4096

Lifetime = tuple[int, int]  # numbers of the first and of the last statement that uses a buffer


def plan_shared_memory(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Allocations of shared memory move to the kernel's start; buffers that are never in use together share bytes.

    before:     s = alloc((8192,)); for k in K: s[...] ...;  c = alloc((4096,)); c[...] = ...; ... = c[...]
    after:      s = alloc((8192,), offset 0); c = alloc((4096,), offset 0); ...

    A buffer is in use from the first statement that names it to the last; a loop counts as one statement, as what an
    iteration leaves behind may be read in the next. The barriers that sharing needs are placed afterwards, by bytes.
    The largest buffer is placed first, each at the lowest offset where it meets none of those in use with it.

    SharedMemoryOverflow, with each buffer's bytes, if the architecture has less.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        mover = _Collect()
        body = mover.body(kernel.body)
        align = Alignment(ctx)
        offsets, total = _placed(mover.found, None, align)
        if ctx.options.get(MERGE, True) and len(mover.found) > 1:
            offsets, total = _shared(mover.found, body, kernel, ctx, align)
        placed = [tir.AllocBuffer(n.buffer, {OFFSET: offsets[n.buffer]}, span=n.span) for n in mover.found]
        for node in mover.barriers:  # behind the tiles, and for themselves: they are in use all the time
            total = -(-total // BARRIER_BYTES) * BARRIER_BYTES
            placed.append(tir.AllocBuffer(node.buffer, {**dict(node.annotations), OFFSET: total}, span=node.span))
            total += shared_bytes(node.buffer)
        if total > ctx.arch.shared_limit:
            each = ", ".join(f"{n.buffer.name} {shared_bytes(n.buffer)}" for n in mover.found)
            raise SharedMemoryOverflow(
                f"the kernel needs {total} bytes of shared memory for a block",
                at=kernel.span,
                found=f"{each} bytes",
                expected=f"at most {ctx.arch.shared_limit} bytes on {ctx.arch.name}",
                repair="use smaller tiles",
            )
        ctx.shared_bytes[kernel.index] = total
        whole = tile_ir.sequence([*placed, *tile_ir.statements(body)])
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, whole, kernel.span)

    return map_kernels(func, rule)


@dataclass(frozen=True)
class Alignment:
    """What the offset of a buffer is a multiple of: where a swizzle's pattern begins, if the buffer has one."""

    ctx: SimtContext

    def __call__(self, buffer: Any) -> int:
        layout = self.ctx.tiles.get(buffer)
        swizzled = isinstance(layout, Layout) and layout.swizzle is not None
        return SWIZZLE_ALIGNMENT if swizzled or shared_bytes(buffer) % SWIZZLE_ALIGNMENT == 0 else ALIGNMENT


def _shared(
    found: list[tir.AllocBuffer], body: Any, kernel: tile_ir.Kernel, ctx: SimtContext, align: Alignment
) -> tuple[dict[Any, int], int]:
    """(offsets, bytes in all) with overlap where that is worth a barrier."""
    apart, alone = _placed(found, None, align)
    offsets, total = _placed(found, lifetimes(body), align)
    if alone - total < WORTH:
        return apart, alone
    ctx.report.note(kernel.span, f"shared memory: {total} bytes; {alone} if no buffers shared theirs")
    return offsets, total


def _placed(
    found: list[tir.AllocBuffer], lives: dict[Any, Lifetime] | None, align: Alignment
) -> tuple[dict[Any, int], int]:
    """(offset of each buffer, bytes in all); without lifetimes one after another, in their order."""
    offsets: dict[Any, int] = {}
    order = found if lives is None else sorted(found, key=lambda n: -shared_bytes(n.buffer))
    for node in order:
        size = shared_bytes(node.buffer)
        step = align(node.buffer)
        taken = [
            (start, start + shared_bytes(other))
            for other, start in offsets.items()
            if lives is None or _together(lives.get(other), lives.get(node.buffer))
        ]
        start = 0 if lives is not None else max((end for _, end in taken), default=0)
        start = -(-start // step) * step
        for low, high in sorted(taken):
            if low < start + size and start < high:
                start = -(-high // step) * step
        offsets[node.buffer] = start
    return offsets, max((start + shared_bytes(b) for b, start in offsets.items()), default=0)


def _together(a: Lifetime | None, b: Lifetime | None) -> bool:
    return a is not None and b is not None and a[0] <= b[1] and b[0] <= a[1]


def lifetimes(body: Any) -> dict[Any, Lifetime]:
    """When each shared buffer is in use; views count for the buffer whose storage they show.

    What a producer brings is in use from the beginning: it runs ahead of the statements before its own.
    """
    roots = alias_roots(body)
    lives: dict[Any, Lifetime] = {}
    roles = [n for n in tile_ir.walk(body, tir.AttrStmt) if is_role(n)]
    early = {roots.get(n, n) for role in roles for n in tile_ir.walk(role, ir.Var) if is_tile(n)}
    for number, stmt in enumerate(_flat(body)):
        if isinstance(stmt, tir.DeclBuffer):
            continue
        for node in tile_ir.walk(stmt, ir.Var, tir.BufferStore):
            named = node.buffer if isinstance(node, tir.BufferStore) else node
            if is_tile(named):
                root = roots.get(named, named)
                first = 0 if root in early else number
                lives[root] = (lives.get(root, (first, 0))[0], number)
    return lives


def is_tile(node: Any) -> bool:
    return isinstance(node, ir.Var) and tile_ir.is_buffer(node) and is_shared(node)


def _flat(body: Any) -> list[Any]:
    """The statements of a kernel in order; a loop is one, both sides of an `if` come in sequence after its condition."""
    out: list[Any] = []
    for stmt in tile_ir.statements(body):
        if isinstance(stmt, tir.AttrStmt):
            out += _flat(stmt.body)
        elif isinstance(stmt, tir.IfThenElse):
            out += [tir.Evaluate(stmt.condition), *_flat(stmt.then_case)]
            out += [] if stmt.else_case is None else _flat(stmt.else_case)
        else:
            out.append(stmt)
    return out


class _Collect(Rewriter):
    def __init__(self) -> None:
        self.found: list[tir.AllocBuffer] = []
        self.barriers: list[tir.AllocBuffer] = []

    def alloc(self, node: tir.AllocBuffer) -> Any:
        if str(node.buffer.scope()) == tile_ir.BARRIER:
            self.barriers.append(node)
            return None
        if not is_shared(node.buffer):
            return node
        if node.buffer not in [f.buffer for f in self.found]:
            self.found.append(node)
        return None


def shared_bytes(buffer: Any) -> int:
    """The bytes of a shared buffer."""
    kind = dtype_of(tile_ir.dtype_name(buffer))
    size = math.prod(int(s) for s in buffer.ty.shape)
    return -(-size * kind.bits * kind.lanes // 8)
