"""Looking into a kernel: printing from it, asserting in it, and watching its buffers in the interpreter.

X, Y: (M, N) float32; each row is divided by its sum, which must be positive. Reference: numpy, float64.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T
from tilelang import interpret


def normalize(M, N, block_M=8, block_N=32, dtype="float32"):
    """A block takes `block_M` rows; the first one says what it found."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        print(f"  (tracing for {M} x {N}: plain Python runs once, when the kernel is made)")
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bm:
            X_tile = T.alloc_shared((block_M, block_N), dtype)
            total = T.alloc_fragment((block_M,), dtype)

            T.clear(total)
            for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                T.copy(X[bm * block_M, k * block_N], X_tile)
                T.reduce_sum(X_tile, total, dim=1, clear=False)
            if bm == 0:
                T.print(total, msg="row sums of the first block")  # runs in the kernel, on every target
            for i in T.Parallel(block_M):
                if bm * block_M + i < M:
                    T.device_assert(total[i] > 0, "a row has no positive sum")

            for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                T.copy(X[bm * block_M, k * block_N], X_tile)
                for i, j in T.Parallel(block_M, block_N):
                    X_tile[i, j] /= total[i]
                T.copy(X_tile, Y[bm * block_M, k * block_N])

    return main


def watch_running_sums(func, X):
    """Interpret the kernel and collect the content of `total` of block 0 each time that it has changed."""
    seen = []

    def hook(operator, block, arrays):
        # Called before every tile operator and parallel loop, with its block's buffers as live numpy arrays. A good
        # place for breakpoint(), too. Until something is written, memory holds NaN bytes.
        if block == (0,) and "total" in arrays:
            total = arrays["total"].copy()
            if not np.isnan(total).any() and (not seen or not np.array_equal(total, seen[-1])):
                seen.append(total)

    interpret.hook = hook
    try:
        tilelang.compile(func, out_idx=[1], execution="interpret")(X)
    finally:
        interpret.hook = None
    return seen


DTYPE = "float32"
CASES = [{"M": 16, "N": 64}, {"M": 10, "N": 75}]


def check(target="cpu", execution="device", *, M, N):
    """The relative error on random rows; infinity if the assertion or the hook fail to do their work."""
    X = np.random.default_rng(0).uniform(0.1, 1, (M, N)).astype(np.float32)
    func = normalize(M, N)
    kernel = tilelang.compile(func, out_idx=[1], target=target, execution=execution)
    exact = X.astype(np.float64)
    errors = [relative_error(run(kernel, X), exact / exact.sum(axis=1, keepdims=True))]

    if execution == "device" and kernel.target.kind != "cpu":
        print("  no broken input: a GPU prints what failed, and the process cannot use it any more")
    else:
        broken = X.copy()
        broken[M - 1] *= -1
        try:
            run(kernel, broken)
        except RuntimeError as error:
            print(f"  the broken input was noticed: {str(error).splitlines()[0]}")
            errors.append(0.0 if "a row has no positive sum" in str(error) else np.inf)
        else:
            errors.append(np.inf)

    # The sums start at 0 and grow tile by tile.
    tiles = np.add.reduceat(exact[:8], range(0, N, 32), axis=1)
    expected = np.concatenate([np.zeros((1, 8)), np.cumsum(tiles, axis=1).T])
    errors.append(relative_error(watch_running_sums(func, X), expected))
    return max(errors)


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
