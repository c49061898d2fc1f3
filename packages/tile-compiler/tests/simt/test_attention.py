"""FlashAttention forward: products in a chain, online softmax, pipelined keys and values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mutants import all_needed

import tilelang.language as T


def attention(
    seq_q: int, seq_kv: int, dim: int, rows: int, cols: int, causal: bool, stages: int, threads: int = 128
) -> Any:
    scale = math.log2(math.e) / math.sqrt(dim)
    past = seq_kv - seq_q

    @T.prim_func
    def main(
        Q: T.Tensor((seq_q, dim), "float16"),
        K: T.Tensor((seq_kv, dim), "float16"),
        V: T.Tensor((seq_kv, dim), "float16"),
        O: T.Tensor((seq_q, dim), "float16"),
    ):
        with T.Kernel(T.ceildiv(seq_q, rows), threads=threads) as bx:
            Q_tile = T.alloc_shared((rows, dim), "float16")
            K_tile = T.alloc_shared((cols, dim), "float16")
            V_tile = T.alloc_shared((cols, dim), "float16")
            scores = T.alloc_fragment((rows, cols), "float32")
            weights = T.alloc_fragment((rows, cols), "float16")
            out = T.alloc_fragment((rows, dim), "float32")
            largest = T.alloc_fragment((rows,), "float32")
            before = T.alloc_fragment((rows,), "float32")
            rescale = T.alloc_fragment((rows,), "float32")
            tile_sum = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(Q[bx * rows, 0], Q_tile)
            T.clear(out)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))
            tiles = T.ceildiv(seq_kv, cols)
            if causal:
                tiles = T.min(tiles, T.ceildiv((bx + 1) * rows + past, cols))
            for k in T.Pipelined(tiles, num_stages=stages):
                T.copy(K[k * cols, 0], K_tile)
                for i, j in T.Parallel(rows, cols):
                    seen = k * cols + j < seq_kv
                    if causal:
                        seen = seen and k * cols + j <= bx * rows + i + past
                    scores[i, j] = T.if_then_else(seen, 0, -T.infinity("float32"))
                T.gemm(Q_tile, K_tile, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(largest, before)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(rows):
                    rescale[i] = T.exp2((before[i] - largest[i]) * scale)
                for i, j in T.Parallel(rows, cols):
                    scores[i, j] = T.exp2((scores[i, j] - largest[i]) * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * rescale[i] + tile_sum[i]
                for i, j in T.Parallel(rows, dim):
                    out[i, j] *= rescale[i]
                T.copy(V[k * cols, 0], V_tile)
                T.copy(scores, weights)
                T.gemm(weights, V_tile, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(rows, dim):
                out[i, j] /= total[i]
            T.copy(out, O[bx * rows, 0])

    return main


@pytest.mark.parametrize(
    ("seq_q", "seq_kv", "dim", "rows", "cols", "causal", "stages"),
    [
        (128, 128, 64, 64, 64, False, 2),
        (100, 150, 64, 64, 64, True, 2),
        (64, 64, 32, 32, 32, True, 3),  # fewer rows of 16 than warps: weights go through shared memory
        (40, 75, 32, 64, 32, False, 1),
    ],
)
def test_forward(
    rng: Any, check: Any, seq_q: int, seq_kv: int, dim: int, rows: int, cols: int, causal: bool, stages: int
) -> None:
    func = attention(seq_q, seq_kv, dim, rows, cols, causal, stages)
    args = [rng.standard_normal((s, dim)).astype("float16") for s in (seq_q, seq_kv, seq_kv)]
    trace, ctx = check(func, [*args, np.zeros((seq_q, dim), "float16")], rtol=1e-2, atol=2e-3, passes=False)
    exchanged = any("through shared memory" in text for _, text in ctx.report.notes)
    assert exchanged == (rows == 32)
    assert all_needed(trace.steps[-1].after) >= 2
