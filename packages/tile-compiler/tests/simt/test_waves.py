"""Waves of 64: the same answers, shuffles over all lanes of a wave, shared memory between waves only."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from test_synchronization import product

import tilelang.language as T
from tile_compiler.inspect import readable

ARCHS = ["gfx90a", "gfx942"]


def row_sum(rows: int, cols: int, threads: int) -> Any:
    @T.prim_func
    def reduce(A: T.Tensor((rows, cols), "float32"), S: T.Tensor((rows,), "float32")):
        with T.Kernel(1, threads=threads) as bx:
            f = T.alloc_fragment((rows, cols), "float32")
            s = T.alloc_fragment((rows,), "float32")
            T.copy(A, f)
            T.reduce_sum(f, s, dim=1)
            T.copy(s, S)

    return reduce


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    ("rows", "cols", "threads"), [(4, 256, 64), (2, 512, 256), (13, 45, 128), (8, 128, 96), (4, 64, 32)]
)
def test_sums(rng: Any, proved: Any, arch: str, rows: int, cols: int, threads: int) -> None:
    args = [rng.standard_normal((rows, cols)).astype("float32"), np.zeros(rows, "float32")]
    proved(row_sum(rows, cols, threads), args, arch=arch)


@pytest.mark.parametrize(("arch", "widest", "barriers"), [("gfx942", 32, 0), ("sm_80", 16, 1)])
def test_a_row_of_one_wave_needs_no_shared_memory(lower: Any, arch: str, widest: int, barriers: int) -> None:
    """A row of 256 lies in 64 threads: one wave, or two warps of 32."""
    trace, _ = lower(row_sum(4, 256, 256), arch)
    text = readable(trace.steps[-1].after)
    masks = {int(m) for m in re.findall(r'"tl::shfl_xor", [^\n]*?, (\d+)\)', text)}
    assert max(masks) == widest
    assert text.count('"tl::sync_threads"') == barriers


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("stages", [0, 1, 2, 3])
def test_product(rng: Any, proved: Any, arch: str, stages: int) -> None:
    args = [rng.standard_normal(s).astype("float16") for s in ((64, 96), (96, 64))]
    proved(product(64, 64, 96, stages), [*args, np.zeros((64, 64), "float32")], 1e-3, 1e-3, arch=arch, passes=False)
