"""Which kernels, with which tiles, multiply groups."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tile_ops.gemm.tiles import ITEMSIZE, Tiles
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
}
#: Rows that a group has on average, from which on large tiles are taken: less, and most of a tile would be empty.
MANY = 64
#: Heights of a CPU's tiles, which computes all rows of one: the least that holds a group's rows on average.
CPU_HEIGHTS = (4, 8, 16, 32, 64, 128)


def plan(problem: GroupedProblem, target: Target) -> Plan:
    """A list of tiles made on the device, then one block for each. Tiles are large where groups have many rows."""
    average = -(-problem.tokens // max(1, problem.groups))
    size = _size(target, average)
    tiles = _tiles(target, size, problem.transpose_weights)
    kernels = {
        "schedule": _schedule(problem.sizes, tiles),
        "product": _product(problem.dtype, problem.out_dtype, problem.transpose_weights, tiles),
    }
    why = f"{size} tiles, {average} rows in a group on average"
    return Plan.of(kernels, why, "table: TILES in grouped_gemm/configs.py", block_m=tiles.block_m)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Half precision, on a CPU float32 too, weights stored either way."""
    dtypes = ("float16", "bfloat16", *(("float32",) if target.kind == "cpu" else ()))
    for size, transposed in product(_sizes(target), (False, True)):
        tiles = _tiles(target, size, transposed)
        for sizes in ("int32", "int64"):
            yield _schedule(sizes, tiles)
        for dtype in dtypes:
            yield _product(dtype, dtype, transposed, tiles)


def _sizes(target: Target) -> tuple[str, ...]:
    return tuple(f"{rows} rows" for rows in CPU_HEIGHTS) if target.kind == "cpu" else ("large", "small")


def _size(target: Target, average: int) -> str:
    if target.kind == "cpu":
        return f"{next((rows for rows in CPU_HEIGHTS if average <= rows), CPU_HEIGHTS[-1])} rows"
    return "large" if average >= MANY else "small"


def _tiles(target: Target, size: str, transposed: bool) -> Tiles:
    """On a CPU long pieces of the rows of weights that lie row by row, deep steps along transposed ones (cpu.md)."""
    if target.kind == "cpu":
        rows = int(size.split()[0])
        if transposed:
            width, step_bytes = (64, 2048) if rows < MANY else (128, 1024)
        else:
            width, step_bytes = (512, 512) if rows <= 16 else (256, 512)
        return Tiles(rows, width, step_bytes, 0, 128, 0)
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
