"""C = A + B, element by element: a grid of blocks, a parallel loop, and an edge that no one has to mention.

A, B, C: (N,) float32. Reference: numpy.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T


def vector_add(N, block=256, dtype="float32"):
    """A kernel for vectors of N elements; each block adds `block` of them."""

    @T.prim_func
    def add(A: T.Tensor((N,), dtype), B: T.Tensor((N,), dtype), C: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            # 256 iterations, 128 threads: the compiler gives each thread two neighbours. In the last block some of
            # them lie outside of the vectors: those reads give 0 and those writes are dropped.
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] + B[bx * block + i]

    return add


DTYPE = "float32"
CASES = [{"N": 1024}, {"N": 1000}, {"N": 1}]


def check(target="cpu", execution="device", *, N):
    """The relative error of one launch on random vectors."""
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, N), dtype=np.float32)
    kernel = tilelang.compile(vector_add(N), out_idx=[2], target=target, execution=execution)
    return relative_error(run(kernel, A, B), A.astype(np.float64) + B)


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
