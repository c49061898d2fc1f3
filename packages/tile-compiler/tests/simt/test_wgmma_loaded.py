"""Products of tf32 by warpgroups where one operand does not lie along k: threads load it, in the emulator against float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from device_texts import emulated, lowered
from test_gemm import notes, operands, product
from test_wgmma import MODES, TF32, agree, exact, text

import tilelang
import tilelang.language as T

ROUNDED = {"tl.allow_tf32": True}
NN, TT, TN = (False, False), (True, True), (True, False)


@pytest.mark.parametrize(
    ("trans", "shape", "threads", "policy", "groups"),
    [
        (NN, (96, 64, 64), 128, "Square", "n = 96, as the transpose of C, b from registers, 1 x 1 warpgroups"),
        (NN, (8, 192, 8), 128, "Square", "n = 8, as the transpose of C, b from registers, 1 x 1 warpgroups"),
        (NN, (256, 128, 32), 256, "Square", "n = 256, as the transpose of C, b from registers, 2 x 1 warpgroups"),
        (NN, (128, 128, 32), 256, "FullRow", "n = 64, as the transpose of C, b from registers, 1 x 2 warpgroups"),
        (NN, (128, 128, 32), 256, "FullCol", "n = 128, as the transpose of C, b from registers, 2 x 1 warpgroups"),
        (NN, (40, 64, 16), 256, "Square", "n = 40, as the transpose of C, b from registers, 1 x 1 warpgroups, computed 2 times"),
        (TT, (64, 96, 64), 128, "Square", "n = 96, a from registers, 1 x 1 warpgroups"),
        (TT, (128, 48, 24), 256, "FullCol", "n = 24, a from registers, 1 x 2 warpgroups"),
    ],
)  # fmt: skip
def test_the_operand_that_does_not_lie_along_k_is_loaded(
    rng: Any, trans: Any, shape: Any, threads: int, policy: str, groups: str
) -> None:
    func = product(shape, TF32, threads, trans, policy=getattr(T.GemmWarpPolicy, policy))
    _, ctx = lowered(func, "sm_90a", ROUNDED)
    assert groups in notes(ctx)
    assert "tl::wgmma_m64k8_f32_tf32_rs<" in text(func, ROUNDED)
    args = operands(rng, shape, TF32, trans)
    agree(func, args, 1 + exact(args[:2], trans), 3e-3, MODES, ROUNDED)


def test_nothing_else_changes(rng: Any) -> None:
    """Where both operands lie across k, or registers hold one of them, warps multiply."""
    for trans, scopes, why in (
        (TN, "ss", "wgmma_m64k8_f32_tf32 wants a with k along its rows"),
        (NN, "rs", "wgmma_m64k8_f32_tf32 wants b with k along its rows"),
        (NN, "sr", "wgmma_m64k8_f32_tf32 wants b with k along its rows"),
    ):
        shape = (64, 64, 32)
        func = product(shape, TF32, 128, trans, scopes)
        _, ctx = lowered(func, "sm_90a", ROUNDED)
        assert f"gemm: no wgmma, as {why}" in notes(ctx)
        args = operands(rng, shape, TF32, trans)
        agree(func, args, 1 + exact(args[:2], trans), 3e-3, MODES[1:2], ROUNDED)


def test_the_report_says_why_not() -> None:
    _, ctx = lowered(product((64, 32, 8), TF32, 128, NN), "sm_90a", ROUNDED)
    assert "gemm: no wgmma, as the tile 64 x 32 x 8 is no multiple of 8 x 64 x 8" in notes(ctx)


def pipelined(m: int, n: int, k: int, stages: int, twice: bool = False) -> Any:
    """C = A @ B + column numbers, by tiles of 64 x 128 x 32; `twice`: A times two tiles of B."""

    @T.prim_func
    def main(A: T.Tensor((m, k), "float32"), B: T.Tensor((k, n), "float32"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 128), T.ceildiv(m, 64), threads=256) as (x, y):
            a = T.alloc_shared((64, 32), "float32")
            b = T.alloc_shared((32, 128), "float32")
            c = T.alloc_fragment((64, 128), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, 32), num_stages=stages):
                T.copy(A[y * 64, step * 32], a)
                T.copy(B[step * 32, x * 128], b)
                T.gemm(a, b, c)
                if twice:
                    T.gemm(a, b, c)
            for i, j in T.Parallel(64, 128):
                c[i, j] += T.cast(j, "float32")
            T.copy(c, C[y * 64, x * 128])

    return main


@pytest.mark.parametrize("shape", [(128, 256, 160), (67, 130, 36)], ids=["whole tiles", "parts of tiles"])
@pytest.mark.parametrize(
    ("stages", "twice"), [(0, False), (2, False), pytest.param(3, False, marks=pytest.mark.full), (2, True)]
)
def test_in_a_pipeline(rng: Any, shape: Any, stages: int, twice: bool) -> None:
    m, n, k = shape
    a, b = (rng.standard_normal(s).astype("float32") for s in ((m, k), (k, n)))
    want = (1 + twice) * exact([a, b], NN) + np.arange(n) % 128
    func = pipelined(m, n, k, stages, twice)
    assert "tl::wgmma_m64k8_f32_tf32_rs<" in text(func, ROUNDED)
    agree(func, [a, b, np.zeros((m, n), "float32")], want, 3e-3, MODES, ROUNDED)


def test_registers_wait_for_the_product_that_reads_them() -> None:
    """The loads of the next step stand behind a wait for the product of this one."""
    words = r"wgmma_wait<\d>|float, 2> \*\)&b_frag|_rs<|wgmma_commit"
    found = re.findall(words, text(pipelined(128, 256, 160, 3), ROUNDED))
    assert found[:4] == ["wgmma_wait<0>", "float, 2> *)&b_frag", "_rs<", "wgmma_commit"]


def test_neighbours_of_a_row_are_stored_together() -> None:
    """A lane holds two of them, in registers that are no neighbours."""
    stores = re.findall(r"vec<float, (\d)> \*\)&C\[", text(product((64, 64, 8), TF32, 128, NN), ROUNDED))
    assert stores == ["2"]


def test_loads_meet_in_no_bank_and_stores_are_whole_sectors() -> None:
    """What the order of C's rows is for."""
    kernel = tilelang.compile(
        pipelined(128, 256, 160, 3), target="cuda -arch=sm_90a", execution="emulate", pass_configs=ROUNDED
    )
    ((launch,),) = (variant["kernels"] for variant in kernel.report()["variants"])
    of = {(a["buffer"], a["kind"]): a for a in launch["accesses"]}
    assert of["b", "read"]["wavefronts"] == of["b", "read"]["conflict_free"] > 0
    assert of["C", "write"]["sectors"] == 128 * 256 * 4 // 32


def test_parts_of_tiles(rng: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 132), "float32"), C: T.Tensor((32, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float32")
            b = T.alloc_shared((64, 132), "float32")
            c = T.alloc_fragment((32, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            for s in T.serial(2):
                T.gemm(a[32:64, s * 32 : s * 32 + 32], b[s * 32 : s * 32 + 32, 3:67], c)
            T.copy(c, C)

    assert "tl::wgmma_m64k8_f32_tf32_rs<32>" in text(main, ROUNDED)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((64, 64), (64, 132)))
    got = emulated(main, [a, b, np.zeros((32, 64), "float32")], "sm_90a", "late", 1, ROUNDED)[-1]
    np.testing.assert_allclose(got, a[32:].astype("f8") @ b[:, 3:67].astype("f8"), 0, 3e-2)
