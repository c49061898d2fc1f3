"""The device header and the emulator's hold the same functions, and the real one compiles for each architecture."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tile_runtime_cpu.emulator import compiler

PACKAGES = Path(__file__).resolve().parents[3]
DEVICE = PACKAGES / "tile-compiler" / "src" / "tile_compiler" / "targets" / "cuda" / "include"
DEVICE_HIP = DEVICE.parents[1] / "hip" / "include"
EVERYTHING = (Path(__file__).parent / "kernels" / "everything.cu").read_text()
EVERYTHING_HIP = (Path(__file__).parent / "kernels" / "everything.hip").read_text()


def preprocessed_names(folder):
    """Names in namespace tl that a header defines, macros expanded by reading them: name(s) after TL_ macros or TL_DEVICE."""
    text = "\n".join(p.read_text() for p in sorted((folder / "tl").glob("*.cuh")))
    text = re.sub(r"namespace detail \{.*?\n\}  // namespace detail", "", text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text).replace("\\\n", "\n")
    names = set(re.findall(r"TL_DEVICE [\w:<>, ]*?[&*]? ?(\w+)\((?!\))", text)) | set(
        re.findall(r"TL_DEVICE [\w:* ]+ (\w+)\(\)", text)
    )
    names |= {
        n
        for macro, n in re.findall(r"^(TL_[A-Z0-9_]+)\((\w+),", text, flags=re.M)
        if macro != "TL_LIMITS" and not n.isdigit()
    }
    names |= set(re.findall(r"^TL_WGMMA\w*\(\w+, (\w+_rs),", text, flags=re.M))
    for count in re.findall(r"^TL_MATRIX\((\d)\)", text, flags=re.M):
        names |= {f"{kind}matrix_x{count}{suffix}" for kind in ("ld", "st") for suffix in ("", "_trans")}
    return {n for n in names if not n.startswith(("TL_", "narrow_float", "operator", "name", "__", "from_bits"))}


def test_both_headers_define_the_same_functions():
    # C's and CUDA's own names, which the device's compiler brings along
    brought_along = {"rsqrtf", "abs", "min", "max", "isnan", "isinf", "isfinite"}
    helpers = {"shared_address", "float_bits", "bits_float", "least", "greatest", "lane_word"}
    emulated = preprocessed_names(compiler.INCLUDE) - brought_along - helpers
    device = preprocessed_names(DEVICE) - helpers
    assert {"mma_m16n8k16_f32_f16", "ldmatrix_x4_trans", "cp_async", "atomic_add_x4", "dp4a", "shfl_xor"} <= device
    assert emulated ^ device <= {"type", "pair", "print", "shuffle"}  # the pattern misses a template, or sees a helper


@pytest.mark.parametrize("name", ["types.cuh", "packed.cuh", "fnuz.cuh", "atomic_order.cuh"])
def test_both_headers_share_a_text(name):
    """One text in two packages, neither of which may depend on the other."""
    assert (DEVICE / "tl" / name).read_bytes() == (compiler.INCLUDE / "tl" / name).read_bytes()


def test_both_hip_headers_define_the_same_matrix_instructions():
    declared = [
        set(re.findall(r"^TL_MFMA\((mfma_\w+),", (folder / "tl" / "mfma.h").read_text(), flags=re.M))
        for folder in (DEVICE_HIP, compiler.INCLUDE)
    ]
    assert declared[0] == {name for name in declared[1] if "_4x4x4_" not in name}


def test_a_kernel_that_calls_everything_compiles_for_the_emulator(compile_text):
    assert compile_text(EVERYTHING).symbols == ["everything"]


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_a_hip_kernel_that_calls_everything_compiles_for_the_emulator(compile_text, arch):
    module = compile_text(EVERYTHING_HIP, arch)
    assert module.symbols == ["everything"]
    assert module.warp_size == 64


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90a"])
def test_a_kernel_that_calls_everything_compiles_for_the_device(tmp_path, arch):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc: the device header was NOT compiled")
    source = tmp_path / "everything.cu"
    source.write_text(EVERYTHING)
    command = [
        nvcc,
        f"-arch={arch}",
        "-cubin",
        f"-I{DEVICE}",
        "-Werror",
        "all-warnings",
        str(source),
        "-o",
        str(tmp_path / "k"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_instructions_of_later_architectures_are_unknown_to_earlier_ones(tmp_path):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc: the device header was NOT compiled")
    source = tmp_path / "k.cu"
    source.write_text(
        '#include "tl_cuda.cuh"\n__global__ void k(int* c, void* a) { tl::mma_m16n8k32_s32_s8(c, a, a); }\n'
    )
    done = subprocess.run(
        [nvcc, "-arch=sm_75", "-cubin", f"-I{DEVICE}", str(source), "-o", str(tmp_path / "k")],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "mma_m16n8k32_s32_s8" in done.stderr
