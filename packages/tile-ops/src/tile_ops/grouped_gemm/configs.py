"""Which kernels, with which tiles, multiply groups."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tile_ops.gemm.configs import ITEMSIZE, Tiles
from tile_ops.kernel import KernelSpec, Target
from tile_ops.operator import Plan

from .problem import GroupedProblem

#: By architecture (or kind) and class, as in gemm/configs.py; rules.
TILES = {
    ("sm_90a", "large"): Tiles(128, 256, 128, 4, 256, 16),
    ("sm_90a", "small"): Tiles(64, 128, 128, 6, 128, 0),
    ("cuda", "large"): Tiles(128, 128, 64, 3, 128, 8),
    ("cuda", "small"): Tiles(16, 128, 128, 4, 128, 0),
    ("hip", "large"): Tiles(128, 128, 64, 2, 256, 8),
    ("hip", "small"): Tiles(16, 128, 64, 2, 256, 0),
    ("cpu", "large"): Tiles(64, 64, 1024, 0, 128, 0),
    ("cpu", "small"): Tiles(16, 64, 1024, 0, 128, 0),
}
#: Rows that a group has on average, from which on large tiles are taken: less, and most of a tile would be empty.
MANY = 64


def plan(problem: GroupedProblem, target: Target) -> Plan:
    """A list of tiles made on the device, then one block for each. Tiles are large where groups have many rows."""
    average = problem.tokens // max(1, problem.groups)
    size = "large" if average >= MANY else "small"
    tiles = _tiles(target, size)
    kernels = {
        "schedule": _schedule(problem.sizes, tiles),
        "product": _product(problem.dtype, problem.out_dtype, problem.transpose_weights, tiles),
    }
    why = f"{size} tiles, {average} rows in a group on average"
    return Plan.of(kernels, why, "table: TILES in grouped_gemm/configs.py", block_m=tiles.block_m)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Half precision, weights stored either way."""
    for size in ("large", "small"):
        tiles = _tiles(target, size)
        for sizes in ("int32", "int64"):
            yield _schedule(sizes, tiles)
        for dtype, transposed in product(("float16", "bfloat16"), (False, True)):
            yield _product(dtype, dtype, transposed, tiles)


def _tiles(target: Target, size: str) -> Tiles:
    return TILES.get((target.arch, size)) or TILES[target.kind, size]


def _schedule(sizes: str, tiles: Tiles) -> KernelSpec:
    return KernelSpec.of("grouped_gemm", "schedule", dtype=sizes, block_m=tiles.block_m)


def _product(dtype: str, out_dtype: str, transposed: bool, tiles: Tiles) -> KernelSpec:
    return KernelSpec.of(
        "grouped_gemm",
        "product",
        None,
        dtype=dtype,
        out_dtype=out_dtype,
        transpose_weights=transposed,
        **tiles.arguments(ITEMSIZE[dtype]),
    )
