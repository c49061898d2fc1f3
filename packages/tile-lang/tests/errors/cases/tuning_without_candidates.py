"""Every configuration asks for more than the target has."""

import tilelang
import tilelang.language as T


@tilelang.autotune(configs={"block": [256, 512]}, verbose=False)
@tilelang.jit(target="cuda -arch=sm_80")
def matmul(M, N, K, block=128):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block, 32), "float16")
            B_shared = T.alloc_shared((32, block), "float16")
            C_local = T.alloc_fragment((block, block), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=3):
                T.copy(A[by * block, k * 32], A_shared)
                T.copy(B[k * 32, bx * block], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block, bx * block])

    return main


matmul(1024, 1024, 1024)


# --- what the user sees
# TuningFailed: [TL133] no configuration of matmul can be used
#   --> tuning_without_candidates.py:26   matmul(1024, 1024, 1024)
#   found:    2 configurations: 2 pruned, 0 failed
#             registers: C_local alone takes 512 in each of 128 threads, a thread has 255
#             shared memory: 196608 bytes (A_shared 98304, B_shared 98304) at once, a block has at most 166912
#   expected: at least one that compiles, runs and computes what the others or the reference compute
#   try:      look at the first reason: it is the compiler's or the model's own; then widen the configurations
