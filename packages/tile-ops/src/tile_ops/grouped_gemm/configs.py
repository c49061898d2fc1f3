"""Which kernels, with which tiles, multiply groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tile_ops.gemm.tiles import ITEMSIZE, Tiles
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
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


@dataclass(frozen=True)
class InPlace:
    """Tiles of a CPU's product that reads weights where they lie, for groups of up to `rows` rows on average (None: more);
    `copies` as the kernel has it."""

    rows: int | None
    block_m: int
    block_n: int
    block_k: int
    copies: str

    def tiles(self, itemsize: int) -> Tiles:
        return Tiles(self.block_m, self.block_n, self.block_k * itemsize, 0, 128, 0)


#: By instructions, type and whether weights are transposed. As calls on one thread, of the speed of torch's products one after
#: the other (by copied tiles): EPYC with AVX-512 512x1024x1024 of 8 experts float32 1.90 (1.46), T 1.97 (1.31), bfloat16 1.23
#: (0.99), T 1.23 (0.73); 64x512x2048 of 16 1.81 (1.13), T 2.70 (1.32), bfloat16 - (1.30), T 1.91 (0.57); 2048x512x512 of 4 2.15
#: (1.86), T 2.10 (1.83), bfloat16 1.04 (0.90), T 0.97 (0.89). Xeon with AMX, one run, float32 T 0.83 (0.67), 1.95 (1.05), 0.96
#: (0.84), row-major 2048x512x512 0.97 (0.84), 512x1024x1024 no better than 0.73; bfloat16 1.02 (0.78 to 1.09), T 1.07 (0.88);
#: 1.19 (0.91), T 1.38 (0.61); 0.92 (0.65), T 0.88 (0.62).
IN_PLACE: dict[tuple[str, str, bool], tuple[InPlace, ...]] = {
    ("avx512", "float32", False): (InPlace(8, 4, 64, 512, "rows"), InPlace(None, 32, 64, 256, "none")),
    ("avx512", "float32", True): (InPlace(4, 4, 64, 512, "rows"), InPlace(None, 8, 256, 512, "rows")),
    ("bf16", "bfloat16", False): (InPlace(128, 32, 64, 256, "none"), InPlace(None, 64, 128, 512, "none")),
    ("bf16", "bfloat16", True): (
        InPlace(4, 4, 64, 1024, "rows"),
        InPlace(128, 8, 256, 1024, "rows"),
        InPlace(None, 64, 128, 512, "none"),
    ),
    ("amx", "float32", False): (InPlace(None, 32, 64, 256, "none"),),
    ("amx", "float32", True): (InPlace(None, 8, 256, 512, "rows"),),
    ("amx", "bfloat16", False): (InPlace(16, 16, 64, 1024, "none"), InPlace(None, 128, 128, 1024, "none")),
    ("amx", "bfloat16", True): (InPlace(16, 16, 64, 1024, "none"), InPlace(None, 128, 128, 1024, "none")),
}
#: Rows on average from which on they are better, where it is not 1.
LEAST = {("bf16", "bfloat16", False): 9, ("amx", "float32", False): 256}


def plan(problem: GroupedProblem, target: Target) -> Plan:
    """A list of tiles made on the device, then one block for each. Tiles are large where groups have many rows."""
    average = -(-problem.tokens // max(1, problem.groups))
    chosen = _in_place(target, problem.dtype, average, problem.transpose_weights)
    if chosen is None:
        size, source = _size(target, average), "table: TILES in grouped_gemm/configs.py"
        tiles = _tiles(target, size, problem.transpose_weights)
    else:
        size, source = f"{chosen.block_m} rows", "measured: IN_PLACE in grouped_gemm/configs.py"
        tiles = chosen.tiles(ITEMSIZE[problem.dtype])
    kernels = {
        "schedule": _schedule(problem.sizes, tiles),
        "product": _product(problem.dtype, problem.out_dtype, problem.transpose_weights, tiles, chosen),
    }
    why = f"{size} tiles, {average} rows in a group on average"
    return Plan.of(kernels, why, source, block_m=tiles.block_m)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Half precision, on a CPU float32 too, weights stored either way."""
    dtypes = ("float16", "bfloat16", *(("float32",) if target.kind == "cpu" else ()))
    found: dict[KernelSpec, None] = {}
    for dtype, average, transposed in product(dtypes, _averages(target), (False, True)):
        for sizes in ("int32", "int64"):
            problem = GroupedProblem(average, 1, 1, 1, dtype, dtype, sizes, transposed)
            found |= dict.fromkeys(dict(plan(problem, target).kernels).values())
    return iter(found)


def _averages(target: Target) -> tuple[int, ...]:
    """Numbers of rows that meet every answer."""
    if target.kind != "cpu":
        return 1, MANY
    limits = {tile.rows for tiles in IN_PLACE.values() for tile in tiles if tile.rows is not None}
    return tuple(sorted({*CPU_HEIGHTS, *limits, *(rows + 1 for rows in limits), *LEAST.values()}))


def _in_place(target: Target, dtype: str, average: int, transposed: bool) -> InPlace | None:
    """None where tiles are copied."""
    if target.kind != "cpu" or target.arch == "x86-64-v3":
        return None
    level = "amx" if target.has("amx") else "bf16" if dtype == "bfloat16" and target.has("bf16") else "avx512"
    key = level, dtype, transposed
    if average < LEAST.get(key, 1):
        return None
    return next((tile for tile in IN_PLACE.get(key, ()) if tile.rows is None or average <= tile.rows), None)


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


def _product(dtype: str, out_dtype: str, transposed: bool, tiles: Tiles, in_place: InPlace | None) -> KernelSpec:
    more: dict[str, Scalar] = {} if in_place is None else {"copies": in_place.copies}
    return KernelSpec.of(
        "grouped_gemm",
        "product",
        None,
        dtype=dtype,
        out_dtype=out_dtype,
        transpose_weights=transposed,
        **tiles.arguments(ITEMSIZE[dtype]),
        **more,
    )
