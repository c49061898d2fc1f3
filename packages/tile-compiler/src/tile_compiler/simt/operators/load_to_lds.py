"""Copies from global memory straight to LDS (gfx942): four bytes a lane, the lanes of a wave side by side.

"AMD Instinct MI300 Instruction Set Architecture" (CDNA3), "Memory Buffer Load to LDS": the address in LDS is one for the
wave (M0), to which the hardware adds 4 bytes a lane; each lane has an address of its own in global memory. So the order
of a tile's places in LDS says who copies what, and a swizzle is applied to the addresses in global memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.ranges import Ranges
from tile_compiler.rewrite import substitute
from tile_compiler.simt.accesses import collect
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.copy import copy_nest
from tile_compiler.simt.operators.nests import address, int32, is_global, is_whole, run, static_shape, under, unrolled
from tile_compiler.simt.operators.parallel import NestRule
from tile_compiler.simt.terms import is_formula, names, to_tir
from tilelang import ops
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Layout

BYTES = 4  # that one lane moves


def why_not(copy: ops.Copy, kernel: tile_ir.Kernel, ranges: Ranges, ctx: SimtContext) -> str:
    """What keeps a copy into a shared tile from going straight to LDS, layouts aside; empty if nothing does."""
    tile, origin = copy.dst.source, copy.src.source
    kind, threads = dtype_of(tile_ir.dtype_name(tile)), int(kernel.num_threads or 1)
    if tile_ir.dtype_name(origin) != tile_ir.dtype_name(tile):
        return "elements are converted"
    if kind.bits * kind.lanes not in (8, 16, 32):
        return f"{kind} does not fill words of {BYTES} bytes"
    if not is_whole(copy.dst):
        return f"it fills a part of {tile.name}"
    words = math.prod(static_shape(tile) or (0,)) * kind.bits // 32
    if words % ctx.arch.warp or threads % ctx.arch.warp or len(kernel.threads) > 1:
        return f"{words} words by {threads} threads are no whole waves"
    if not ranges.inside(copy.src):
        return f"it may reach past the end of {origin.name}, where a tile holds zeros"
    nest = tile_ir.as_parallel(copy_nest(copy.src, copy.dst, None))
    assert nest is not None
    widest = max((max(a.widths) for a in collect(nest, ranges).wide if is_global(a.buffer)), default=1)
    if widest * kind.bits < 8 * BYTES:
        return f"{origin.name} is not known to be aligned to {BYTES} bytes"
    return ""


def straight_to_lds(rule: NestRule, low: Lowering) -> Any | str:
    """The copy of `rule` in the order of the tile's places in LDS, or why its layout does not allow that.

    before:     for i, j in T.parallel(64, 32): s[v, i, j] = A[i, k + j]
    after:      for c in T.unroll(8):   p = (c * 128 + tx) * 2;  i, j = the element at place p of a version
                    tl::cp_async<4>(s[v, i, j], A[i, k + j], valid=True, v * 2048 + p)

    Its last argument is the place, for `flatten_shared`; `issue_direct_loads` makes it the instruction.
    """
    statement = tile_ir.statements(rule.nest.body)[0]
    buffer, source = statement.buffer, statement.value
    layout, shape = low.layout(buffer), static_shape(buffer) or ()
    assert isinstance(layout, Layout)
    variables = [i if isinstance(i, ir.Var) and i in rule.nest.loop_vars else None for i in statement.indices]
    axes = [d for d, var in enumerate(variables) if var is not None]
    count = math.prod(rule.shape)
    if len(axes) != len(rule.nest.loop_vars) or math.prod(shape[min(axes) :]) != count:
        return f"the tile is no whole version of {buffer.name}"
    places = layout.offsets.reshape(-1, count) - np.arange(layout.offsets.size // count)[:, None] * count
    if (places != places[0]).any() or not np.array_equal(np.sort(places[0]), np.arange(count)):
        return f"the layout of {buffer.name} has gaps"
    per_word = 8 * BYTES // dtype_of(tile_ir.dtype_name(buffer)).bits
    inverse = layout.inverse()
    if layout.vector_width(-1, per_word) < per_word or len(inverse.shape) > 1:
        return f"the layout of {buffer.name} takes words apart"
    if not all(is_formula(e) for e in inverse.index):
        return f"the layout of {buffer.name} has no formula"
    for var, extent in zip(rule.nest.loop_vars, rule.shape):
        low.ranges.iterate(var, 0, int32(extent))
    if low.ranges.outside(source.source, source.indices) or low.ranges.outside(buffer, statement.indices):
        return f"it may reach past the end of {source.source.name}"
    version: Any = int32(0)
    for index, size in zip(statement.indices[: min(axes)], shape):
        version = version * size + index
    words = count // per_word
    low.ctx.aligned(source.source, BYTES)
    low.ctx.direct_loads[buffer] = words // low.threads

    def step(c: Any) -> Any:
        if isinstance(c, ir.Var):
            low.ranges.iterate(c, int32(0), int32(-(-words // low.threads)))
        number = low.simplify(c * low.threads + low.tx)
        place = low.simplify(number * per_word)
        element = [low.simplify(to_tir(e, dict(zip(names(1), (place,))))) for e in inverse.index]
        values = {var: element[d] for d, var in enumerate(variables) if var is not None}
        values = {v: e if str(e.ty) == str(v.ty) else tir.Cast(str(v.ty), e) for v, e in values.items()}
        target = address(buffer, *(substitute(i, values) for i in statement.indices))
        origin = address(source.source, *(low.simplify(substitute(i, values)) for i in source.indices))
        where = low.simplify(version * count + place)
        started = run(f"tl::cp_async<{BYTES}>", target, origin, tir.const(True, "bool"), where, span=low.span)
        return under([number < words] if words % low.threads else [], started)

    return unrolled("c", -(-words // low.threads), step, low.span)
