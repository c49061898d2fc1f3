"""Shared buffers that are never in use together share bytes, behind the barriers that this needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mutants import all_needed
from tvm import tirx as tir

import tilelang.language as T
from tilelang.ir import tile_ir


def staged(stages: int) -> Any:
    """A product whose result goes through a shared tile."""

    @T.prim_func
    def main(A: T.Tensor((64, 96), "float16"), B: T.Tensor((96, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c_tile = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(3, num_stages=stages):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, c_tile)
            T.copy(c_tile, C)

    return main


def offsets(func: Any) -> dict[str, int]:
    found = [
        n for n in tile_ir.walk(func.body) if isinstance(n, tir.AllocBuffer) and "tl.offset" in (n.annotations or {})
    ]
    return {str(n.buffer.name): int(tile_ir.plain(n.annotations["tl.offset"])) for n in found}


@pytest.mark.parametrize("stages", [0, 2, 3])
def test_epilogue_reuses_the_pipelines_tiles(rng: Any, proved: Any, stages: int) -> None:
    args = [rng.standard_normal(s).astype("float16") for s in ((64, 96), (96, 64))]
    trace, ctx = proved(staged(stages), [*args, np.zeros((64, 64), "float16")], 2e-2, 2e-2, passes=False)
    tiles = 2 * 4096 * max(stages, 1)
    assert ctx.shared_bytes == {0: max(tiles, 8192)}
    assert any(f"shared memory: {max(tiles, 8192)} bytes; {tiles + 8192} if" in text for _, text in ctx.report.notes)
    assert all_needed(trace.steps[-1].after) >= 3


def test_user_keeps_buffers_apart(lower: Any) -> None:
    trace, ctx = lower(staged(2), options={"tir.merge_static_smem": False})
    assert ctx.shared_bytes == {0: 2 * 8192 + 8192}
    assert len(set(offsets(trace.steps[-1].after).values())) == 3


def phases(keep: bool) -> Any:
    """Two phases with a tile each; with `keep` the second reads the first one's tile too."""

    @T.prim_func
    def main(A: T.Tensor((2048,), "float32"), B: T.Tensor((2048,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            first = T.alloc_shared((2048,), "float32")
            second = T.alloc_shared((2048,), "float32")
            x = T.alloc_fragment((2048,), "float32")
            T.copy(A, first)
            for i in T.Parallel(2048):
                x[i] = first[2047 - i] * 2
            for i in T.Parallel(2048):
                second[(i + 128) % 2048] = x[i]
            for i in T.Parallel(2048):
                if keep:
                    B[i] = second[i] + first[2047 - i]
                else:
                    B[i] = second[i]

    return main


@pytest.mark.parametrize("keep", [False, True])
def test_phases(rng: Any, proved: Any, keep: bool) -> None:
    args = [rng.standard_normal(2048).astype("float32"), np.zeros(2048, "float32")]
    trace, ctx = proved(phases(keep), args, passes=False)
    assert ctx.shared_bytes == {0: 16384 if keep else 8192}
    assert all_needed(trace.steps[-1].after) == (2 if keep else 3)


def test_small_buffers_are_not_worth_a_barrier(rng: Any, proved: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            first = T.alloc_shared((128,), "float32")
            second = T.alloc_shared((128,), "float32")
            T.copy(A, first)
            for i in T.Parallel(128):
                second[i] = first[127 - i]
            for i in T.Parallel(128):
                B[i] = second[127 - i]

    trace, ctx = proved(main, [rng.standard_normal(128).astype("float32"), np.zeros(128, "float32")], passes=False)
    assert ctx.shared_bytes == {0: 1024}
    assert all_needed(trace.steps[-1].after) == 2
