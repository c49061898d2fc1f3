"""A layout of shared memory without the bank conflicts that row-major order has for an access."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx as tir

from tile_compiler.simt.accesses import WideAccess
from tile_compiler.simt.distribution import Distribution
from tile_compiler.simt.terms import from_tir, names
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Layout, make_linear_layout, make_swizzled_layout, placeholders

WARP = 32
VECTOR_BYTES = 16


def less_conflicting(
    access: WideAccess, loop_vars: Sequence[Any], loop: Distribution, shape: tuple[int, ...]
) -> Layout | None:
    """The swizzled layout of a shared buffer of `shape`, if `access` in `loop` takes fewer turns with it than row-major.

    A swizzle moves chunks of 16 bytes inside a row, so that vectors stay whole. Looked at: the first step of the first
    warp, which stands for the others as all of them repeat its pattern elsewhere.
    """
    dtype = dtype_of(tile_ir.dtype_name(access.buffer))
    if len(shape) < 2 or dtype.bits < 8 or dtype.lanes > 1:
        return None
    swizzled = make_swizzled_layout(shape, dtype=str(dtype), allow_pad=False)
    lanes = _first_lanes(access, loop_vars, loop, shape)
    if swizzled.swizzle is None or lanes is None:
        return None
    axis = next((a for a, steps in enumerate(access.steps) if steps), None)
    width = 1 if axis is None else min(loop.vector_width(axis), access.widths[axis], VECTOR_BYTES * 8 // dtype.bits)
    turns = [layout.bank_conflicts(lanes, dtype.bits, vector=width) for layout in (make_linear_layout(shape), swizzled)]
    return swizzled if turns[1] < turns[0] else None


def _first_lanes(
    access: WideAccess, loop_vars: Sequence[Any], loop: Distribution, shape: tuple[int, ...]
) -> np.ndarray[Any, Any] | None:
    """The buffer's indices by lane, shape (lanes, rank); the same place in each version of a versioned buffer."""
    held = loop.held[:WARP, 0]
    points = dict(zip(names(len(loop.shape)), np.unravel_index(held[held >= 0], loop.shape)))
    variables = dict(zip(loop_vars, placeholders(len(loop_vars))))
    columns = []
    for index, size in zip(access.indices, shape):
        expr = from_tir(index, variables)
        if expr is None and any(isinstance(n, tir.Var) and n in variables for n in tile_ir.walk(tir.Evaluate(index))):
            return None
        values = 0 if expr is None else np.asarray(expr.evaluate(points))
        columns.append(np.broadcast_to(values, (int((held >= 0).sum()),)) % size)
    return np.stack(columns, axis=1) if math.prod(shape) and columns[0].size else None
