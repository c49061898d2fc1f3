"""Small kernels whose synchronization the user writes: `T.ws`, mbarriers, bulk copies; for the checker and the sweep."""

from __future__ import annotations

from typing import Any

import tilelang.language as T

HALF, WIDE = "float16", "float32"


def ring(steps: int, stages: int, arrivals: int = 256) -> Any:
    """C = A B: the third warpgroup brings tiles, the first two share a tile of C."""

    @T.prim_func
    def main(A: T.Tensor((128, 16 * steps), HALF), B: T.Tensor((16 * steps, 64), HALF), C: T.Tensor((128, 64), WIDE)):
        with T.Kernel(1, threads=384):
            a = T.alloc_shared((stages, 128, 16), HALF)
            b = T.alloc_shared((stages, 16, 64), HALF)
            c = T.alloc_fragment((128, 64), WIDE)
            full = T.alloc_barrier([128] * stages)
            empty = T.alloc_barrier([arrivals] * stages)
            with T.ws(2):
                T.dec_max_nreg(24)
                for i in T.serial(steps):
                    T.mbarrier_wait_parity(empty[i % stages], i // stages % 2 ^ 1)
                    T.tma_copy(A[0, i * 16], a[i % stages, :, :], barrier=full[i % stages])
                    T.tma_copy(B[i * 16, 0], b[i % stages, :, :], barrier=full[i % stages])
                    T.mbarrier_arrive(full[i % stages])
            with T.ws(0, 1):
                T.inc_max_nreg(240)
                T.clear(c)
                for i in T.serial(steps):
                    T.mbarrier_wait_parity(full[i % stages], i // stages % 2)
                    T.gemm(a[i % stages, :, :], b[i % stages, :, :], c)
                    T.mbarrier_arrive(empty[i % stages])
                T.copy(c, C)

    return main


def weights(steps: int, fenced: bool = True, own: bool = True) -> Any:
    """O = sum of (2 X) V: one warpgroup writes weights, the other multiplies by them and hands the tile back.

    At the end each says that it is done: by a barrier of its `own`, or by the one of the loop, whose last phase the other
    group need not have seen by then.
    """

    @T.prim_func
    def main(X: T.Tensor((64, 64 * steps), HALF), V: T.Tensor((64 * steps, 64), HALF), O: T.Tensor((64, 64), WIDE)):
        with T.Kernel(1, threads=256):
            w = T.alloc_shared((64, 64), HALF)
            v = T.alloc_shared((64, 64), HALF)
            total = T.alloc_shared((64,), WIDE)
            written, used, done = T.alloc_barrier(128), T.alloc_barrier(128), T.alloc_barrier(128)
            with T.ws(0):
                x = T.alloc_fragment((64, 64), HALF)
                count = T.alloc_fragment((64,), WIDE)
                T.clear(count)
                for i in T.serial(steps):
                    T.mbarrier_wait_parity(used, i % 2 ^ 1)
                    T.copy(X[0, i * 64], x)
                    for r, c in T.Parallel(64, 64):
                        w[r, c] = x[r, c] * T.float16(2)
                    T.copy(V[i * 64, 0], v)
                    for r in T.Parallel(64):
                        count[r] += 1
                    if fenced:
                        T.fence_proxy_async()
                    T.mbarrier_arrive(written)
                T.copy(count, total)
                T.mbarrier_arrive(done if own else written)
            with T.ws(1):
                o = T.alloc_fragment((64, 64), WIDE)
                T.clear(o)
                for i in T.serial(steps):
                    T.mbarrier_wait_parity(written, i % 2)
                    T.wgmma_gemm(w, v, o)
                    T.mbarrier_arrive(used)
                T.mbarrier_wait_parity(done if own else written, 0 if own else steps % 2)
                for r, c in T.Parallel(64, 64):
                    o[r, c] += total[r]
                T.copy(o, O)

    return main


def shared_out(rows: int) -> Any:
    """A block writes a tile together; two warpgroups read each other's part, one through its own copy of it."""

    @T.prim_func
    def main(A: T.Tensor((rows, 64), WIDE), B: T.Tensor((rows, 64), WIDE), C: T.Tensor((rows, 64), WIDE)):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((rows, 64), WIDE)
            t = T.alloc_shared((rows, 64), WIDE)
            T.copy(A, s)
            with T.ws(0):
                for i, j in T.Parallel(rows, 64):
                    t[i, j] = s[rows - 1 - i, j]
                for i, j in T.Parallel(rows, 64):
                    B[i, j] = t[i, 63 - j]
            for i, j in T.Parallel(rows, 64):
                C[i, j] = t[rows - 1 - i, j]

    return main


def turns(steps: int) -> Any:
    """Roles inside of a loop: one warpgroup fills a tile, the other adds it up."""

    @T.prim_func
    def main(A: T.Tensor((16 * steps, 64), WIDE), B: T.Tensor((16, 64), WIDE)):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((2, 16, 64), WIDE)
            total = T.alloc_fragment((16, 64), WIDE)
            full, empty = T.alloc_barrier([128, 128]), T.alloc_barrier([128, 128])
            with T.ws(0):
                T.clear(total)
            for i in T.serial(steps):
                with T.ws(1):
                    T.mbarrier_wait_parity(empty[i % 2], i // 2 % 2 ^ 1)
                    T.copy(A[i * 16, 0], s[i % 2, :, :])
                    T.mbarrier_arrive(full[i % 2])
                with T.ws(0):
                    T.mbarrier_wait_parity(full[i % 2], i // 2 % 2)
                    for r, c in T.Parallel(16, 64):
                        total[r, c] += s[i % 2, r, c]
                    T.mbarrier_arrive(empty[i % 2])
            with T.ws(0):
                T.copy(total, B)

    return main


def bulk(threads: int) -> Any:
    """A tile comes and goes by bulk copies; in between it is changed."""

    @T.prim_func
    def main(A: T.Tensor((16, 32), WIDE), B: T.Tensor((16, 32), WIDE)):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_shared((16, 32), WIDE)
            full = T.alloc_barrier(threads)
            T.tma_copy(A, tile, barrier=full)
            T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            for i, j in T.Parallel(16, 32):
                tile[i, j] = tile[i, j] + 1
            T.fence_proxy_async()
            T.sync_threads()
            T.tma_copy(tile, B)
            T.tma_store_wait()

    return main
