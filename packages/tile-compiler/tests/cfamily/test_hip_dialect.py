"""The printer's HIP: kernels compile for gfx90a and gfx942 with clang alone, against a header of this test's own."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tvm import tirx as tir
from tvm.tirx import AllocBuffer, BufferStore, SeqStmt

from tile_compiler.cfamily.dialect import HIP
from tile_compiler.cfamily.printer import KernelInput, print_source

from . import simt_kernels as simt
from .simt_kernels import UNROLLED, Load, at, buffer, do, local, loop, number, row, shared, var

HEADER = Path(__file__).with_name("tiny_hip.h")
# These work in clang 17 and newer and in zig's clang, without ROCm.
FLAGS = ["-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "--no-gpu-bundle-output", "-O3", "-std=c++17"]


def clang() -> list[str] | None:
    """A clang with the amdgcn target: clang 17 and newer, else zig's."""
    for version in range(24, 16, -1):
        program = shutil.which(f"clang++-{version}")
        if program:
            targets = subprocess.run([program, "--print-targets"], capture_output=True, text=True, check=False).stdout
            if "amdgcn" in targets:
                return [program]
    return [sys.executable, "-m", "ziglang", "clang"] if importlib.util.find_spec("ziglang") else None


CLANG = clang()
needs_clang = pytest.mark.skipif(
    CLANG is None, reason="NO HIP COMPILER: neither clang++ 17 or newer nor ziglang is here"
)


def mfma_gemm(k: int = 256) -> KernelInput:
    """One wave makes a 16 x 16 tile of A @ B^T."""
    a, b, c = buffer("A", (64, k), "float16"), buffer("B", (64, k), "float16"), buffer("C", (64, 64))
    a_shared = buffer("A_shared", (16 * k,), "float16", "shared.dyn")
    x, y, acc = local("x", 4, "float16"), local("y", 4, "float16"), local("acc", 4)
    bx, tx = var("bx"), var("tx")
    lane_row, lane_col = tir.floormod(tx, 16), tir.floordiv(tx, 16) * 4

    def copy(i: Any) -> Any:
        place = [row((i * 64 + tx) * 8, 8)]
        source = [tir.floordiv(i * 64 + tx, number(k // 8)), row(tir.floormod(i * 64 + tx, number(k // 8)) * 8, 8)]
        return BufferStore(a_shared, Load(a, source), place)

    def step(ko: Any) -> Any:
        left = Load(a_shared, [row(lane_row * k + ko * 16 + lane_col, 4)])
        right = Load(b, [bx * 16 + lane_row, row(ko * 16 + lane_col, 4)])
        every = [row(number(0), 4)]
        product = do("tl::mfma_16x16x16_f32_f16", at(acc, number(0)), at(x, number(0)), at(y, number(0)))
        return SeqStmt([BufferStore(x, left, every), BufferStore(y, right, every), product])

    body = SeqStmt(
        [
            shared(a_shared, 0),
            *(AllocBuffer(v) for v in (x, y, acc)),
            loop(4, lambda i: BufferStore(acc, tir.FloatImm("float32", 0.0), [i]), "i", UNROLLED),
            loop(16 * k // 512, copy, "i", UNROLLED),
            do("tl::sync_threads"),
            loop(k // 16, step, "ko"),
            loop(4, lambda i: BufferStore(c, Load(acc, [i]), [lane_col + i, bx * 16 + lane_row]), "i", UNROLLED),
        ]
    )
    return KernelInput("mfma_kernel", (a, b, c), (), ((bx, number(4)),), ((tx, number(64)),), body)


def assembly(text: str, arch: str, folder: Path) -> str:
    (folder / HIP.header).write_text(HEADER.read_text())
    (folder / "kernel.hip").write_text(text)
    command = [*(CLANG or []), *FLAGS, f"--offload-arch={arch}", "-I.", "-S", "-o", "kernel.s", "kernel.hip"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "kernel.s").read_text()


def test_mfma_gemm(golden: Any) -> None:
    golden(print_source([mfma_gemm()], HIP))


@needs_clang
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_kernels_compile(arch: str, tmp_path: Path) -> None:
    text = print_source([mfma_gemm(), simt.vector_add(var("n"), "float16", 8)], HIP)
    made = assembly(text, arch, tmp_path)
    assert "v_mfma_f32_16x16x16" in made
    assert "global_load_dwordx4" in made
    assert "ds_write_b128" in made
    assert set(re.findall(r"\.vgpr_spill_count:\s+(\d+)", made)) == {"0"}
