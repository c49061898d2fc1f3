"""A first kernel: C = relu(A @ B) on the CPU, with numpy. `python examples/quickstart.py`"""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2], target="cpu")
def matmul_relu(M, N, K, block_M=64, block_N=64, block_K=32):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), "float32")
            B_tile = T.alloc_shared((block_K, block_N), "float32")
            acc = T.alloc_fragment((block_M, block_N), "float32")

            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, acc)
            for i, j in T.Parallel(block_M, block_N):
                acc[i, j] = T.max(acc[i, j], 0)
            T.copy(acc, C[by * block_M, bx * block_N])

    return main


if __name__ == "__main__":
    M, N, K = 500, 300, 200  # none of them a multiple of its block
    rng = np.random.default_rng(0)
    A = rng.standard_normal((M, K), dtype=np.float32)
    B = rng.standard_normal((K, N), dtype=np.float32)

    kernel = matmul_relu(M, N, K)
    C = kernel(A, B)

    expected = np.maximum(A.astype(np.float64) @ B.astype(np.float64), 0)
    error = np.max(np.abs(C - expected)) / np.max(expected)
    source = kernel.get_kernel_source().splitlines()
    print(f"{kernel}\ncompiled to {len(source)} lines, among them")
    print("\n".join(f"    {line[:116]}" for line in source[:8]))
    print(f"relu(A @ B), {M} x {N} x {K}: largest error {error:.1e} of the largest element")
    if not error < 1e-5:
        raise SystemExit("the kernel disagrees with numpy")
    print("ok")
