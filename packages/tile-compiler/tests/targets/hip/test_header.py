"""The device header: every function compiles for both architectures, and what one lacks is not declared there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tile_compiler.targets.cuda.plugin import headers as cuda_headers
from tile_compiler.targets.hip.plugin import headers
from tile_runtime import registry
from tile_runtime_rocm.build import BuildError

device: Any = registry.device("rocm")
ARCHS = ["gfx90a", "gfx942"]
NARROW = ["half_t", "bfloat16_t", "fp8_e4m3_t", "fp8_e5m2_t", "fp8_e8m0_t", "fp8_e4m3fnuz_t", "fp8_e5m2fnuz_t"]
MFMA = re.compile(r"TL_MFMA\((mfma_\w+),")


def built(body: str, arch: str, parameters: str = "float* x") -> Any:
    text = (
        f'#include "tl_hip.h"\nextern "C" __global__ void __launch_bounds__(256) kernel({parameters}) {{\n{body}\n}}\n'
    )
    return device.build(text, arch=arch, headers=headers())


def mfma_names(arch: str) -> list[str]:
    """The matrix functions that the header declares for an architecture."""
    before, rest = headers()["tl/mfma.h"].split("#if TL_GFX942")
    newer, older = rest.split("#else")
    return MFMA.findall(before) + MFMA.findall(newer if arch == "gfx942" else older.split("#undef")[0])


@pytest.mark.parametrize("arch", ARCHS)
def test_types_convert_and_compute(arch: str) -> None:
    lines = []
    for number, name in enumerate(NARROW):
        kind = f"tl::{name}"
        lines.append(f"x[{number}] += {kind}(x[{number}]) * {kind}(x[1]) + {kind}(x[2]); x[9] += {kind}((double)x[3]);")
        lines.append(f"{{ tl::vec<{kind}, 4> v = *(tl::vec<{kind}, 4>*)&x[4]; x[8] += (float)v[3]; }}")
    used = built("\n".join(lines), arch).resources["kernel"]
    assert used["spills"] == used["scratch"] == 0


@pytest.mark.parametrize("arch", ARCHS)
def test_exchange_and_barriers(arch: str) -> None:
    lines = ["int t = threadIdx.x; float* s = (float*)tl::shared_memory(); s[t] = x[t]; tl::sync_threads();"]
    for kind in ("float", "double", "tl::half_t", "int8_t", "int64_t"):
        for name in ("shfl_xor", "shfl_down", "shfl_up", "shfl_idx"):
            lines.append(f"x[t] += (float)tl::{name}(({kind})s[t ^ 1], t & 7);")
    lines += [
        "tl::sync_warp();",
        "if (tl::vote_any(x[t] > 0) && tl::vote_all(x[t] < 9)) x[t] = tl::vote_ballot(x[t] > 1);",
    ]
    used = built("\n".join(lines), arch).resources["kernel"]
    assert used["spills"] == used["scratch"] == 0


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("memory", ["global", "lds"])
def test_atomics(arch: str, memory: str) -> None:
    lines = ["int t = threadIdx.x;"]
    base = "x" if memory == "global" else "tl::shared_memory()"
    everything = ("add", "min", "max", "exchange")
    for kind, names in (
        *((k, (*everything, "and", "or", "xor")) for k in ("int", "unsigned", "int64_t", "uint64_t")),
        *((k, everything) for k in ("float", "double", "tl::half_t", "tl::bfloat16_t")),
    ):
        for name in names:
            lines.append(f"x[t] += (float)tl::atomic_{name}(({kind}*){base} + t, ({kind})x[t]);")
    for kind in ("float", "tl::half_t", "tl::bfloat16_t"):
        for n in (2, 4):
            lines.append(f"{{ {kind} v[{n}]; for (int i = 0; i < {n}; ++i) v[i] = {kind}(x[i]);")
            lines.append(f"tl::atomic_add_x{n}(({kind}*){base} + {n} * t, v); }}")
    built("\n".join(lines), arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_matrix_functions(arch: str) -> None:
    names = mfma_names(arch)
    assert "mfma_32x32x8_f32_f16" in names
    assert ("mfma_16x16x32_f32_e4m3fnuz" in names) == (arch == "gfx942")
    calls = "\n".join(f"tl::{name}(x, x + 64, x + 128);" for name in names)
    built(calls, arch)


def test_matrix_functions_of_the_other_architecture_are_not_declared() -> None:
    for arch, other in (("gfx90a", "gfx942"), ("gfx942", "gfx90a")):
        for name in set(mfma_names(other)) - set(mfma_names(arch)):
            with pytest.raises(BuildError, match=f"no member named '{name}' in namespace 'tl'"):
                built(f"tl::{name}(x, x, x);", arch)


def test_loads_straight_to_lds() -> None:
    body = "tl::load_to_lds<4>(tl::shared_memory() + threadIdx.x / 64 * 256, x + threadIdx.x); tl::wait_loads<0>();"
    used = built(
        body + "tl::sync_threads(); x[threadIdx.x] = ((float*)tl::shared_memory())[255 - threadIdx.x];", "gfx942"
    )
    assert used.resources["kernel"]["scratch"] == 0
    with pytest.raises(BuildError, match="no member named 'load_to_lds'"):
        built(body, "gfx90a")


@pytest.mark.parametrize("arch", ARCHS)
def test_diagnostics_need_no_library(arch: str) -> None:
    built('tl::print("%d %f\\n", (int)threadIdx.x, (double)x[0]); tl::device_assert(x[0] > 0, 1);', arch)


def test_both_vendors_take_one_text() -> None:
    """Names and signatures that generated code uses on both, compiled by both compilers."""
    lines = [
        "int t = threadIdx.x + blockIdx.y; float* s = (float*)tl::shared_memory(); s[t] = x[t]; tl::sync_threads();",
        "x[t] += tl::shfl_xor(s[t], 1) + tl::shfl_down(s[t], 2) + tl::shfl_up(s[t], 3) + tl::shfl_idx(s[t], 4);",
        "tl::sync_warp(); x[t] += tl::vote_any(x[t] > 0) + tl::vote_all(x[t] < 9) + tl::vote_ballot(x[t] > 1);",
        "x[t] += tl::dp4a(t, t, t) + tl::dp4a((unsigned)t, 1u, 2u);",
        "x[t] += tl::to_integer<int8_t>(x[0]) + tl::to_integer<int64_t>(x[1]);",
        "tl::cp_async<16>(s + 4 * t, x + 4 * t, t < 3); tl::cp_async_commit(); tl::cp_async_wait<0>();",
        "x[t] += min(t, 3) + max(7u, 8u) + abs(t) + __popc(t) + __clz(t) + __popcll(5) + __clzll(6);",
        "x[t] += isnan(x[t]) + INFINITY + NAN;",
        "x[t] += expf(x[t]) + fminf(x[t], 1.0f) + (float)exp(2.0) + (float)tl::half_t(x[t]) + (float)tl::bfloat16_t(x[1]);",
        "tl::device_assert(t < 9, 1); x[t] += tl::atomic_add(x, 1.0f) + tl::atomic_max((int*)x, 3);",
    ]
    for name in "exp exp2 exp10 log log2 log10 sin cos tan tanh sqrt rsqrt reciprocal".split():
        lines.append(f"x[t] += tl::fast::{name}(x[t]);")
    lines.append("x[t] += tl::fast::divide(x[t], 3.0f) + tl::fast::pow(x[t], 0.5f);")
    body = "\n".join(lines)
    built(body, "gfx942")
    text = (
        f'#include "tl_cuda.cuh"\nextern "C" __global__ void __launch_bounds__(256) kernel(float* x) {{\n{body}\n}}\n'
    )
    registry.device("cuda").build(text, arch="sm_80", headers=cuda_headers())  # type: ignore[attr-defined]


def test_types_are_one_text() -> None:
    for name in ("types", "packed", "atomic_order"):
        assert headers()[f"tl/{name}.h"] == cuda_headers()[f"tl/{name}.cuh"]
