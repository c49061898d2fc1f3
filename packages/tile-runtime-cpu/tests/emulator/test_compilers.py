"""Each C++ compiler that this machine has builds the runtime and kernels of both vendors."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tile_runtime_cpu import emulator

KERNELS = Path(__file__).parent / "kernels"
COMMANDS = {"g++": "g++", "clang++": "clang++", "ziglang": f"{sys.executable} -m ziglang c++"}
INSTALLED: list[Any] = [name for name, command in COMMANDS.items() if shutil.which(command.split()[0])]
#: ziglang is a Python package of the test environment, so that one compiler always runs here; it builds its own C++ library
#: first (15 s), which is left to `nox -s full` where another compiler is installed.
if len(INSTALLED) > 1:
    INSTALLED[-1] = pytest.param("ziglang", marks=pytest.mark.full)


@pytest.mark.parametrize("kernel", ["gemm.cu", "gemm.hip"])
@pytest.mark.parametrize("name", INSTALLED)
def test_a_kernel_runs_as_each_compiler_builds_it(monkeypatch, watched, only_emulated, name, kernel):
    monkeypatch.setenv("CXX", COMMANDS[name])
    n = 64
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype("f2") for _ in range(2))
    c = np.full((n, n), np.nan, "f4")
    text = (KERNELS / kernel).read_text()
    threads = 128 if kernel.endswith(".cu") else 256
    module = emulator.compile(text)
    options = {"buffers": watched(A=a, B=b, O=c), "mode": "late", "seed": 1}
    module.launch("gemm", (1, 1), (threads,), 16384, [a, b, c, n, n], **options).check()
    np.testing.assert_allclose(c, a.astype("f4") @ b.astype("f4").T, rtol=0, atol=2e-5)
    fault = "tl::cp_async_wait<1>();" if kernel.endswith(".cu") else "tl::wait_loads<8>();"
    report = emulator.compile(text.replace(fault, "")).launch(
        "gemm", (1, 1), (threads,), 16384, [a, b, c, n, n], **options
    )
    assert {f.kind for f in report.errors} == {"read-in-flight"}
