"""Values of sizes and of block coordinates, among which are those at which what they decide changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx as tir

from tilelang.ir import tile_ir

MANY_TRIPS = 200
COMBINATIONS = 20_000  # of sizes and coordinates that are looked at for what they decide
LARGE = 1 << 17  # where nothing says how large a size is; blocks have tiles of 8192 elements, rarely of more
LARGEST = 1 << 30  # at which it may change what a size decides

Integers = npt.NDArray[np.int64]


def combinations(choices: list[list[int]]) -> np.ndarray[Any, Any]:
    """A value of each list in every row: all combinations, or as many as `COMBINATIONS` drawn from them."""
    count = math.prod(map(len, choices))
    if count <= COMBINATIONS:
        return np.stack(np.meshgrid(*choices, indexing="ij"), axis=-1).reshape(count, len(choices))
    drawn = np.random.default_rng(0)  # always the same ones
    return np.stack([drawn.choice(np.asarray(c, np.int64), COMBINATIONS) for c in choices], axis=1)


def sizes_of(kernel: tile_ir.Kernel, trips: int, multiple: int) -> list[int]:
    """Multiples of `multiple`: those next to whole numbers of the kernel's constants, and the first ones."""
    constants = {int(n.value) for n in tile_ir.walk(kernel.body, tir.IntImm) if 1 < n.value <= 512}
    widest = sorted(c for c in constants if c & (c - 1) == 0)[-4:] or [1]
    found = {0, 1, MANY_TRIPS, *(c * t + e for c in widest for t in range(trips + 1) for e in (0, 1))}
    return sorted({next_multiple(size, multiple) for size in found} | {t * multiple for t in range(trips + 1)})


def next_multiple(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def coordinates(extent: Any, trips: int) -> list[int]:
    size = tile_ir.static(extent)
    if size is None:
        return [*range(trips + 1), MANY_TRIPS - 1]
    return sorted({*range(min(size, trips + 1)), size - 1} - {-1})


def turning_points(levels: Callable[[Integers], Integers], multiple: int) -> list[int]:
    """The multiples on both sides of where a level changes, as far as it does between two powers of two.

    `levels`: for each of the multiples, a row of small integers. A trip count passes several of them; where it reaches each is
    found by bisection.
    """
    ladder = np.asarray([0, *(1 << n for n in range(31) if multiple << n <= LARGEST)])
    on_ladder = levels(ladder * multiple)
    low, high = on_ladder[:-1], on_ladder[1:]
    targets = [
        (step, column, level)
        for step, column in np.argwhere(low != high)
        for level in range(
            min(low[step, column], high[step, column]) + 1, max(low[step, column], high[step, column]) + 1
        )
    ]
    if not targets:
        return []
    steps, columns, level = np.asarray(targets).T
    below, above = ladder[steps], ladder[steps + 1]
    reached = low[steps, columns] >= level
    each = np.arange(len(targets))
    while (above - below > 1).any():
        middle = (below + above) // 2
        same = (levels(middle * multiple)[each, columns] >= level) == reached
        below, above = np.where(same, middle, below), np.where(same, above, middle)
    return sorted({int(found) * multiple for found in (*below, *above)})
