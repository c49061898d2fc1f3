"""Tools for scripts and traced functions: rooflines, generated text, the way through the compiler."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import tilelang
import tilelang.language as T
from tilelang import cache_control
from tilelang.carver.arch import CUDA
from tilelang.errors import InvalidArgument
from tilelang.tools import Analyzer, compile_only, lower_trace
from tilelang.tools.lower_trace import lower_trace as trace_of

HOPPER = CUDA("cuda -arch=sm_90a")

SCRIPT = """
import sys
import tilelang
import tilelang.language as T

@tilelang.jit(target="cuda -arch=sm_80")
def scaled(n, factor):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = A[bx * 64 + i] * factor
    return main

print("begins", sys.argv[1:])
scaled(128, 3.0)
scaled(128, 5.0)
if "stop" in sys.argv:
    raise RuntimeError("no device")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "example.py"
    path.write_text(SCRIPT)
    return path


def test_the_text_of_every_kernel_of_a_script(script, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TILELANG_DISABLE_CACHE", raising=False)
    before = sys.argv, list(sys.path), cache_control.is_cache_enabled()
    out = tmp_path / "out.cu"
    assert compile_only.main(["--output_file", str(out), str(script), "one", "--two"]) == 0
    text = out.read_text()
    assert text.index("* 3.0f") < text.index("* 5.0f")
    assert text.count('#include "tl_cuda.cuh"') == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "begins ['one', '--two']" in said.err
    assert (sys.argv, sys.path, cache_control.is_cache_enabled()) == before
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "1")
    assert not cache_control.is_cache_enabled()  # still left to the environment


def test_another_target_than_the_script_names(script, capsys):
    assert compile_only.main(["--target", "hip -mcpu=gfx942", str(script)]) == 0
    assert capsys.readouterr().out.count('#include "tl_hip.h"') == 2
    assert "TILELANG_TARGET_OVERRIDE" not in os.environ


def test_a_script_that_cannot_go_on(script, capsys):
    assert compile_only.main([str(script), "stop"]) == 0
    said = capsys.readouterr()
    assert said.out.count('#include "tl_cuda.cuh"') == 2
    assert "RuntimeError: no device" in said.err


def test_a_script_without_kernels(tmp_path, capsys):
    path = tmp_path / "nothing.py"
    path.write_text("print(1)\n")
    assert compile_only.main([str(path)]) == 1
    assert "compiled no kernel" in capsys.readouterr().err


def product(m: Any, blocks: int = 64) -> Any:
    @T.prim_func
    def main(A: T.Tensor((m, 256), "float16"), B: T.Tensor((256, 128), "float16"), C: T.Tensor((m, 128), "float16")):
        with T.Kernel(T.ceildiv(m, blocks), threads=128) as bx:
            a = T.alloc_shared((blocks, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((blocks, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[bx * blocks, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C[bx * blocks, 0])

    return main


@pytest.mark.parametrize("target", ["cpu", "cuda -arch=sm_90a", "hip -mcpu=gfx942"])
def test_every_pass_and_what_comes_out(target):
    whole = trace_of(product(128), target, execution="emulate" if target != "cpu" else None)
    assert whole.startswith("# traced\n")
    assert "# plan_pipeline  (" in whole
    assert ("# generated\n" in whole) == (target != "cpu")
    diffs = trace_of(product(128), target, diffs=True, execution="emulate" if target != "cpu" else None)
    assert re.search(r"^--- before (lower_operators|lower_tile_ops)$", diffs, re.MULTILINE)
    assert len(diffs) < len(whole)


def test_the_way_of_a_scripts_kernels(script, tmp_path):
    out = tmp_path / "trace.txt"
    assert lower_trace.main(["--diff", "--output_file", str(out), str(script)]) == 0
    assert out.read_text().count("# lower_operators") == 2


def test_a_roofline():
    found = Analyzer.analysis(product(8192), HOPPER)
    blocks = 128
    assert found.total_flops == 2 * 8192 * 128 * 256
    assert found.total_global_bytes == blocks * (4 * (64 * 64 + 64 * 128) + 64 * 128) * 2
    assert found.bound == "memory"
    assert found.estimated_time == pytest.approx(found.total_global_bytes / HOPPER.machine.bandwidth)
    assert found.expected_tflops == pytest.approx(found.total_flops / found.estimated_time / 1e12)
    assert found.expected_bandwidth_GBps == pytest.approx(HOPPER.machine.bandwidth / 1e9)


def test_a_roofline_of_dynamic_sizes():
    dynamic = product(T.dynamic("m"))
    assert Analyzer.analysis(dynamic, HOPPER, {"m": 8192}) == Analyzer.analysis(product(8192), HOPPER)
    with pytest.raises(InvalidArgument, match=r"does not know how many blocks"):
        Analyzer.analysis(dynamic, HOPPER)


def test_cached_kernels_are_not_compiled_anew(tmp_path, monkeypatch):
    """What watches compilations sees those alone that take place."""
    monkeypatch.delenv("TILELANG_DISABLE_CACHE", raising=False)
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))
    seen = []
    tilelang.kernel.observers.append(lambda func, target, artifact: seen.append(artifact.manifest.name))
    try:
        for _ in range(2):
            tilelang.compile(product(128).with_attr("global_symbol", "watched"), target="cpu")
    finally:
        tilelang.kernel.observers.pop()
    assert seen == ["watched"]
