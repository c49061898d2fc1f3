"""Threads by hand: sums of 128 neighbours by a tree in shared memory, as one writes them in CUDA.

X: (N,) float32; Y: (ceil(N / threads),) float32, one sum for each block. Reference: numpy, float64.
Tile operators and threads mix: everything below could stand next to a T.gemm.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T


def block_sums(N, threads=128, dtype="float32"):
    """Each thread brings one element; in every round the lower half of the threads adds the upper half's."""
    assert threads & (threads - 1) == 0

    @T.prim_func
    def main(X: T.Tensor((N,), dtype), Y: T.Tensor((-(-N // threads),), dtype)):
        with T.Kernel(T.ceildiv(N, threads), threads=threads) as bx:
            tx = T.get_thread_binding()
            partial = T.alloc_shared((threads,), dtype)
            half = T.alloc_var("int32", init=threads // 2)  # a variable of each thread; plain names are constants

            partial[tx] = X[bx * threads + tx]  # 0 past the end
            while half > 0:
                T.sync_threads()  # what the others wrote in the last round
                if tx < half:
                    partial[tx] += partial[tx + half]
                half = half // 2
            if tx == 0:
                Y[bx] = partial[0]

    return main


DTYPE = "float32"
CASES = [{"N": 1024, "threads": 128}, {"N": 1000, "threads": 64}]


def check(target="cpu", execution="device", *, N, threads):
    """The relative error of the sums of random numbers."""
    X = np.random.default_rng(0).standard_normal(N, dtype=np.float32)
    kernel = tilelang.compile(block_sums(N, threads), out_idx=[1], target=target, execution=execution)
    padded = np.pad(X.astype(np.float64), (0, -N % threads))
    return relative_error(run(kernel, X), padded.reshape(-1, threads).sum(axis=1))


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
