"""`T.vectorized` in the code of one thread."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import depends
from tile_compiler.rewrite import substitute
from tile_compiler.simt.accesses import neighbours
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import is_fragment, is_global, is_shared
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of


def vector_move(loop: tir.For, low: Lowering) -> Any | None:
    """A loop that moves neighbours as one vector; None if it does more, or nothing shows that they are aligned.

    before:     for v in T.vectorized(8): x[v] = A[tx * 8 + v]
    after:      x[0:8] = A[tx * 8 : tx * 8 + 8]

    Between global memory and a thread's own arrays: what a shared buffer's neighbours are, its layout decides later.
    """
    count, body = tile_ir.static(loop.extent), tile_ir.statements(loop.body)
    if count is None or tile_ir.static(loop.min) != 0 or len(body) != 1 or not isinstance(body[0], tir.BufferStore):
        return None
    target, source = body[0], body[0].value
    if not isinstance(source, ir.TensorLoad) or source.source.same_as(target.buffer):
        return None
    places = []
    for buffer, indices in ((target.buffer, target.indices), (source.source, source.indices)):
        if is_shared(buffer) or is_fragment(buffer) or dtype_of(tile_ir.dtype_name(buffer)).kind == "bool":
            return None
        if neighbours(buffer, list(indices), loop.loop_var, low.ranges)[0] != count:
            return None
        first = [low.simplify(substitute(i, {loop.loop_var: loop.min})) for i in indices]
        low.ranges.iterate(loop.loop_var, loop.min, loop.extent)
        if low.ranges.outside(buffer, list(indices)) or any(depends(tir.Evaluate(i), {loop.loop_var}) for i in first):
            return None
        places.append([*first[:-1], tir.Ramp(first[-1], tir.const(1, str(first[-1].ty)), count)])
    for buffer in (target.buffer, source.source):
        if is_global(buffer):
            low.ctx.aligned(buffer, count * dtype_of(tile_ir.dtype_name(buffer)).bits // 8)
    return tir.BufferStore(target.buffer, tir.BufferLoad(source.source, places[1]), places[0], span=loop.span)
