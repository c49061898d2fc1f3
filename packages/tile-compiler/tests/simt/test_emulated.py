"""Whole way: the printed CUDA text, run by the emulator, which finds races, wild accesses and unwritten memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import threads as simt
from test_attention import attention
from test_synchronization import product

import tilelang.language as T
from tile_compiler.cfamily.dialect import CUDA as DIALECT
from tile_compiler.cfamily.launches import kernel_launches
from tile_compiler.cfamily.printer import print_source
from tile_compiler.signature import signature_of
from tilelang import interpreter

emulator = pytest.importorskip("tile_runtime_cpu.emulator")


def emulate(func: Any, lower: Any, args: list[Any], grid: tuple[int, int, int], mode: str) -> list[Any]:
    """The arguments after the printed text ran; any finding of the emulator is an error."""
    trace, _ = lower(func)
    final = trace.steps[-1].after
    (launch,) = kernel_launches(final, signature_of(func, final))
    module = emulator.compile(print_source([launch.kernel], DIALECT))
    work = [a.copy() for a in args]
    block = (launch.kernel.num_threads, 1, 1)
    module.launch(launch.kernel.symbol, grid, block, launch.shared_bytes, work, mode=mode).check()
    return work


def agree(func: Any, lower: Any, args: list[Any], grid: tuple[int, int, int], tolerance: float) -> None:
    want = [a.copy() for a in args]
    interpreter.run(func, want)
    for mode in ("early", "late"):
        got = emulate(func, lower, args, grid, mode)
        np.testing.assert_allclose(got[-1].astype("float64"), want[-1].astype("float64"), tolerance, tolerance)


@pytest.mark.parametrize("stages", [0, 3])
def test_product(rng: Any, lower: Any, stages: int) -> None:
    args = [rng.standard_normal(s).astype("float16") for s in ((128, 96), (96, 128))]
    agree(product(128, 128, 96, stages), lower, [*args, np.zeros((128, 128), "float32")], (2, 2, 1), 1e-3)


@pytest.mark.parametrize(("rows", "causal"), [(64, True), (32, False)])
def test_attention(rng: Any, lower: Any, rows: int, causal: bool) -> None:
    args = [rng.standard_normal((n, 64)).astype("float16") for n in (100, 150, 150)]
    func = attention(100, 150, 64, rows, 64, causal, 2)
    agree(func, lower, [*args, np.zeros((100, 64), "float16")], (-(-100 // rows), 1, 1), 5e-3)


@pytest.mark.parametrize("cols", [64, 100, 512])
def test_softmax(rng: Any, lower: Any, cols: int) -> None:
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
    agree(softmax, lower, args, (2, 1, 1), 1e-5)


def test_text_names_the_users_statements(lower: Any) -> None:
    func = product(128, 128, 96, 2)
    trace, _ = lower(func)
    final = trace.steps[-1].after
    (launch,) = kernel_launches(final, signature_of(func, final))
    text = print_source([launch.kernel], DIALECT)
    assert "// T.gemm" in text
    assert "cp_async<16>" in text
    assert len(simt.calls(final, "tl::mma")) == text.count("tl::mma")
