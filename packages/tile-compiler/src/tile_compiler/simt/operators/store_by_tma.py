"""`T.copy` to global memory by the tensor memory accelerator, in kernels whose tiles come by it."""

from __future__ import annotations

import math
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.nests import is_fragment, is_global, is_shared, static_shape
from tile_compiler.simt.tensor_maps import preferred_layout, tma_able
from tilelang import ops
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ops import BulkCommit, Copy, TmaCopy

OPTION = "tl.disable_tma_lower"
SECTOR = 32  # bytes: what memory writes at least
QUAD = 4  # threads that hold a row of 2 accumulators each


def store_by_tma(op: Copy, to: Expansion) -> Any | None:
    """One thread starts the store of a shared tile; None where that does not fit, with the reason in the report.

    before:     T.tl.copy(C_s, C[m:m + 64, n:n + 64])
    after:      leader: T.tl.tma_copy(C_s, C[m:m + 64, n:n + 64]); T.tl.bulk_commit()

    The fence and the barrier before it, and the wait before the tile is written again, come with `insert_barriers`.
    """
    if not (is_shared(op.src.source) and is_global(op.dst.source)) or not _wanted(op, to):
        return None
    plan = tma_able(op.src, op.dst, to.ranges, to.ctx)
    reason = plan if isinstance(plan, str) else _shared_with(op, to)
    if reason is not None:
        to.ctx.report.note(to.span, f"T.copy: {op.dst.source.name} is not stored by TMA, as {reason}")
        return None
    parts = [TmaCopy(op.src, op.dst, eviction_policy=op.eviction_policy), BulkCommit()]
    one = tir.const(1, "int32")
    body = tile_ir.sequence([part.to_stmt(to.span) for part in parts])
    return tir.AttrStmt(one, tile_ir.LEADER, one, body, span=to.span)


def staged_tile(op: Copy, to: Expansion) -> Any | None:
    """A shared tile through which a fragment reaches global memory better than by stores of its threads; None for
    others.

    The threads of a matrix instruction hold two neighbours of a row each, four threads side by side: of elements of
    one byte they write a quarter of a sector. Elements of two bytes are exchanged between lanes first
    (`exchange_lanes`), so that whole sectors are written; staging them gained nothing on the H200 (docs/performance), so
    it is done only where the user writes `prefer_instruction="tma"`. Only for copies that nothing stands around: then
    the tile's memory is that of tiles which are done with.
    """
    source, dtype = op.src.source, tile_ir.dtype_name(op.dst.source)
    if not (is_fragment(source) and is_global(op.dst.source)) or not _wanted(op, to):
        return None
    extents = [tile_ir.static(e) for e, _, _ in op.tile_axes()]
    size = dtype_of(dtype).itemsize
    wished = op.prefer_instruction == "tma" and size * 2 * QUAD < SECTOR
    if not (wished or size == 1) or len(extents) < 2 or None in extents:
        return None
    tile = tir.decl_buffer(extents, dtype, name=f"{op.dst.source.name}_tile", scope="shared.dyn", layout=None)
    if preferred_layout(tile_ir.whole(tile)) is None or not _fits(tile, to):
        return None
    if isinstance(tma_able(tile_ir.whole(tile), op.dst, to.ranges, to.ctx), str) or _shared_with(op, to) is not None:
        return None
    to.temporaries.append(tir.AllocBuffer(tile))
    to.ctx.report.note(to.span, f"T.copy: {source.name} is stored by TMA through shared memory")
    return tile_ir.whole(tile)


def _wanted(op: Copy, to: Expansion) -> bool:
    """Whether the kernel moves tiles by TMA, and this copy is the block's."""
    if not to.ctx.arch.has_tma or to.by_thread or op.disable_tma or to.ctx.options.get(OPTION):
        return False
    return any(is_call(n, TmaCopy.NAME) for n in tile_ir.walk(to.kernel.body, ir.Call))


def _shared_with(op: Copy, to: Expansion) -> str | None:
    """Why ordinary accesses of the kernel could meet the store, which nothing orders against them; None if none do."""
    tensor = op.dst.source
    root: Any = to.roots.get(tensor, tensor)
    same = lambda b: bool(root.same_as(to.roots.get(b, b)))  # noqa: E731
    for node in tile_ir.walk(to.kernel.body):
        if isinstance(node, ir.TensorLoad) and same(node.source):
            return f"the kernel also reads {tensor.name}"
        if isinstance(node, tir.BufferStore) and same(node.buffer):
            return f"the kernel also writes elements of {tensor.name}"
        if isinstance(node, ir.Call) and str(getattr(node.op, "name", "")) in ops.OPERATORS:
            other = ops.parse(node)
            if any(same(r.source) for r in other.reads()):
                return f"the kernel also reads {tensor.name}"
            written = [r for r in other.writes() if same(r.source)]
            if any(not (_equal(r, op.dst) or _apart(r, op.dst, to)) for r in written):
                return f"the kernel writes {tensor.name} in several places"
    return None


def _equal(a: Any, b: Any) -> bool:
    """The region of the copy itself."""
    return bool(a.same_as(b)) or all(x.same_as(y) for x, y in zip(a.region, b.region))


def _apart(a: Any, b: Any, to: Expansion) -> bool:
    """Whether two regions of one tensor have no element in common."""
    if not a.source.same_as(b.source):
        return False
    return any(
        to.ranges.proves(x.min >= y.min + y.extent) or to.ranges.proves(y.min >= x.min + x.extent)
        for x, y in zip(a.region, b.region)
    )


def _fits(tile: Any, to: Expansion) -> bool:
    """Whether a tile that is in use at the end of the kernel finds room among those that are too."""
    stmts = tile_ir.statements(to.kernel.body)
    at = [n for n, s in enumerate(stmts) if isinstance(s, tir.Evaluate) and s.span is not None and s.span == to.span]
    if not at:
        return False
    named = {n for s in stmts[at[0] :] for n in tile_ir.walk(s, ir.Var) if tile_ir.is_buffer(n)}
    live = {to.roots.get(b, b) for b in named}
    used = sum(_bytes(b) for b in live if is_shared(b))
    return used + _bytes(tile) <= to.ctx.arch.shared_limit


def _bytes(buffer: Any) -> int:
    kind = dtype_of(tile_ir.dtype_name(buffer))
    return math.prod(static_shape(buffer) or (0,)) * kind.bits * kind.lanes // 8
