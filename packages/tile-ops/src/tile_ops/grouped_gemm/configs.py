"""Which kernels, with which tiles, multiply groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tile_ops.gemm import configs as gemm
from tile_ops.gemm.problem import GemmProblem
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


#: Rows and multiplications that a group has on average on a CPU, from which on each is a product as `matmul` makes it, by the
#: kernels for so many rows. As calls on one thread, of the speed of torch's products one after the other (by the best list of
#: tiles): EPYC with AVX-512, 512x1024x1024 of 8 experts, and with sizes at random, bfloat16 1.20, 1.18 (1.05, 1.08), T 1.17, 1.11
#: (1.11, 1.15), float32 2.16, 2.12 (2.03, 1.85), T 1.84, 1.88 (1.90, 1.91); 2048x512x512 of 4 bfloat16 1.00, 1.06 (0.94, 1.00),
#: float32 2.16, 2.19 (2.20, 2.19), T 2.17, 2.14 (2.11, 2.01). Xeon with AMX 1.05, 1.07 (0.89, 0.86), T 1.10, 1.01 (0.83, 0.79),
#: float32 0.95, 1.20 (0.85, 0.71), T 1.03, 0.97 (0.78, 0.72); 0.91 (0.96, 0.88), T 0.98, 0.94 (0.99, 0.92), float32 T 1.03
#: (0.87). Of less a list is better, as a group costs 10 us: 320x256x256 of 8 1.49 (2.32), 320x64x64 0.56 (2.23); with 4 rows
#: float32 T 2.16, Xeon 1.11 (3.20, 2.23), bfloat16 T 1.49, 1.18 (2.31, 1.54). Of 2^24 row-major weights alone are better so:
#: 4096x512x512 of 64 float32 2.27 (1.99), T 2.03 (2.19), bfloat16 1.41 (1.17), T 1.18 (1.28), 512x512x512 of 8 2.34 (2.09), T
#: 2.00 (2.17), 1.13 (1.14), T 1.05 (1.26); Xeon 0.77 (0.90), T 1.13 (1.06), 0.88 (0.93), T 1.05 (1.11).
EACH, WORK, WORK_BY_ROWS = 33, 2**25, 2**24
#: More rows than any group has.
MOST = 2**31


@dataclass(frozen=True)
class InPlace:
    """Tiles of a CPU's product that reads weights where they lie, for groups of so many `rows` on average; `copies` as the
    kernel has it."""

    rows: range
    block_m: int
    block_n: int
    block_k: int
    copies: str

    def tiles(self, itemsize: int) -> Tiles:
        return Tiles(self.block_m, self.block_n, self.block_k * itemsize, 0, 128, 0)


#: By instructions, type and whether weights are transposed. As above, by copied tiles in brackets: EPYC with AVX-512 64x512x2048
#: of 16 experts float32 1.81 (1.13), T 2.70 (1.32), bfloat16 - (1.30), T 1.91 (0.57). Xeon with AMX float32 T 1.95 (1.05),
#: bfloat16 1.19 (0.91), T 1.38 (0.61). By long pieces of few rows of row-major weights (by what was taken before): EPYC 128 rows
#: by 1024 x 2048 of 16 float32 1.79 (1.39), bfloat16 1.11 (1.01), 64 by 1024 x 1024 bfloat16 1.37 (1.02), 96 float32 2.23 (1.59),
#: 160 2.00 (1.35), 320x256x256 of 8 2.22 (1.84); Xeon float32 64x512x2048 0.91 to 1.35 (0.87 to 0.97), 96x1024x1024 1.58, 1.67
#: (0.96, 1.15), 160 1.23 to 1.37 (0.93, 1.00). Xeon bfloat16 by as many rows as a group has 384x1024x1024 1.14, T 1.23 (0.83,
#: 0.83), 512x1024x1024 1.08, T 1.13 (0.85, 0.85).
IN_PLACE: dict[tuple[str, str, bool], tuple[InPlace, ...]] = {
    ("avx512", "float32", False): (
        InPlace(range(1, 5), 4, 64, 512, "rows"),
        InPlace(range(5, 9), 8, 256, 128, "none"),
        InPlace(range(9, MOST), 16, 256, 128, "none"),
    ),
    ("avx512", "float32", True): (
        InPlace(range(1, 5), 4, 64, 512, "rows"),
        InPlace(range(5, MOST), 8, 256, 512, "rows"),
    ),
    ("bf16", "bfloat16", False): (
        InPlace(range(1, 9), 8, 512, 64, "rows"),
        InPlace(range(9, 129), 32, 64, 256, "none"),
        InPlace(range(129, MOST), 64, 128, 512, "none"),
    ),
    ("bf16", "bfloat16", True): (
        InPlace(range(1, 5), 4, 64, 1024, "rows"),
        InPlace(range(5, 129), 8, 256, 1024, "rows"),
        InPlace(range(129, MOST), 64, 128, 512, "none"),
    ),
    ("amx", "float32", False): (
        InPlace(range(1, 9), 8, 1024, 32, "none"),
        InPlace(range(9, 256), 16, 512, 64, "rows"),
        InPlace(range(256, MOST), 32, 64, 256, "none"),
    ),
    ("amx", "float32", True): (InPlace(range(1, MOST), 8, 256, 512, "rows"),),
    ("amx", "bfloat16", False): (
        InPlace(range(1, 17), 16, 512, 256, "none"),
        InPlace(range(17, 25), 32, 128, 1024, "none"),
        InPlace(range(25, 57), 64, 128, 1024, "none"),
        InPlace(range(57, MOST), 128, 128, 1024, "none"),
    ),
    ("amx", "bfloat16", True): (
        InPlace(range(1, 17), 16, 64, 1024, "none"),
        InPlace(range(17, 25), 32, 128, 1024, "none"),
        InPlace(range(25, 57), 64, 128, 1024, "none"),
        InPlace(range(57, MOST), 128, 128, 1024, "none"),
    ),
}


def plan(problem: GroupedProblem, target: Target) -> Plan:
    """A list of tiles made on the device, then one block for each; tiles are large where groups have many rows. On a CPU groups
    with much to do are products of their own."""
    average = problem.average
    if target.kind == "cpu" and average >= EACH and average * problem.n * problem.k >= _work(problem, target):
        product = gemm.plan(of_one(problem), target)
        return replace(product, why=f"each group by itself, {average} rows on average: {product.why}")
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


def _work(problem: GroupedProblem, target: Target) -> int:
    """Less by row-major weights with AVX-512 and without tile registers."""
    by_rows = not (problem.transpose_weights or target.has("amx") or target.arch == "x86-64-v3")
    return WORK_BY_ROWS if by_rows else WORK


def of_one(problem: GroupedProblem) -> GemmProblem:
    """The product of a group of half as many rows again as there are on average: most groups are one block of rows then. EPYC,
    of torch's speed, sizes at random (by the average): 512x1024x1024 of 8 bfloat16 1.48 (1.36), T 1.24 (1.15), float32 2.31
    (2.28), T 1.99 (1.83), 1024x1024x1024 bfloat16 1.34 (1.28); by twice as many 1.48, T 1.16, 2.31, T 1.97, 1.33."""
    return GemmProblem(
        batch=1,
        m=3 * problem.average // 2,
        n=problem.n,
        k=problem.k,
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        transpose_a=False,
        transpose_b=problem.transpose_weights,
        batch_a="each",
        batch_b="each",
        bias=None,
        activation=None,
        tf32=False,
        threads=problem.threads,
    )


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
    """Numbers of rows that meet every answer by a list of tiles."""
    if target.kind != "cpu":
        return 1, MANY
    limits = {tile.rows[0] for tiles in IN_PLACE.values() for tile in tiles}
    return tuple(sorted({*CPU_HEIGHTS, CPU_HEIGHTS[-1] + 1, *limits, *(rows - 1 for rows in limits if rows > 1)}))


def _in_place(target: Target, dtype: str, average: int, transposed: bool) -> InPlace | None:
    """None where tiles are copied."""
    if target.kind != "cpu" or target.arch == "x86-64-v3":
        return None
    level = "amx" if target.has("amx") else "bf16" if dtype == "bfloat16" and target.has("bf16") else "avx512"
    return next((tile for tile in IN_PLACE.get((level, dtype, transposed), ()) if average in tile.rows), None)


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
