"""Where the operands of warpgroups may lie, and what the report says where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_texts import lowered
from test_gemm import F8, notes, product
from test_wgmma import FP16, MODES, agree, exact, text

import tilelang.language as T
from tilelang.layout import make_linear_layout
from tilelang.layout.makers import swizzle_by_name


def given(layout: Any) -> Any:
    @T.prim_func
    def product(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.annotate_layout({a: layout})
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    return product


def operands(rng: Any) -> list[Any]:
    a, b = (rng.standard_normal((64, 64)).astype("float16") for _ in range(2))
    return [a, b, np.zeros((64, 64), "float32")]


@pytest.mark.parametrize("mode", ["swizzle_128b", "swizzle_64b", "swizzle_32b"])
def test_a_layout_of_the_users_is_kept(rng: Any, mode: str) -> None:
    func = given(swizzle_by_name(mode, (64, 64), "float16"))
    assert f"tl::wgmma_descriptor<{mode[8:-1]}>(a, " in text(func)
    args = operands(rng)
    agree(func, args, exact(args, (False, False)), 1e-4, MODES[1:2])


def test_a_layout_that_no_descriptor_describes_leaves_the_product_to_warps(rng: Any) -> None:
    func = given(make_linear_layout((64, 64)))
    _, ctx = lowered(func, "sm_90a")
    assert "gemm: no wgmma, as no descriptor describes the layout of a" in notes(ctx)
    assert "mma_m16n8k16_f32_f16" in notes(ctx)
    args = operands(rng)
    agree(func, args, exact(args, (False, False)), 1e-4, MODES[1:2])


@pytest.mark.parametrize("trans", [False, True], ids=["k last", "m last"])
def test_parts_of_tiles(rng: Any, trans: bool) -> None:
    shape = (128, 128)

    @T.prim_func
    def parts(A: T.Tensor(shape, "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor(shape, "float32")):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared(shape, "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.grid(2, 2):
                T.gemm(a[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64], b, c, transpose_A=trans, clear_accum=True)
                T.copy(c, C[i * 64, j * 64])

    assert "tl::wgmma_m64" in text(parts)
    args = [rng.standard_normal(s).astype("float16") for s in (shape, (64, 64))]
    a, b = (x.astype("f8") for x in args)
    want = [[(t.T if trans else t) @ b for t in np.hsplit(rows, 2)] for rows in np.vsplit(a, 2)]
    agree(parts, [*args, np.zeros(shape, "float32")], np.block(want), 1e-4, MODES[1:2])


@pytest.mark.parametrize(
    ("shape", "types", "threads", "trans", "why"),
    [
        ((64, 64, 64), FP16, 160, (False, False), "warpgroups of 128 threads, and the block has 160"),
        ((32, 64, 64), FP16, 128, (False, False), "the tile 32 x 64 x 64 is no multiple of 64 x 8 x 16"),
        ((64, 64, 64), (F8, F8, "float32"), 128, (False, False), "wgmma_m64k32_f32_e4m3 wants b with k along its rows"),
        (
            (64, 80, 64),
            ("int8", "int8", "int32"),
            128,
            (True, True),
            "wgmma_m64k32_s32_s8 wants a with k along its rows",
        ),
    ],
)
def test_the_report_says_why_not(shape: Any, types: Any, threads: int, trans: tuple[bool, bool], why: str) -> None:
    _, ctx = lowered(product(shape, types, threads, trans), "sm_90a")
    assert f"gemm: no wgmma, as {why}" in notes(ctx).replace("wgmma takes ", "")


def test_other_architectures_do_not_speak_of_it() -> None:
    _, ctx = lowered(product((64, 64, 64), FP16, 128), "sm_90")
    assert "wgmma" not in notes(ctx)
