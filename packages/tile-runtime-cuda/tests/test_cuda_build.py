"""CUDA C++ to cubins: errors that name the line, figures of ptxas."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tile_runtime_cuda import nvrtc
from tile_runtime_cuda.build import BuildError, build, explained, resources_of

SCALE = """\
#include "own.h"
extern "C" __global__ void scale(float *a, int n) {
  // T.copy(A, B)  # line 7
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = FACTOR * a[i];
}
"""
HEADERS = {"own.h": '#include "inner/factor.h"\n', "inner/factor.h": "#define FACTOR 2.0f\n"}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90a"])
def test_a_cubin_needs_neither_gpu_nor_driver(arch: str) -> None:
    built = build(SCALE, arch=arch, headers=HEADERS)
    assert built.data[:4] == b"\x7fELF"
    assert built.compiler.startswith("nvrtc ")
    assert built.resources["scale"]["registers"] <= 16
    assert f".target {arch}".encode() in built.ptx
    assert built.ptx.endswith(b"\0")


def test_without_the_declarations_of_the_cuda_runtime() -> None:
    """The same code; and they are missing indeed."""
    whole = build(SCALE, arch="sm_80", headers=HEADERS)
    assert build(SCALE, arch="sm_80", headers=HEADERS, minimal=True).data == whole.data
    texture = "__device__ cudaTextureObject_t texture;"
    build(texture, arch="sm_80")
    with pytest.raises(BuildError, match="cudaTextureObject_t"):
        build(texture, arch="sm_80", minimal=True)


def test_an_older_nvrtc_gets_no_option_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc.library(), "number", (12, 3))
    build("__device__ cudaTextureObject_t texture;", arch="sm_80", minimal=True)


@pytest.mark.parametrize("knows", [True, False])
def test_what_ptxas_said_is_asked_for_again_where_a_cache_kept_it(monkeypatch: pytest.MonkeyPatch, knows: bool) -> None:
    library, asked = nvrtc.library(), []
    compile = library.compile

    def cached(source: str, name: str, headers: Any, options: Any) -> Any:
        asked.append("--no-cache" in options)
        data, ptx, log = compile(source, name, headers, options)
        return (data, ptx, log if asked[-1] else "") if knows or not asked[-1] else (None, b"", "unrecognized option")

    monkeypatch.setattr(library, "compile", cached)
    built = build(SCALE, arch="sm_80", headers=HEADERS)
    assert asked == [False, True]
    assert built.data[:4] == b"\x7fELF"
    assert (built.resources.keys() == {"scale"}) is knows


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_nvcc_on_request() -> None:
    built = build(SCALE, arch="sm_80", headers=HEADERS, compiler="nvcc")
    assert built.compiler.startswith("nvcc ")
    assert built.resources.keys() == {"scale"}


def test_errors_name_the_line_and_the_users_statement() -> None:
    with pytest.raises(BuildError) as caught:
        build(SCALE.replace("FACTOR * a", "FACTORS * a"), arch="sm_80", headers=HEADERS)
    text = str(caught.value)
    assert 'identifier "FACTORS" is undefined' in text
    assert "--> kernel.cu:5: if (i < n) a[i] = FACTORS * a[i];" in text
    assert "in: T.copy(A, B)  # line 7" in text


def test_a_missing_header_is_an_error() -> None:
    with pytest.raises(BuildError, match=r"cannot open source file(.|\n)*kernel.cu:1"):
        build(SCALE, arch="sm_80")


@pytest.mark.parametrize(
    ("arch", "said"),
    [
        ("sm_70", "sm_70 is too old"),
        ("sm_60", "is too old"),
        ("gfx942", "no CUDA architecture"),
        ("sm_98", "it builds for sm_75"),
    ],
)
def test_architectures_that_cannot_be_built(arch: str, said: str) -> None:
    with pytest.raises(BuildError, match=said):
        build(SCALE, arch=arch, headers=HEADERS)


def test_unknown_compilers_and_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildError, match="expected 'nvrtc' or 'nvcc'"):
        build(SCALE, arch="sm_80", compiler="gcc")
    monkeypatch.setattr(nvrtc, "_places", lambda: iter(["libnvrtc-absent.so"]))
    nvrtc.library.cache_clear()
    try:
        with pytest.raises(BuildError, match="install the wheel nvidia-cuda-nvrtc"):
            build(SCALE, arch="sm_80", headers=HEADERS)
    finally:
        nvrtc.library.cache_clear()


def test_figures_of_several_kernels() -> None:
    log = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_80'
ptxas info    : Function properties for one
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 2 barriers, 1024 bytes smem, 380 bytes cmem[0]
ptxas info    : Compiling entry function 'two' for 'sm_80'
ptxas info    : Used 8 registers, 360 bytes cmem[0]
"""
    assert resources_of(log) == {
        "one": {"registers": 255, "stack": 8, "spills": 16, "shared": 1024, "barriers": 2},
        "two": {"registers": 8, "stack": 0, "spills": 0, "shared": 0, "barriers": 0},
    }


def test_logs_without_a_place() -> None:
    assert explained("nvcc", "ptxas fatal : error: out of registers\n", "") == (
        "nvcc refused the kernel: ptxas fatal : error: out of registers"
    )
    assert "no reason given" in explained("nvcc", "", "")
