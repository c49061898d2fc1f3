"""A grid that is known to have no blocks: the kernel compiles for every target, and a call leaves its results as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T


def product(rows: int, blocks: int) -> Any:
    """Sums over 128 in tiles of 64 x 64 x 32, written to one tile of C by every block."""

    @T.prim_func
    def main(A: T.Tensor((rows, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, blocks, threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[by * 64, k * 32], a)
                T.copy(B[k * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return main


@pytest.mark.parametrize(
    ("target", "rows"),
    [
        ("cpu", 0),
        ("cuda -arch=sm_80", 0),
        ("cuda -arch=sm_90a", 0),
        ("cuda -arch=sm_90a", 64),
        ("hip -mcpu=gfx942", 0),
    ],
)
def test_no_blocks(target: str, rows: int) -> None:
    """Without rows of A, or with them: then the tensor memory accelerator could bring tiles."""
    how = {} if target == "cpu" else {"execution": "emulate"}
    kernel = tilelang.compile(product(rows, 0), target=target, **how)
    result = torch.full((64, 64), 7.0)
    kernel(torch.ones(rows, 128).half(), torch.ones(128, 64).half(), result)
    assert (result == 7).all()
    report = kernel.report()
    if "cuda" in target:
        assert report["kernels"][0]["grid"] == ["1", "0"]
        assert report["kernels"][0]["accesses"] == []
    if "sm_90a" in target:
        said = [note["text"] for note in report["notes"]]
        assert "sums in one block: there are no tiles" in said
        assert any("A has no elements" in why for o in report["kernels"][0]["operators"] for why in o["why"]) == (
            not rows
        )
