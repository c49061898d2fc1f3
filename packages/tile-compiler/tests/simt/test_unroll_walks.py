"""Loops inside T.Parallel that walk over a fragment: the tile stays in registers, the answer is the interpreter's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.unroll_walks import LONGEST, unroll_walks
from tilelang.ir import tile_ir


def row_sums(N: int, K: int, rows: int, columns: int, group: int, threads: int) -> Any:
    """Y[n] = sum of W[n, k] * x[k]: each thread adds up groups of neighbours of its own."""

    @T.prim_func
    def main(W: T.Tensor((N, K), "float16"), x: T.Tensor((K,), "float16"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, rows), threads=threads) as b:
            w = T.alloc_fragment((rows, columns), "float16")
            v = T.alloc_fragment((columns,), "float16")
            sums = T.alloc_fragment((rows, columns // group), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.clear(sums)
            for k in T.serial(T.ceildiv(K, columns)):
                T.copy(W[b * rows, k * columns], w)
                T.copy(x[k * columns], v)
                for i, j in T.Parallel(rows, columns // group):
                    for u in T.serial(group):
                        place = j * group + u
                        sums[i, j] += T.cast(w[i, place], "float32") * v[place]
            T.reduce_sum(sums, total, dim=1)
            T.copy(total, Y[b * rows])

    return main


def loops_in_nests(func: Any) -> list[Any]:
    nests = [n for n in map(tile_ir.as_parallel, tile_ir.walk(func.body)) if n is not None]
    return [n for nest in nests for n in tile_ir.walk(nest.body) if isinstance(n, tir.For)]


@pytest.mark.parametrize(
    ("N", "K", "rows", "columns", "group", "threads"),
    [
        (4, 512, 2, 256, 8, 32),
        (3, 320, 2, 128, 4, 32),  # neither rows nor columns divide
        (3, 77, 1, 256, 8, 32),  # no vectors in memory: W's rows are at odd addresses
    ],
)
def test_a_walk_over_a_fragment_needs_no_shared_memory(
    proved: Any, rng: np.random.Generator, N: int, K: int, rows: int, columns: int, group: int, threads: int
) -> None:
    W, x = rng.standard_normal((N, K)).astype(np.float16), rng.standard_normal(K).astype(np.float16)
    func = row_sums(N, K, rows, columns, group, threads)
    assert len(loops_in_nests(func)) == 1
    assert not loops_in_nests(unroll_walks(func, SimtContext()))
    _, ctx = proved(func, [W, x, np.zeros(N, np.float32)], 1e-3, 1e-3)
    assert not [n for n in ctx.report.notes if "through shared memory" in str(n)]


def test_a_long_walk_and_one_that_ends_early_stay_loops(check: Any, rng: np.random.Generator) -> None:
    count = LONGEST + 1

    @T.prim_func
    def main(A: T.Tensor((32, count), "float32"), B: T.Tensor((32,), "float32"), C: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_fragment((32, count), "float32")
            T.copy(A, a)
            for i in T.Parallel(32):
                B[i] = 0
                C[i] = 0
                for u in T.serial(count):
                    B[i] += a[i, u]
                for u in T.serial(4):
                    if u == 2:
                        break
                    C[i] += a[i, u]

    assert len(loops_in_nests(unroll_walks(main, SimtContext()))) == 2
    A = rng.standard_normal((32, count)).astype(np.float32)
    check(main, [A, np.zeros(32, np.float32), np.zeros(32, np.float32)])


def test_a_loop_that_touches_no_fragment_by_its_variable_stays(check: Any, rng: np.random.Generator) -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_fragment((64,), "float32")
            T.copy(A, a)
            for i in T.Parallel(64):
                for _u in T.serial(3):
                    a[i] = a[i] * 2
            T.copy(a, B)

    assert len(loops_in_nests(unroll_walks(main, SimtContext()))) == 1
    check(main, [rng.standard_normal(64).astype(np.float32), np.zeros(64, np.float32)])
