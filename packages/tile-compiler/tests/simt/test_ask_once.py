"""A nest under a condition that few registers of a thread decide is asked for before it begins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_texts import lowered, printed

import tilelang
import tilelang.language as T

TARGETS = ["cuda -arch=sm_80", "cuda -arch=sm_90a", "hip -mcpu=gfx942"]


def scaled(asked: str) -> Any:
    """B = A with the rows scaled whose factor is not 1, after A A^T decides where the rows lie."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        R: T.Tensor((64,), "float32"),
        B: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((64, 64), "float16")
            r = T.alloc_fragment((64,), "float32")
            o = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(R, r)
            T.clear(o)
            T.gemm(a, a, o, transpose_B=True)
            for i, j in T.Parallel(64, 64):
                if asked == "row":
                    if r[i] != 1:
                        o[i, j] *= r[i]
                elif asked == "element":
                    if o[i, j] > 1:
                        o[i, j] *= r[i]
                elif asked == "column":
                    if r[i] != 1 and j < 40:
                        o[i, j] *= r[i]
            T.copy(o, B)

    return main


def source(func: Any) -> str:
    trace, ctx = lowered(func, "sm_90a")
    return str(printed(func, trace.steps[-1].after, ctx).source)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_that_need_nothing_keep_their_bits(target: str) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((64, 64)).astype(np.float16)
    r = np.where(rng.random(64) < 0.1, rng.random(64), 1).astype(np.float32)
    r[:32] = 1  # warps with nothing to do
    b = np.full((64, 64), np.nan, np.float32)
    tilelang.compile(scaled("row"), target=target, execution="emulate")(a, r, b)
    np.testing.assert_allclose(b, (a.astype(float) @ a.astype(float).T) * r[:, None], rtol=1e-3, atol=1e-3)


def test_two_registers_are_asked_before_thirty_two() -> None:
    text = source(scaled("row"))
    (question,) = (line.strip() for line in text.splitlines() if "r[0]" in line and "if" in line)
    assert question == "if (r[0] != 1.0f || r[1] != 1.0f) {"


@pytest.mark.parametrize("asked", ["element", "column"])
def test_what_each_element_decides_is_asked_there(asked: str) -> None:
    """Of as many registers as elements, or of the element's place as well."""
    text = source(scaled(asked))
    assert not [line for line in text.splitlines() if "||" in line and ("o[0]" in line or "r[0]" in line)]
