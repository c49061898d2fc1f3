"""Which thread touches which byte of shared memory: finds accesses that meet only in bytes of the same thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir

from tile_compiler.simt.terms import from_tir, names
from tilelang.ir import tile_ir
from tilelang.layout import placeholders
from tilelang.layout.evaluation import over_tile

NOBODY, SEVERAL = -1, -2
POINTS = 1 << 16  # accesses of one statement that are looked at; more count as unknown

Owners = npt.NDArray[np.int32]


def owners(
    index: Any, count: int, size: int, length: int, threads: Mapping[Any, int], loops: Mapping[Any, int]
) -> Owners | None:
    """For each of `length` bytes the thread that touches it, NOBODY or SEVERAL; None if that is not known.

    `index` is the first of `count` elements of `size` bytes, over the block's axes `threads` and inner `loops`, each
    variable with its extent, from 0. Conditions are not looked at: they only make the accesses fewer.
    """
    used = set(tile_ir.walk(index, ir.Var))
    inner = {v: n for v, n in loops.items() if v in used}
    extents = [*threads.values(), *inner.values()]
    if int(np.prod(extents)) * count > POINTS or len(extents) > 8:
        return None
    variables = dict(zip((*threads, *inner), placeholders(len(extents))))
    expr = from_tir(index, variables)
    if expr is None:
        return None
    shape = dict(zip(names(len(extents)), extents))
    first = over_tile(expr, shape).reshape(-1) * size
    number = np.zeros(tuple(extents), np.int32)
    pitch = 1
    for axis, extent in enumerate(threads.values()):
        number += pitch * np.arange(extent, dtype=np.int32).reshape(
            [-1 if d == axis else 1 for d in range(len(extents))]
        )
        pitch *= extent
    place = (first[:, None] + np.arange(count * size)).ravel()
    thread = np.repeat(number.reshape(-1), count * size)
    inside = (place >= 0) & (place < length)
    place, thread = place[inside], thread[inside]
    found = np.full(length, NOBODY, np.int32)
    found[place] = thread
    found[place[found[place] != thread]] = SEVERAL
    return found


def apart(a: Owners, b: Owners) -> bool:
    """Whether no byte is touched by one thread in `a` and by another one in `b`."""
    both = (a != NOBODY) & (b != NOBODY)
    return not bool((both & ((a != b) | (a == SEVERAL))).any())
