"""The tile kernels that the CPU benchmarks time, written as a user writes them."""

from __future__ import annotations

import tilelang
import tilelang.language as T


@tilelang.jit(target="cpu", out_idx=[2])
def gemm(M, N, K, block_M, block_N, block_K, dtype="float32", out_dtype="float32"):
    """C (M, N) = A (M, K) @ B (K, N), accumulated in float32."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), out_dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit(target="cpu", out_idx=[3])
def flash_attention(batch, heads, tokens, dim, causal, block_M=64, block_N=64, dtype="float32"):
    """O = softmax(Q K^T / sqrt(dim)) V; tensors (batch, heads, tokens, dim), online softmax in float32."""
    scale = (1.0 / dim) ** 0.5 * 1.44269504  # exp2 instead of exp

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, tokens, dim), dtype),
        K: T.Tensor((batch, heads, tokens, dim), dtype),
        V: T.Tensor((batch, heads, tokens, dim), dtype),
        O: T.Tensor((batch, heads, tokens, dim), dtype),
    ):
        with T.Kernel(T.ceildiv(tokens, block_M), heads, batch) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            acc_s = T.alloc_fragment((block_M, block_N), "float32")
            acc_o = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_max_prev = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[bz, by, bx * block_M, 0], Q_shared)
            T.clear(acc_o)
            T.clear(total)
            T.fill(row_max, -T.infinity("float32"))
            steps = T.ceildiv((bx + 1) * block_M, block_N) if causal else T.ceildiv(tokens, block_N)
            for k in T.Pipelined(steps, num_stages=2):
                T.copy(K[bz, by, k * block_N, 0], K_shared)
                T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, clear_accum=True)
                if causal:
                    if (k + 1) * block_N > bx * block_M:
                        for i, j in T.Parallel(block_M, block_N):
                            acc_s[i, j] = T.if_then_else(
                                bx * block_M + i >= k * block_N + j, acc_s[i, j], -T.infinity("float32")
                            )
                T.copy(row_max, row_max_prev)
                T.reduce_max(acc_s, row_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    rescale[i] = T.exp2((row_max_prev[i] - row_max[i]) * scale)
                for i, j in T.Parallel(block_M, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - row_max[i] * scale)
                T.reduce_sum(acc_s, row_sum, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * rescale[i] + row_sum[i]
                for i, j in T.Parallel(block_M, dim):
                    acc_o[i, j] *= rescale[i]
                T.copy(V[bz, by, k * block_N, 0], V_shared)
                T.gemm(acc_s, V_shared, acc_o)
            for i, j in T.Parallel(block_M, dim):
                acc_o[i, j] /= total[i]
            T.copy(acc_o, O[bz, by, bx * block_M, 0])

    return main


@tilelang.jit(target="cpu")
def add(n):
    """C = A + B for n float32 values: what a call costs."""

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1) as _:
            for i in T.Parallel(n):
                B[i] = A[i] + B[i]

    return main
