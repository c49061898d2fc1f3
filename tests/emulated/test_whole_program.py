"""TILELANG_EXECUTION=emulate: a program for a GPU runs where there is none, on numpy arrays and CPU tensors."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2], target="{target}")
def product(M, N, K):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=128) as (bx, by):
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[by * 32, k * 32], a)
                T.copy(B[k * 32, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    return main


rng = np.random.default_rng(0)
A, B = (rng.standard_normal(s).astype("float16") for s in ((40, 72), (72, 56)))
kernel = product(40, 56, 72)
want = A.astype("float64") @ B.astype("float64")
for C in (kernel(A, B), kernel(torch.from_numpy(A), torch.from_numpy(B))):
    print(type(C).__module__, float(np.abs(np.asarray(C) - want).max()) < 1e-2)
print(kernel.get_kernel_source().splitlines()[0])
"""


@pytest.mark.parametrize(
    ("target", "header"),
    [
        ("cuda -arch=sm_80", "tl_cuda.cuh"),
        ("cuda -arch=sm_90a", "tl_cuda.cuh"),
        ("hip -mcpu=gfx90a", "tl_hip.h"),
        ("hip -mcpu=gfx942", "tl_hip.h"),
    ],
)
def test_a_program_runs_as_it_is(
    target: str, header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("{target}", target))
    monkeypatch.setenv("TILELANG_EXECUTION", "emulate")
    runpy.run_path(str(program), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == ["numpy True", "torch True", f'#include "{header}"']
