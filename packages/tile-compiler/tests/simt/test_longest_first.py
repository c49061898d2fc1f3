"""Blocks of unequal work run from the longest to the shortest, and compute what they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import tirx as tir
from tvm.sym import Analyzer

import tilelang
import tilelang.language as T
from tilelang.ir import tile_ir

ROWS, WIDTH = 6, 32
n = T.dynamic("n")


def sums(count: Callable[[Any, Any], Any], hint: Callable[[], None] | None = None) -> Any:
    """Row b of C is the sum of the first count(b, n) rows of A."""

    @T.prim_func
    def main(A: T.Tensor((n, WIDTH), "float32"), C: T.Tensor((2, ROWS, WIDTH), "float32")):
        with T.Kernel(ROWS, 2, threads=WIDTH) as (bx, by):
            if hint is not None:
                hint()
            s = T.alloc_shared((1, WIDTH), "float32")
            total = T.alloc_fragment((WIDTH,), "float32")
            T.clear(total)
            for k in T.Pipelined(count(bx, n), num_stages=2):
                T.copy(A[k, 0], s)
                for i in T.Parallel(WIDTH):
                    total[i] = total[i] + s[0, i]
            T.copy(total, C[by, bx, :])

    return main


def order(trace: Any) -> list[int]:
    """The user's number along x of the blocks in the order in which they run."""
    (kernel,) = tile_ir.kernels(trace.steps[-1].after)
    (number, extent), *_ = kernel.grid
    binds = [s for s in tile_ir.statements(kernel.body) if isinstance(s, tir.Bind) and str(s.var.name) == "bx"]
    if not binds:
        return list(range(int(extent)))
    values = [tile_ir.substitute(binds[0].value, {number: tir.const(i, "int32")}) for i in range(int(extent))]
    return [int(Analyzer().simplify(v)) for v in values]


GROWING = {
    "triangle": lambda b, size: b + 1,
    "steps of two": lambda b, size: T.ceildiv((b + 1) * 3, 2),
    "up to the end": lambda b, size: T.min(b + 1, size),
}
OTHERS = {
    "equal": lambda b, size: size,
    "falling": lambda b, size: ROWS - b,
    "up and down": lambda b, size: T.min(b + 1, ROWS - b),
}


@pytest.mark.parametrize("name", GROWING)
def test_growing_work_runs_backwards(rng: Any, proved: Any, name: str) -> None:
    args = [rng.standard_normal((9, WIDTH)).astype("float32"), np.zeros((2, ROWS, WIDTH), "float32")]
    trace, ctx = proved(sums(GROWING[name]), args, passes=False)
    assert order(trace) == list(reversed(range(ROWS)))
    assert any("the longest begin first" in text for _, text in ctx.report.notes)


def test_growing_work_runs_backwards_where_tma_brings_the_rows(rng: Any) -> None:
    a, c = rng.standard_normal((9, WIDTH)).astype("float32"), np.zeros((2, ROWS, WIDTH), "float32")
    kernel = tilelang.compile(sums(GROWING["triangle"]), target="cuda -arch=sm_90a", execution="emulate")
    kernel(a, c)
    np.testing.assert_allclose(c, np.broadcast_to(np.cumsum(a[:ROWS].astype("float64"), axis=0), c.shape), rtol=1e-5)
    assert any("the longest begin first" in str(note) for note in kernel.report()["notes"])


@pytest.mark.parametrize("name", OTHERS)
def test_other_work_runs_in_order(lower: Any, name: str) -> None:
    trace, _ = lower(sums(OTHERS[name]))
    assert order(trace) == list(range(ROWS))


def test_an_order_that_the_user_gave_stays(lower: Any) -> None:
    before, _ = lower(sums(GROWING["triangle"], lambda: T.use_swizzle(2)))
    (kernel,) = tile_ir.kernels(before.steps[-1].after)
    assert {str(v.name) for v, _ in kernel.grid} == {"block_x", "block_y"}


def test_blocks_that_may_wait_for_those_before_them_keep_their_order(lower: Any) -> None:
    @T.prim_func
    def chained(A: T.Tensor((ROWS, WIDTH), "float32"), F: T.Tensor((ROWS,), "int32"), C: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(ROWS, threads=WIDTH) as bx:
            while F[bx] > 0:
                T.evaluate(0)
            total = T.alloc_fragment((WIDTH,), "float32")
            T.clear(total)
            for k in T.serial(bx + 1):
                for i in T.Parallel(WIDTH):
                    total[i] = total[i] + A[k, i]
            T.copy(total, C)

    trace, _ = lower(chained)
    assert order(trace) == list(range(ROWS))
