"""Whole way: the printed CUDA and HIP texts, run by the emulator, which finds races, wild accesses and unwritten memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import threads as simt
from device_texts import emulated, printed
from emulator_sweep import Sweep
from mutation_kernels import SUBJECTS, Subject
from test_attention import attention
from test_synchronization import product

import tilelang.language as T
from tilelang import interpreter

ARCHS = ["sm_80", "gfx942", pytest.param("gfx90a", marks=pytest.mark.full)]
#: Of the mutation sweep those of no certain architecture, and of whole waves.
KERNELS = [s for s in SUBJECTS if s.arch == "sm_80" and s.name != "product_of_one_step"]


def _points() -> Iterator[Any]:
    for subject in KERNELS:
        for arch in ("sm_80", "gfx942", "gfx90a"):
            marks = [pytest.mark.full] if arch == "gfx90a" else []
            yield pytest.param(subject, arch, marks=marks, id=f"{subject.name}-{arch}")
    yield from (pytest.param(subject, "sm_90a", id=subject.name) for subject in SUBJECTS if subject.arch == "sm_90a")


def agree(func: Any, arch: str, args: list[Any], tolerance: float) -> None:
    want = [a.copy() for a in args]
    interpreter.run(func, want)
    for mode in ("early", "late"):
        got = emulated(func, args, arch, mode)
        np.testing.assert_allclose(got[-1].astype("float64"), want[-1].astype("float64"), tolerance, tolerance)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("stages", [0, 3])
def test_product(rng: Any, arch: str, stages: int) -> None:
    args = [rng.standard_normal(s).astype("float16") for s in ((128, 96), (96, 128))]
    agree(product(128, 128, 96, stages), arch, [*args, np.zeros((128, 128), "float32")], 1e-3)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("rows", "causal"), [(64, True), (32, False)])
def test_attention(rng: Any, arch: str, rows: int, causal: bool) -> None:
    args = [rng.standard_normal((n, 64)).astype("float16") for n in (100, 150, 150)]
    func = attention(100, 150, 64, rows, 64, causal, 2)
    agree(func, arch, [*args, np.zeros((100, 64), "float16")], 5e-3)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("cols", [64, 36, 512])
def test_softmax(rng: Any, arch: str, cols: int) -> None:
    @T.prim_func
    def softmax(A: T.Tensor((32, cols), "float32"), B: T.Tensor((32, cols), "float32")):
        with T.Kernel(2, threads=128) as bx:
            x = T.alloc_fragment((16, cols), "float32")
            top = T.alloc_fragment((16,), "float32")
            total = T.alloc_fragment((16,), "float32")
            T.copy(A[bx * 16, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(16, cols):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(16, cols):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, B[bx * 16, 0])

    args = [rng.standard_normal((32, cols)).astype("float32"), np.zeros((32, cols), "float32")]
    agree(softmax, arch, args, 1e-5)


@pytest.mark.parametrize(("subject", "arch"), list(_points()))
def test_kernels_of_the_sweep(subject: Subject, arch: str) -> None:
    """Right in the first place, before anything is left out of them: three schedules, copies early and late."""
    func = subject.make()
    args = subject.arguments(func)
    want = [a.copy() for a in args]
    interpreter.run(func, want)
    with Sweep(seeds=(1, 2, 3)).over(f"{subject.name}[{arch}]"):
        for got, right in zip(emulated(func, args, arch, options=subject.options), want):
            tolerance = subject.tolerance
            np.testing.assert_allclose(got.astype("float64"), right.astype("float64"), tolerance, tolerance)


def test_text_names_the_users_statements(lower: Any) -> None:
    func = product(128, 128, 96, 2)
    trace, ctx = lower(func)
    final = trace.steps[-1].after
    text = printed(func, final, ctx).source
    assert "// T.gemm" in text
    assert "cp_async<16>" in text
    assert len(simt.calls(final, "tl::mma")) == text.count("tl::mma")
