"""No function of a device header is without a test of its own.

The functions are read from the preprocessed header, so that those which macros write are among them; the tests' texts and
their lists of names (`BUILT`) say which functions are called.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from tile_runtime_cpu.emulator import compiler

HERE = Path(__file__).parent
TARGETS = Path(__file__).resolve().parents[3] / "tile-compiler" / "src" / "tile_compiler" / "targets"
CUDA = ("cuda/include", "tl_cuda.cuh", "__device__ __forceinline__")
HIP = ("hip/include", "tl_hip.h", "__attribute__((device)) inline __attribute__((always_inline))")
#: By vendor: folder, header and marker of functions; what the preprocessor is told of each architecture; the tests.
VENDORS = {
    "cuda": (
        CUDA,
        [["__CUDACC_RTC__", "__CUDA_ARCH__=750"], ["__CUDACC_RTC__", "__CUDA_ARCH__=900", "__CUDA_ARCH_FEAT_SM90_ALL"]],
        "instructions types arithmetic atomics hopper_copies hopper_clusters hopper_wgmma",
    ),
    "hip": (HIP, [["__gfx90a__"], ["__gfx942__"]], "types arithmetic atomics hip_instructions"),
}
#: What a kernel says instead of computes: test_reports.py has their tests.
SAID = {"print", "device_assert"}


def functions(text: str, marker: str) -> set[str]:
    """The functions of a preprocessed header, outside of `detail` and of classes, without the name of its namespace."""
    found, around = set(), []
    tokens = rf'"(?:\\.|[^"\\])*"|namespace (\w+) \{{|[{{}}]|{re.escape(marker)}[^;(){{}}]*?(\w+)\s*\('
    for token in re.finditer(tokens, text):
        if token[1]:
            around.append(token[1])
        elif token[0] == "{":
            around.append("")
        elif token[0] == "}":
            around.pop()
        elif token[2] and not {"", "detail"} & set(around):
            found.add("::".join([*around, token[2]]).removeprefix("tl::"))
    assert not around
    return found


def declared(vendor: str) -> set[str]:
    """The functions that a vendor's header offers to a kernel of any of its architectures."""
    (folder, header, marker), architectures, _ = VENDORS[vendor]
    found = set()
    for macros in architectures:
        command = [*compiler.host_compiler().command, "-E", "-P", "-x", "c++", "-std=c++17", f"-I{TARGETS / folder}"]
        command += [*(f"-D{macro}" for macro in macros), str(TARGETS / folder / header)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found |= functions(done.stdout, marker)
    return found


@functools.cache
def called(test: str) -> frozenset[str]:
    """The functions that a file of tests calls: those that its texts name, and those whose names it puts together."""
    path = HERE / f"test_{test}.py"
    spec = importlib.util.spec_from_file_location(f"called_{test}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    named = re.findall(r"\btl::((?:fast::)?\w+)[<({]", path.read_text())
    return frozenset(named) | set(getattr(module, "BUILT", ()))


@pytest.mark.parametrize("vendor", VENDORS)
def test_each_function_has_a_test(vendor):
    header, tested = declared(vendor), frozenset[str]().union(*map(called, VENDORS[vendor][2].split()))
    common = {"sync_threads", "shfl_xor", "atomic_add", "fast::exp2", "dp4a", "to_integer", "unpack"}
    assert (
        header
        >= common | {"cuda": {"wgmma_m64k16_f32_f16", "tma_load"}, "hip": {"mfma_32x32x2_f32_f32", "erff"}}[vendor]
    )
    untested = sorted(header - tested - SAID)
    assert untested == []
    assert SAID <= called("reports")


def test_a_function_that_no_test_calls_is_found():
    text = """
namespace tl { namespace detail { MARK int inner(int x) { return x; } }
MARK float told(float x) { if (x) { return inner(x); } return "{"[0]; }
template <class T> struct pair { MARK T first() const { return 0; } };
namespace fast { template <class T> MARK T half(T x) { return x / 2; } } }
MARK int outer() { return told(1); }"""
    assert functions(text, "MARK") == {"told", "fast::half", "outer"}
