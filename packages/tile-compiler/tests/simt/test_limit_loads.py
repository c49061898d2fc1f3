"""Copies of single elements: how many loads are on their way."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from device_texts import printed

import tilelang.language as T

n = T.dynamic("n")


def copied(shared: bool) -> Any:
    """Rows that begin anywhere, so that neighbours are no vectors: 64 elements of each thread."""

    @T.prim_func
    def main(A: T.Tensor((64, n), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64, 64), "float16") if shared else T.alloc_fragment((64, 64), "float16")
            T.copy(A[0, 0], tile)
            T.copy(tile, B)

    return main


def test_a_step_of_a_copy_stores_before_the_last_one_loads(rng: Any, proved: Any) -> None:
    a = rng.standard_normal((64, 67)).astype("float16")
    func = copied(shared=True)
    trace, ctx = proved(func, [a, np.zeros((64, 64), "float16")])
    text = printed(func, trace.steps[-1].after, ctx).source
    assert set(re.findall(r"#pragma unroll (\d+)\n +for \(int c = 0; c < 8;", text)) == {"4"}


def test_registers_are_no_arrays_indexed_at_run_time(lower: Any) -> None:
    func = copied(shared=False)
    trace, ctx = lower(func)
    text = printed(func, trace.steps[-1].after, ctx).source
    assert "#pragma unroll\n" in text
    assert not re.search(r"#pragma unroll \d", text)
