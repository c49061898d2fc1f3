"""A histogram by atomic additions: each block counts in shared memory, then adds its counts to everybody's.

values: (N,) int32 in 0 .. bins - 1; counts: (bins,) int32. Reference: numpy.bincount; the result is exact.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T


def histogram(N, bins, block=256):
    """Two kernels in one function, run in order: the first clears the counts, the second counts."""

    @T.prim_func
    def main(values: T.Tensor((N,), "int32"), counts: T.Tensor((bins,), "int32")):
        with T.Kernel(1, threads=128):
            T.clear(counts)

        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            local = T.alloc_shared((bins,), "int32")
            T.clear(local)
            for i in T.Parallel(block):
                # Reads past the end give 0, which is a bin: they must not be counted.
                if bx * block + i < N:
                    T.atomic_add(local[values[bx * block + i]], 1)
            T.atomic_add(counts, local)  # the whole tile, element by element

    return main


DTYPE = "int32"
CASES = [{"N": 1024, "bins": 16}, {"N": 1000, "bins": 37}]


def check(target="cpu", execution="device", *, N, bins):
    """The error of the counts of random values."""
    values = np.random.default_rng(0).integers(0, bins, N, np.int32)
    kernel = tilelang.compile(histogram(N, bins), out_idx=[1], target=target, execution=execution)
    return relative_error(run(kernel, values), np.bincount(values, minlength=bins))


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
