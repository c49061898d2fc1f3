"""The device header without what a text does not call: the same code, and nothing that is called is missing."""

from __future__ import annotations

from typing import Any

import pytest

import tilelang.language as T
from tile_compiler.compile import compile
from tile_compiler.targets.cuda.header_parts import header_flags
from tile_compiler.targets.cuda.plugin import headers
from tile_runtime import registry
from tile_runtime_cuda.build import BuildError, build
from tilelang.target import parse

PRODUCT = """#include "tl_cuda.cuh"
extern "C" __global__ void product(float* out, uint64_t a, uint64_t b) {
  float d[64];
  tl::wgmma_fence();
  tl::wgmma_m64k16_f32_f16<128, tl::k_major, tl::mn_major>(d, a, b, false);
  tl::wgmma_m64k16_f32_f16<8>(d, a, b, true);
  tl::wgmma_commit();
  tl::wgmma_wait<0>();
  for (int i = 0; i < 64; ++i) out[threadIdx.x * 64 + i] = d[i];
}
"""


def test_widths_that_a_text_names() -> None:
    assert header_flags(PRODUCT) == ("--define-macro=TL_WGMMA_WIDTHS=0x8001u",)
    assert header_flags('#include "tl_cuda.cuh"\n') == ("--define-macro=TL_WGMMA_WIDTHS=0x0u",)
    assert header_flags("tl::wgmma_m64k32_s32_s8_u8_rs<256>(c, a, b);") == (
        "--define-macro=TL_WGMMA_WIDTHS=0x80000000u",
    )


@pytest.mark.parametrize("width", ["n", "n * 8", "12", "264"])
def test_a_width_that_is_not_known_keeps_all(width: str) -> None:
    assert header_flags(PRODUCT + f"// wgmma_m64k16_f32_f16<{width}>") == ()


def test_the_code_is_the_same() -> None:
    whole = build(PRODUCT, arch="sm_90a", headers=headers())
    assert build(PRODUCT, arch="sm_90a", headers=headers(), options=header_flags(PRODUCT)).data == whole.data


def test_another_width_is_not_there() -> None:
    with pytest.raises(BuildError, match=r"wgmma_float<128>|incomplete"):
        build(PRODUCT, arch="sm_90a", headers=headers(), options=["--define-macro=TL_WGMMA_WIDTHS=0x1u"])


@pytest.mark.parametrize("imported", [False, True])
def test_a_kernel_is_compiled_so_unless_it_has_code_of_the_user(
    imported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @T.prim_func
    def doubled(a: T.Tensor((64,), T.float32), b: T.Tensor((64,), T.float32)):
        with T.Kernel(1, threads=32) as _:
            if imported:
                T.import_source("__device__ int unused;")
            for i in T.Parallel(64):
                b[i] = a[i] * 2

    device: Any = registry.device("cuda")
    seen: list[tuple[tuple[str, ...], bool]] = []

    def spied(source: str, *, options: tuple[str, ...], minimal: bool, **others: Any) -> Any:
        seen.append((options, minimal))
        return build(source, options=options, minimal=minimal, **others)

    monkeypatch.setattr(type(device), "build", staticmethod(spied))
    compile(doubled, parse("cuda -arch=sm_90a"))
    assert seen == [((), False) if imported else (("--define-macro=TL_WGMMA_WIDTHS=0x0u",), True)]
