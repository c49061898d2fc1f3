"""T.gemm taught an instruction of one's own: `dp2a`, two products of a 16-bit and an 8-bit integer at once.

A: (M, K) int16, B: (N, K) int8, C: (M, N) int32. Reference: numpy, int64 (the sums here fit into int32).
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T
from tile_compiler.instructions import MatrixMultiply, register
from tilelang.layout import Fragment

# PTX ISA, "Integer Arithmetic Instructions: dp2a": d = c + a.half0 * b.byte0 + a.half1 * b.byte1.
# The emulator runs the other branch, on the host.
HEADER = """
__device__ inline void dp2a_s16_s8(void* c, const void* a, const void* b) {
#if defined(__CUDA_ARCH__)
  unsigned short bytes = *(const unsigned short*)b;
  asm("dp2a.lo.s32.s32 %0, %1, %2, %0;" : "+r"(*(int*)c) : "r"(*(const int*)a), "r"((int)bytes));
#else
  const short* x = (const short*)a;
  const signed char* y = (const signed char*)b;
  *(int*)c += x[0] * y[0] + x[1] * y[1];
#endif
}
"""

# One thread's instruction: A is (1, 2), B (2, 1), C (1, 1), all in lane 0, elements in order. An instruction of a whole
# warp says lanes=32, and its fragments say which lane holds what.
register(
    MatrixMultiply(
        name="dp2a_s16_s8",
        text="dp2a.lo.s32.s32",
        m=1,
        n=1,
        k=2,
        a="int16",
        b="int8",
        c="int32",
        a_fragment=Fragment((1, 2), lambda i, k: (0, k)),
        b_fragment=Fragment((2, 1), lambda k, j: (0, k)),
        c_fragment=Fragment((1, 1), lambda i, j: (0, 0)),
        lanes=1,
        architectures=("sm_61+",),
        source="PTX ISA 8.7, 9.7.1.24 dp2a",
        header=HEADER,
    )
)


def product(M, N, K, block_M=32, block_N=32, block_K=32):
    """C = A @ B^T. No target has a matrix instruction for these types; with the declaration above CUDA has dp2a."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "int16"), B: T.Tensor((N, K), "int8"), C: T.Tensor((M, N), "int32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), "int16")
            B_tile = T.alloc_shared((block_N, block_K), "int8")
            acc = T.alloc_fragment((block_M, block_N), "int32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[bx * block_N, k * block_K], B_tile)
                T.gemm(A_tile, B_tile, acc, transpose_B=True)
            T.copy(acc, C[by * block_M, bx * block_N])

    return main


DTYPE = "int32"
CASES = [{"M": 64, "N": 64, "K": 64}, {"M": 50, "N": 70, "K": 36}]


def check(target="cpu", execution="device", *, M, N, K):
    """The relative error of one product of random matrices."""
    rng = np.random.default_rng(0)
    A = rng.integers(-1000, 1000, (M, K)).astype(np.int16)
    B = rng.integers(-128, 128, (N, K)).astype(np.int8)
    C = run(tilelang.compile(product(M, N, K), out_idx=[2], target=target, execution=execution), A, B)
    return relative_error(C, A.astype(np.int64) @ B.astype(np.int64).T)


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
