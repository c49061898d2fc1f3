"""One int8 product by three kinds of instructions (paper, figures 9 and 10): IMAD, DP4A and MMA.

A: (M, K) int8, B: (N, K) int8, C: (M, N) int32, C = A @ B.T. Reference: numpy, int64.

| method | how |
| --- | --- |
| `imad` | `T.Parallel` and integer arithmetic: one multiply-add for each pair of bytes |
| `source` | `T.import_source` and `T.call_extern`: a C function around `__dp4a`, four pairs at once |
| `ptx` | `T.ptx("dp4a.s32.s32", ...)`: the same instruction by its opcode |
| `mma` | `T.gemm`: tensor cores, 16 x 8 x 32 pairs at once |
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T

# The device's intrinsic where a GPU's compiler reads this; plain C where the CPU or the emulator does.
DOT4 = """
TL_DEVICE int dot4(const int8_t *a, const int8_t *b, int c) {
#if defined(TL_HOST)
  for (int i = 0; i < 4; ++i) c += a[i] * b[i];
  return c;
#else
  return __dp4a(*(const int *)a, *(const int *)b, c);
#endif
}
"""


def dot4(a, b, c):
    """What `dot4` does, on pointers of the interpreter."""
    return int(c) + sum(int(a.load(i)) * int(b.load(i)) for i in range(4))


def dp4a(a, b, c):
    """What the instruction does, on 32-bit words of four bytes."""
    x, y = (np.asarray(word).astype(np.int32).reshape(1).view(np.int8).astype(np.int64) for word in (a, b))
    return int(c) + int(x @ y)


def product(M, N, K, method, block_M=16, block_N=16, block_K=32):
    @T.prim_func
    def main(A: T.Tensor((M, K), "int8"), B: T.Tensor((N, K), "int8"), C: T.Tensor((M, N), "int32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=64) as (bn, bm):
            A_tile = T.alloc_shared((block_M, block_K), "int8")
            B_tile = T.alloc_shared((block_N, block_K), "int8")
            acc = T.alloc_fragment((block_M, block_N), "int32")
            if method == "source":
                T.import_source(DOT4, meaning={"dot4": dot4})
            T.clear(acc)
            for ko in T.serial(T.ceildiv(K, block_K)):
                T.copy(A[bm * block_M, ko * block_K], A_tile)
                T.copy(B[bn * block_N, ko * block_K], B_tile)
                if method == "mma":
                    T.gemm(A_tile, B_tile, acc, transpose_B=True)
                elif method == "imad":
                    for i, j in T.Parallel(block_M, block_N):
                        for k in T.serial(block_K):
                            acc[i, j] += T.cast(A_tile[i, k], "int32") * T.cast(B_tile[j, k], "int32")
                elif method == "source":
                    for i, j in T.Parallel(block_M, block_N):
                        for k in T.serial(block_K // 4):
                            acc[i, j] = T.call_extern(
                                "int32",
                                "dot4",
                                T.address_of(A_tile[i, k * 4]),
                                T.address_of(B_tile[j, k * 4]),
                                acc[i, j],
                            )
                else:
                    A_words = T.view(A_tile, (block_M, block_K // 4), "int32")
                    B_words = T.view(B_tile, (block_N, block_K // 4), "int32")
                    for i, j in T.Parallel(block_M, block_N):
                        for k in T.serial(block_K // 4):
                            acc[i, j] = T.ptx(
                                "dp4a.s32.s32", A_words[i, k], B_words[j, k], acc[i, j], dtype="int32", meaning=dp4a
                            )
            T.copy(acc, C[bm * block_M, bn * block_N])

    return main


DTYPE = "int32"
METHODS = ("imad", "source", "ptx", "mma")
CASES = [{"M": M, "N": N, "K": K, "method": method} for M, N, K in ((32, 16, 64), (20, 25, 36)) for method in METHODS]


def check(target="cpu", execution="device", *, M, N, K, method):
    """The relative error, which must be 0. A CPU has no PTX: there the interpreter runs that method."""
    if method == "ptx" and not target.startswith("cuda"):
        execution = "interpret"
    rng = np.random.default_rng(M)
    A, B = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((M, K), (N, K)))
    C = run(tilelang.compile(product(M, N, K, method), out_idx=[2], target=target, execution=execution), A, B)
    return relative_error(C, A.astype(np.int64) @ B.astype(np.int64).T)


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
