"""The Hopper part of the device header under NVRTC, and what ptxas makes of it: no GPU is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tile_compiler.targets.cuda.plugin import headers
from tile_runtime_cuda.build import BuildError, build

KERNELS = Path(__file__).parents[4] / "tile-runtime-cpu" / "tests" / "emulator" / "kernels"
#: Instructions of the machine that the functions must become ("CUDA Binary Utilities", instruction set of Hopper).
EXPECTED = """
    HGMMA.64x32x16.F32 HGMMA.64x32x16.F32.BF16 HGMMA.64x32x16.F16 HGMMA.64x32x8.F32.TF32
    QGMMA.64x32x32.F32.E4M3.E4M3 QGMMA.64x32x32.F32.E5M2.E5M2 QGMMA.64x32x32.F32.E4M3.E5M2 QGMMA.64x32x32.F32.E5M2.E4M3
    QGMMA.64x32x32.F16.E4M3.E4M3 QGMMA.64x32x32.F16.E5M2.E5M2 QGMMA.64x32x32.F16.E4M3.E5M2 QGMMA.64x32x32.F16.E5M2.E4M3
    IGMMA.64x32x32.S8.S8 IGMMA.64x32x32.U8.U8 IGMMA.64x32x32.S8.U8 IGMMA.64x32x32.U8.S8
    WARPGROUP.ARRIVE WARPGROUP.DEPBAR.LE
    UTMALDG.1D UTMALDG.2D UTMALDG.3D UTMALDG.4D UTMALDG.5D UTMALDG.1D.MULTICAST UTMALDG.2D.MULTICAST UTMALDG.3D.MULTICAST
    UTMALDG.4D.MULTICAST UTMALDG.5D.MULTICAST UTMASTG.1D UTMASTG.2D UTMASTG.3D UTMASTG.4D UTMASTG.5D
    UTMAREDG.1D.ADD UTMAREDG.2D.MIN UTMAREDG.3D.MAX UTMAREDG.4D.AND UTMAREDG.5D.OR UTMAREDG.5D.XOR
    UTMAPF.L2.1D UTMAPF.L2.2D UTMAPF.L2.3D UTMAPF.L2.4D UTMAPF.L2.5D UTMACCTL.PF UTMACMDFLUSH
    UBLKCP.S.G UBLKCP.S.G.MULTICAST UBLKCP.G.S UBLKCP.S.S UBLKPF.L2 UBLKRED.G.S.ADD.F32.RN UBLKRED.G.S.ADD.F16.RN
    UBLKRED.G.S.ADD.BF16.RN UBLKRED.G.S.MIN.F16.RN UBLKRED.G.S.ADD.U64 UBLKRED.G.S.MAX.S64 UBLKRED.G.S.AND
    SYNCS.EXCH.64 SYNCS.ARRIVE.TRANS64 SYNCS.PHASECHK.TRANS64 SYNCS.PHASECHK.TRANS64.TRYWAIT SYNCS.CCTL.IV
    ARRIVES.LDGSTSBAR.64.ARVCNT USETMAXREG.DEALLOC.CTAPOOL USETMAXREG.TRY_ALLOC.CTAPOOL UCGABAR_ARV UCGABAR_WAIT ELECT
    ACQBULK PREEXIT
""".split()


def instructions(listing):
    return set(re.findall(r"\b([A-Z][A-Z0-9_]+(?:\.[A-Za-z0-9_]+)*)\b", listing))


def test_every_function_becomes_its_instruction(listing):
    built = build((KERNELS / "hopper_everything.cu").read_text(), arch="sm_90a", headers=headers())
    assert set(EXPECTED) <= instructions(listing(built.data))


@pytest.mark.parametrize("name", ["hopper_gemm", "hopper_persistent", "hopper_cluster"])
def test_kernels_by_hand_compile_without_spills_and_notes(name):
    """ptxas says C7504 to C7519 where it cannot keep wgmma asynchronous or ignores setmaxnreg."""
    built = build((KERNELS / f"{name}.cu").read_text(), arch="sm_90a", headers=headers())
    assert built.resources["gemm"]["spills"] == built.resources["gemm"]["stack"] == 0
    assert not re.search(r"C75\d\d", built.log), built.log


INCLUDE = '#include "tl_cuda.cuh"\n'
SHAPE = """extern "C" __global__ void __launch_bounds__(128) k{n}(uint32_t* o, uint64_t a) {{
  uint32_t d[{count}];
  tl::wgmma_fence();
  tl::{name}<{n}>(d, a, a, false);
  tl::wgmma_commit();
  tl::wgmma_wait<0>();
  tl::wgmma_hold<{count}>(d);
  for (int i = 0; i < {count}; ++i) o[threadIdx.x * {count} + i] = d[i];
}}
"""


@pytest.mark.parametrize(
    ("name", "registers", "widths", "opcode"),
    [
        ("wgmma_m64k16_f32_f16", 2, range(8, 257, 8), "HGMMA.64x{n}x16.F32"),
        ("wgmma_m64k16_f16_f16", 4, range(8, 257, 8), "HGMMA.64x{n}x16.F16"),
        ("wgmma_m64k32_s32_s8", 2, (8, 16, 24, *range(32, 257, 16)), "IGMMA.64x{n}x32.S8.S8"),
    ],
)
def test_each_width_of_wgmma(name, registers, widths, opcode, listing):
    text = INCLUDE + "".join(SHAPE.format(name=name, n=n, count=n // registers) for n in widths)
    built = build(text, arch="sm_90a", headers=headers())
    assert {opcode.format(n=n) for n in widths} <= instructions(listing(built.data))
    assert not any(figures["spills"] for figures in built.resources.values())


def test_widths_that_integers_do_not_have():
    with pytest.raises(BuildError):
        build(INCLUDE + SHAPE.format(name="wgmma_m64k32_s32_s8", n=40, count=20), arch="sm_90a", headers=headers())


@pytest.mark.parametrize(("arch", "unknown"), [("sm_90", "wgmma_fence"), ("sm_90", "register"), ("sm_80", "tma_store")])
def test_functions_that_an_architecture_lacks_are_unknown_there(arch, unknown):
    calls = {
        "wgmma_fence": "tl::wgmma_fence();",
        "register": "tl::register_limit_decrease<40>();",
        "tma_store": "tl::tma_store(&M, tl::shared_memory(), 0);",
    }
    text = f'{INCLUDE}extern "C" __global__ void k(const __grid_constant__ tl::tensor_map M) {{\n{calls[unknown]}\n}}\n'
    build(text, arch="sm_90a", headers=headers())
    with pytest.raises(BuildError, match=unknown):
        build(text, arch=arch, headers=headers())
