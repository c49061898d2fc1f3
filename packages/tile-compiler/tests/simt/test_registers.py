"""Large tiles keep within a thread's registers, and the report says when they cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.cfamily.dialect import CUDA as DIALECT
from tile_compiler.cfamily.launches import kernel_launches
from tile_compiler.cfamily.printer import print_source
from tile_compiler.signature import signature_of
from tile_compiler.targets.cuda.plugin import headers
from tile_runtime import registry


def gemm(m: int, n: int, k: int, threads: int, trans: bool) -> Any:
    shape_b = (1024, 512) if trans else (512, 1024)

    @T.prim_func
    def product(
        A: T.Tensor((1000, 512), "float16"), B: T.Tensor(shape_b, "float16"), C: T.Tensor((1000, 1024), "float16")
    ):
        with T.Kernel(T.ceildiv(1024, n), T.ceildiv(1000, m), threads=threads) as (bx, by):
            a = T.alloc_shared((m, k), "float16")
            b = T.alloc_shared((n, k) if trans else (k, n), "float16")
            c = T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for step in T.Pipelined(512 // k, num_stages=3):
                T.copy(A[by * m, step * k], a)
                if trans:
                    T.copy(B[bx * n, step * k], b)
                else:
                    T.copy(B[step * k, bx * n], b)
                T.gemm(a, b, c, transpose_B=trans)
            T.copy(c, C[by * m, bx * n])

    return product


@pytest.mark.parametrize("trans", [False, True], ids=["nn", "nt"])
@pytest.mark.parametrize(
    ("arch", "tile", "threads"),
    [("sm_90", (128, 256, 32), 256), ("sm_90", (128, 128, 64), 128), ("sm_80", (128, 256, 64), 256)],
)
def test_no_spills(lower: Any, arch: str, tile: tuple[int, int, int], threads: int, trans: bool) -> None:
    func = gemm(*tile, threads, trans)
    trace, ctx = lower(func, arch)
    final = trace.steps[-1].after
    (launch,) = kernel_launches(final, signature_of(func, final))
    device: Any = registry.device("cuda")
    built = device.build(print_source([launch.kernel], DIALECT), arch=arch, headers=headers())
    used = built.resources[launch.kernel.symbol]
    assert used["spills"] == used["stack"] == 0
    assert not any("registers of a thread" in text for _, text in ctx.report.notes)


@pytest.mark.parametrize(("rows", "how"), [(8, "chosen among 8 registers by comparisons"), (24, "no registers")])
def test_threads_whose_rows_differ_keep_short_vectors_in_registers(
    rng: Any, check_each_pass: Any, lower: Any, rows: int, how: str
) -> None:
    """Rows of 40 elements in 256 threads: those of a step are in different rows, so every thread has all maxima."""

    @T.prim_func
    def main(A: T.Tensor((rows, 40), "float32"), B: T.Tensor((rows, 40), "float32")):
        with T.Kernel(1, threads=256) as _:
            a = T.alloc_fragment((rows, 40), "float32")
            largest = T.alloc_fragment((rows,), "float32")
            T.copy(A, a)
            T.reduce_max(a, largest, dim=1)
            for i, j in T.Parallel(rows, 40):
                a[i, j] = a[i, j] - largest[i]
            T.copy(a, B)

    check_each_pass(main, [rng.standard_normal((rows, 40)).astype("float32"), np.zeros((rows, 40), "float32")])
    trace, ctx = lower(main)
    assert f"largest is indexed at run time: {how}" in {text for _, text in ctx.report.notes}
    final = trace.steps[-1].after
    (launch,) = kernel_launches(final, signature_of(main, final))
    device: Any = registry.device("cuda")
    built = device.build(print_source([launch.kernel], DIALECT), arch="sm_80", headers=headers())
    assert (built.resources[launch.kernel.symbol]["stack"] == 0) == (rows == 8)


def test_accumulators_that_cannot_fit_are_reported(lower: Any) -> None:
    _, ctx = lower(gemm(128, 256, 32, 128, False), "sm_90")
    (found,) = {text for _, text in ctx.report.notes if "registers of a thread" in text}
    assert found == (
        "gemm: c alone takes 256 registers of a thread, more than it can have: use 256 threads or a smaller tile"
    )


def test_four_warpgroups_and_a_producer_share_what_the_block_began_with() -> None:
    """640 threads begin with 96 registers each; the emulator waits as the device does if the consumers ask for more."""

    @T.prim_func
    def main(A: T.Tensor((256, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((256, 64), "float32")):
        with T.Kernel(1, threads=512) as _:
            a = T.alloc_shared((256, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((256, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(2, num_stages=4):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution="emulate")
    assert "112 registers for a consumer" in "".join(str(n["text"]) for n in kernel.report()["notes"])
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((256, 128), (128, 64)))
    c = np.zeros((256, 64), np.float32)
    kernel(a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3)
