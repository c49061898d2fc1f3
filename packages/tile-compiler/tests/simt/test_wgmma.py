"""Products by warpgroups (sm_90a): every element type, major order and place of A, in the emulator against float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from device_texts import emulated, lowered, printed
from test_gemm import F8, F8_2, TURNS, notes, operands, product

import tilelang.language as T
from tile_compiler.errors import UnsupportedOnTarget

FP16 = ("float16", "float16", "float32")
BF16 = ("bfloat16", "bfloat16", "float32")
TF32 = ("float32", "float32", "float32")
INT8 = ("int8", "int8", "int32")

MODES = (("early", 0), ("late", 1), ("late", 2))


def agree(func: Any, args: list[Any], want: Any, tolerance: float, modes: Any = MODES, options: Any = None) -> None:
    """Copies and products early and late, threads in several orders: the last argument becomes `want`."""
    for mode, seed in modes:
        got = emulated(func, args, "sm_90a", mode, seed, options)[-1]
        np.testing.assert_allclose(
            got.astype("f8"), want, tolerance, tolerance * max(1, np.abs(want).max()), err_msg=mode
        )


def text(func: Any, options: Any = None) -> str:
    trace, ctx = lowered(func, "sm_90a", options)
    return printed(func, trace.steps[-1].after, ctx).source


def exact(args: list[Any], trans: tuple[bool, bool]) -> Any:
    a, b = (x.astype("f8").T if t else x.astype("f8") for x, t in zip(args, trans))
    return a @ b


@pytest.mark.parametrize("scopes", ["ss", "rs"])
@pytest.mark.parametrize(
    ("types", "trans", "instruction"),
    [
        *((FP16, t, "tl::wgmma_m64k16_f32_f16") for t in TURNS),
        *((BF16, t, "tl::wgmma_m64k16_f32_bf16") for t in TURNS),
        (INT8, (False, True), "tl::wgmma_m64k32_s32_s8"),
        (("uint8", "int8", "int32"), (False, True), "tl::wgmma_m64k32_s32_u8_s8"),
        ((F8, F8, "float32"), (False, True), "tl::wgmma_m64k32_f32_e4m3"),
        ((F8, F8_2, "float32"), (False, True), "tl::wgmma_m64k32_f32_e4m3_e5m2"),
        (TF32, (False, True), "tl::wgmma_m64k8_f32_tf32"),
    ],
)
def test_types_and_majors(rng: Any, types: Any, trans: tuple[bool, bool], instruction: str, scopes: str) -> None:
    shape, options = (64, 96, 64), {"tl.allow_tf32": True}
    func = product(shape, types, 128, trans, scopes)
    from_registers = scopes[0] == "r" and not trans[0]
    assert f"{instruction}{'_rs' * from_registers}<96" in text(func, options)
    args = operands(rng, shape, types, trans)
    agree(func, args, 1 + exact(args[:2], trans), 3e-3 if types is TF32 else 1e-4, MODES[:2], options)


@pytest.mark.parametrize(
    ("shape", "threads", "policy", "groups"),
    [
        ((128, 128, 32), 128, "Square", "n = 128, a from shared memory, 1 x 1 warpgroups"),
        ((128, 128, 32), 256, "Square", "n = 128, a from shared memory, 2 x 1 warpgroups"),
        ((128, 128, 32), 256, "FullCol", "n = 64, a from shared memory, 1 x 2 warpgroups"),
        ((64, 96, 32), 256, "FullRow", "n = 48, a from shared memory, 1 x 2 warpgroups"),
        ((64, 8, 32), 256, "Square", "n = 8, a from shared memory, 1 x 1 warpgroups, computed 2 times"),
        ((192, 40, 16), 384, "Square", "n = 40, a from shared memory, 3 x 1 warpgroups"),
        ((128, 320, 16), 256, "Square", "n = 160, a from shared memory, 2 x 1 warpgroups"),
        ((64, 512, 16), 256, "FullCol", "n = 256, a from shared memory, 1 x 2 warpgroups"),
        ((256, 24, 48), 512, "Square", "n = 24, a from shared memory, 4 x 1 warpgroups"),
    ],
)
@pytest.mark.parametrize("trans", [TURNS[0], TURNS[3]], ids=["nn", "tt"])
def test_warpgroups_share_the_tile(
    rng: Any, shape: Any, threads: int, policy: str, groups: str, trans: tuple[bool, bool]
) -> None:
    func = product(shape, FP16, threads, trans, policy=getattr(T.GemmWarpPolicy, policy))
    _, ctx = lowered(func, "sm_90a")
    assert groups in notes(ctx)
    args = operands(rng, shape, FP16, trans)
    agree(func, args, 1 + exact(args[:2], trans), 1e-4, MODES[1:2])


def by_hand(rows: int) -> Any:
    """Two products, of which the first is waited for while the second is under way."""

    @T.prim_func
    def main(A: T.Tensor((rows, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((rows, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((rows, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((rows, 64), "float32")
            d = T.alloc_fragment((rows, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.wgmma_gemm(a, b, c, clear_accum=True)
            T.wgmma_gemm(a, b, d, clear_accum=True)
            T.wait_wgmma(1)
            T.sync_threads()
            for i, j in T.Parallel(rows, 64):
                c[i, j] = c[i, j] * 2.0
            for i, j in T.Parallel(rows, 64):
                c[i, j] = c[i, j] + d[i, j]
            T.copy(c, C)

    return main


def test_the_users_waits_stand_where_he_puts_them() -> None:
    found = re.findall(r"tl::(wgmma_commit|wgmma_wait<\d>|sync_threads)", text(by_hand(64)))
    assert found[-5:] == ["wgmma_commit", "wgmma_commit", "wgmma_wait<1>", "sync_threads", "wgmma_wait<0>"]


def test_a_product_that_must_be_wgmma_and_cannot() -> None:
    with pytest.raises(UnsupportedOnTarget, match="T.wgmma_gemm has no instruction") as caught:
        lowered(by_hand(48), "sm_90a")
    assert "T.gemm, which takes the best instruction" in str(caught.value)
    lowered(by_hand(48), "sm_80")
