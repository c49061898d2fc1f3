"""`T.prefetch` changes no result on any way to run a kernel; CPUs fetch the lines, others say that they do not."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.compile import lower
from tilelang.interpreter import run
from tilelang.target import Target, parse

ROWS, COLUMNS = 8, 40


def sums():
    """B[i] = the sum of row i of A, the rows after the next one fetched meanwhile: the last of them lie outside of A."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), B: T.Tensor((m,), "float32")):
        with T.Kernel(T.ceildiv(m, ROWS), threads=32) as block:
            tile = T.alloc_fragment((1, COLUMNS), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.prefetch(A[block * ROWS, 0])
            for i in T.serial(ROWS):
                row = block * ROWS + i
                T.prefetch(A[row + 2 : row + 4, 3:COLUMNS])
                T.copy(A[row, 0], tile)
                T.reduce_sum(tile, total, dim=1)
                if row < m:
                    B[row] = total[0]

    return main


@pytest.mark.parametrize("way", ["interpreter", "cpu", "cuda -arch=sm_90a", "hip -mcpu=gfx942"])
@pytest.mark.parametrize(("m", "n"), [(24, 40), (13, 40), (1, 7), (0, 40)])
def test_results_are_the_same(way, m, n):
    a, b = np.random.default_rng(m).standard_normal((m, n), "float32"), np.full(m, 7, "float32")
    if way == "interpreter":
        run(sums(), [a, b])
    else:
        execution = {} if way == "cpu" else {"execution": "emulate"}
        tilelang.compile(sums(), target=way, **execution)(a, b)
    np.testing.assert_allclose(b, a.astype("float64").sum(1), rtol=0, atol=1e-4)


def test_a_cpu_fetches_each_row_from_an_address_inside():
    """Of the region's rows, in lines: 37 columns of two rows, and one element; as bytes where these are many lines, or not known
    before the call."""
    text = lower(sums(), Target("cpu", "x86-64-v3")).trace.text()
    calls = re.findall(r'"tl\.fetch\.(\d+)", (T\.address_of\(A\[.+\]\))\)', text)
    assert {int(lines) for lines, _ in calls} == {1, 3}
    assert all("T.min(" in address and "T.max(" in address for _, address in calls)

    n = T.dynamic("n")

    @T.prim_func
    def long_rows(A: T.Tensor((4, n), "float32")):
        with T.Kernel(1, threads=32):
            T.prefetch(A[0, 0:1000])
            T.prefetch(A[1, 0 : n - 3])

    text = lower(long_rows, Target("cpu", "x86-64-v3")).trace.text()
    sizes = re.findall(r'"tl\.fetch\.lines", T\.address_of\(A\[.+?\]\), (.+)\)', text)
    assert len(sizes) == 2
    assert "T.int64(4000)" in sizes


@pytest.mark.parametrize("target", ["cuda -arch=sm_90a", "hip -mcpu=gfx942"])
def test_gpus_say_that_it_has_no_effect(target):
    report = json.dumps(lower(sums(), parse(target)).context.report.to_json())
    assert "T.prefetch has no effect on this target" in report
