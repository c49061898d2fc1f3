"""Tiles of float32 that bulk copies round to tf32: those that only products of tf32 by warpgroups read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_texts import emulated, lowered, printed

import tilelang.language as T

ROUNDED = {"tl.allow_tf32": True}


def product(also: str = "", transposed: bool = True) -> Any:
    """C = A @ B by one tile; `also`: what else reads A's tile."""
    shape = (64, 32) if transposed else (32, 64)

    @T.prim_func
    def main(A: T.Tensor((64, 32), "float32"), B: T.Tensor(shape, "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float32")
            b = T.alloc_shared(shape, "float32")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(1, num_stages=1):
                T.copy(A[0, 0], a)
                T.copy(B[0, 0], b)
                T.gemm(a, b, c, transpose_B=transposed)
                if also == "elements":
                    for i, j in T.Parallel(64, 32):
                        c[i, j] += a[i, j]
                if also == "an element":
                    if T.get_thread_binding() == 0:
                        C[0, 0] = a[0, 0]
            T.copy(c, C)

    return main


def types(func: Any, options: Any = ROUNDED) -> dict[str, str]:
    """The element type of each tensor map."""
    trace, ctx = lowered(func, "sm_90a", options)
    maps = printed(func, trace.steps[-1].after, ctx).maps
    return {m.param: m.dtype for m in maps.values()}


@pytest.mark.parametrize("transposed", [True, False], ids=["nt", "nn"])
def test_of_products_alone(transposed: bool) -> None:
    assert types(product("", transposed)) == {"A": "tfloat32", "B": "tfloat32"}


@pytest.mark.parametrize("also", ["elements", "an element"])
def test_what_something_else_reads_stays(also: str) -> None:
    assert types(product(also)) == {"A": "float32", "B": "tfloat32"}


def test_the_report_says_so() -> None:
    _, rounded = lowered(product(), "sm_90a", ROUNDED)
    _, cut = lowered(product("elements"), "sm_90a", ROUNDED)
    assert sum("rounded to tf32" in text for _, text in rounded.report.notes) == 2
    says = "gemm: wgmma cuts float32 operands to the 10 bits of tf32, it does not round them"
    assert [says in [text for _, text in ctx.report.notes] for ctx in (rounded, cut)] == [False, True]


@pytest.mark.parametrize("mode", ["early", "late"])
def test_ties_go_to_even_and_nan_stays(mode: str) -> None:
    a = np.zeros((64, 32), "float32")
    bits = a.view("uint32")
    bits[0, :4] = [0x3F801000, 0x3F803000, 0x3FFFF000, 0xBF801001]
    bits[1, 0], bits[2, 0] = 0x7F800000, 0x7FC00001
    b = np.zeros((64, 32), "float32")
    b[np.arange(4), np.arange(4)] = 1
    (*_, found) = emulated(product(), [a, b, np.zeros((64, 64), "float32")], "sm_90a", mode, 0, ROUNDED)
    assert found[0, :4].view("uint32").tolist() == [0x3F800000, 0x3F804000, 0x40000000, 0xBF802000]
    assert found[1, 0] == np.inf
    assert np.isnan(found[2, 0])
