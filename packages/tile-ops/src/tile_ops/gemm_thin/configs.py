"""Which products are thin, and the kernels for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from tile_ops.gemm.problem import GemmProblem
from tile_ops.gemm.tiles import ITEMSIZE
from tile_ops.kernel import KernelSpec, Target

FAMILY = "gemm_thin"
FLOATS = ("float16", "bfloat16", "float32")
#: Rows that kernels are written for; the least that holds all is taken, in float32 of as many as FEW_ROWS of gemm/few_rows.py
#: says: matrix instructions take three products of tf32 there. H200, us, so, by these, torch: 5x1979x16207 (m, n, k) 241, 102,
#: 81; 8x4096x4096 65, 41, 42; 6x1001x3001 26, 15, 12; but in bfloat16 5x1979x16207 74, 102, 60 (30 November 2026).
ROWS, ROWS_OF_FLOAT32 = (1, 2, 4), (1, 2, 4, 8)
#: Rows of A, and elements along k, that a block reads at once for one column: the first for up to so many elements along k.
COLUMN_TILES = {128: (64, 64), 1024: (16, 256), 1 << 31: (2, 2048)}
#: A tile of B for few rows, how many blocks a chip should have at least, steps of a block, at least, and parts that are added in
#: the time of a step: one row of 8991 elements by 32 columns in 141 parts of 2 steps 24 us on an H200, by cuBLAS 10.
BLOCK_N, BLOCK_K, BLOCKS, LEAST_STEPS, ADDED = 64, 32, 528, 2, 5


def is_column(problem: GemmProblem, target: Target) -> bool:
    """Whether a GPU multiplies rows of A by one column."""
    return _plain(problem, target) and problem.n == 1 and problem.transpose_b and not problem.transpose_a


def is_row(problem: GemmProblem, target: Target) -> bool:
    """Whether a GPU multiplies few rows by a row-major B, where rows of one of them begin anywhere, so that tiles were filled by
    single elements, or no matrix instruction takes them."""
    if not _plain(problem, target) or problem.batch != 1 or problem.transpose_a or problem.transpose_b:
        return False
    whole = all(extent * ITEMSIZE[problem.dtype] % 16 == 0 for extent in (problem.n, problem.k))
    most = (ROWS if problem.tf32 else _rows(problem.dtype))[-1]
    return problem.m <= most and (not whole or problem.dtype == "float32")


def _rows(dtype: str) -> tuple[int, ...]:
    return ROWS_OF_FLOAT32 if dtype == "float32" else ROWS


def _plain(problem: GemmProblem, target: Target) -> bool:
    return target.kind != "cpu" and problem.dtype in FLOATS and not (problem.scales or problem.gradient)


def column(problem: GemmProblem, bias: str) -> KernelSpec:
    """The kernel for one column."""
    block_m, block_k = next(tile for most, tile in COLUMN_TILES.items() if problem.k <= most)
    return KernelSpec.of(
        FAMILY,
        "column",
        None,
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        bias=bias,
        batch_a=problem.batch_a,
        batch_b=problem.batch_b,
        block_m=block_m,
        block_k=block_k,
        threads=128,
    )


def row(problem: GemmProblem) -> KernelSpec:
    """The kernel for parts of few rows."""
    rows = next(rows for rows in _rows(problem.dtype) if problem.m <= rows)
    tile = {"block_n": BLOCK_N, "block_k": BLOCK_K, "threads": 128}
    return KernelSpec.of(FAMILY, "row_parts", None, dtype=problem.dtype, rows=rows, **tile)


def parts(problem: GemmProblem) -> dict[str, int]:
    """How many parts along k, and the steps of each: numbers of B alone, so that a row has the same sums beside others."""
    steps, blocks = max(1, -(-problem.k // BLOCK_K)), -(-problem.n // BLOCK_N)
    each = max(LEAST_STEPS, -(-steps * blocks // BLOCKS), math.ceil(math.sqrt(steps / ADDED)))
    return {"splits": -(-steps // each), "steps": each}


def shipped(target: Target) -> Iterator[KernelSpec]:
    """The kernels of `shipped_calls`."""
    for problem in shipped_calls(target):
        yield column(problem, problem.out_dtype) if is_column(problem, target) else row(problem)


def shipped_calls(target: Target) -> Iterator[GemmProblem]:
    """What together meets every answer for one matrix, or as many on both sides."""
    if target.kind == "cpu":
        return
    for dtype in FLOATS:
        for rows in _rows(dtype):
            yield GemmProblem(1, rows, 3, 1, dtype, dtype, False, False, "each", "each", None, None, False)
        for k, out_dtype in product(COLUMN_TILES, dict.fromkeys((dtype, "float32"))):
            yield GemmProblem(1, 1, 1, k, dtype, out_dtype, False, True, "each", "each", None, None, False)
