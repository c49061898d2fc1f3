"""The printer's HIP: kernels compile for gfx90a and gfx942 with clang alone."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx as tir
from tvm.tirx import AllocBuffer, BufferStore, SeqStmt

from tile_compiler.cfamily.dialect import HIP
from tile_compiler.cfamily.printer import KernelInput, print_source
from tile_compiler.targets.hip.plugin import headers
from tile_runtime import registry

from . import simt_kernels as simt
from .simt_kernels import UNROLLED, Load, at, buffer, do, local, loop, number, row, shared, var

device: Any = registry.device("rocm")


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


def test_mfma_gemm(golden: Any) -> None:
    golden(print_source([mfma_gemm()], HIP))


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_kernels_compile(arch: str) -> None:
    text = print_source([mfma_gemm(), simt.vector_add(var("n"), "float16", 8)], HIP)
    used = device.build(text, arch=arch, headers=headers()).resources
    assert used.keys() == {"mfma_kernel", "add_kernel"}
    assert all(kernel["spills"] == kernel["scratch"] == 0 for kernel in used.values())
