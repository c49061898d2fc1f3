"""In which order a loop issues products that hang on each other, when it lets go of their tiles, and what that computes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import tilelang
import tilelang.language as T

ROWS, KEYS, DIM = 64, 32, 256
TOKENS = 5 * KEYS


def latent_attention(stages: int) -> Any:
    """One tile is keys and values at once; each of two warpgroups has half of its columns and needs all weights."""
    policy = T.GemmWarpPolicy.FullCol

    @T.prim_func
    def main(
        Q: T.Tensor((ROWS, DIM), "float16"), KV: T.Tensor((TOKENS, DIM), "float16"), O: T.Tensor((ROWS, DIM), "float32")
    ):
        with T.Kernel(1, threads=256):
            q = T.alloc_shared((ROWS, DIM), "float16")
            kv = T.alloc_shared((KEYS, DIM), "float16")
            weights = T.alloc_shared((ROWS, KEYS), "float16")
            scores = T.alloc_fragment((ROWS, KEYS), "float32")
            out = T.alloc_fragment((ROWS, DIM), "float32")
            largest, before, rescale, part, total = (T.alloc_fragment((ROWS,), "float32") for _ in range(5))
            T.copy(Q, q)
            T.clear(out)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))
            for k in T.Pipelined(TOKENS // KEYS, num_stages=stages):
                T.copy(KV[k * KEYS : (k + 1) * KEYS, :], kv)
                T.gemm(q, kv, scores, transpose_B=True, policy=policy, clear_accum=True)
                T.copy(largest, before)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(ROWS):
                    rescale[i] = T.exp2(before[i] - largest[i])
                for i, j in T.Parallel(ROWS, KEYS):
                    scores[i, j] = T.exp2(scores[i, j] - largest[i])
                T.reduce_sum(scores, part, dim=1)
                T.copy(scores, weights)
                for i in T.Parallel(ROWS):
                    total[i] = total[i] * rescale[i] + part[i]
                for i, j in T.Parallel(ROWS, DIM):
                    out[i, j] *= rescale[i]
                T.gemm(weights, kv, out, policy=policy)
            for i, j in T.Parallel(ROWS, DIM):
                out[i, j] /= total[i]
            T.copy(out, O)

    return main


def compiled(stages: int) -> tuple[Any, list[str]]:
    """For the emulator, and what the consumers' loop does, in order."""
    kernel = tilelang.compile(latent_attention(stages), target="cuda -arch=sm_90a", execution="emulate")
    loop = kernel.get_kernel_source().split("for (int k = 0")[1].split("\n    }\n")[0]
    steps = r"wgmma_commit|if \(k > 0\)|wgmma_wait<\d>|kv_full|kv_empty|out\[c\] \*= |part_part\w*\[|scores\[c\] = |sync_threads"
    return kernel, re.findall(steps, loop)


def agrees(kernel: Any) -> None:
    rng = np.random.default_rng(0)
    q = (rng.standard_normal((ROWS, DIM)) / np.sqrt(DIM)).astype(np.float16)
    kv = rng.standard_normal((TOKENS, DIM)).astype(np.float16)
    got = np.zeros((ROWS, DIM), np.float32)
    kernel(q, kv, got)
    scores = q.astype(np.float64) @ kv.T.astype(np.float64)
    weights = np.exp2(scores - scores.max(1, keepdims=True))
    want = weights @ kv.astype(np.float64) / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(got, want, atol=3e-3)


def test_one_tile_for_both_products_in_two_versions() -> None:
    kernel, order = compiled(2)
    # The first instructions of Q K are issued behind P V of the iteration before; when that is done, its tile comes next.
    # (Outside of the condition the wait would make ptxas serialize products, as the output is scaled in the loop: C7514.)
    assert order[:5] == ["kv_full", "wgmma_commit", "if (k > 0)", "wgmma_wait<1>", "kv_empty"]
    # Weights and the scaled output are what P V needs; the sum of the weights is computed beside it.
    assert order.index("out[c] *= ") < order.index("part_part[")
    assert order.count("sync_threads") == 3
    agrees(kernel)


def test_one_tile_for_both_products_in_three_versions() -> None:
    kernel, order = compiled(3)
    # Q K of the next iteration and P V of this one, before either is waited for.
    assert order.index("kv_empty") > order.index("scores[c] = ") > order.index("wgmma_wait<1>")
    agrees(kernel)


def test_long_product_whose_first_operand_registers_hold_is_whole() -> None:
    @T.prim_func
    def halved(A: T.Tensor((64, 1024), "float16"), B: T.Tensor((16, 1024), "float16"), C: T.Tensor((64, 16))):  # type: ignore[no-untyped-def]
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 256), "float16"), T.alloc_shared((16, 256), "float16")
            half, c = T.alloc_fragment((64, 256), "float16"), T.alloc_fragment((64, 16), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 256], a)
                T.copy(B[0, k * 256], b)
                for i, j in T.Parallel(64, 256):
                    half[i, j] = a[i, j] * T.float16(0.5)
                T.gemm(half, b, c, transpose_B=True)
            T.copy(c, C)

    kernel = tilelang.compile(halved, target="cuda -arch=sm_90a", execution="emulate")
    assert kernel.get_kernel_source().count("wgmma_commit") == 1
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, 1024)).astype(np.float16) for rows in (64, 16))
    got = np.zeros((64, 16), np.float32)
    kernel(a, b, got)
    np.testing.assert_allclose(got, a.astype(np.float64) @ b.T.astype(np.float64) / 2, atol=1e-3)
