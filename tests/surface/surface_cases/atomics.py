"""Atomic updates of elements and tiles (surface.md a.3, b.4, c.18)."""

import numpy as np

import tilelang.language as T
from surface_cases.case import Program, case, floats, ints


def update(name, reference, dtype="int32", start=5):
    """Every thread of four blocks updates one counter in global memory."""

    def program():
        @T.prim_func
        def main(A: T.Tensor((4, 8), dtype), B: T.Tensor((2,), dtype)):
            with T.Kernel(4, threads=8) as bx:
                for i in T.Parallel(8):
                    getattr(T, name)(B[1], A[bx, i])

        element = T.dtype(dtype).as_numpy()
        a = ints(4, 8, dtype=element) if element.kind == "i" else floats(4, 8, dtype=element)
        b = np.array([start, start], element)
        wide = a.astype(np.int64 if element.kind == "i" else np.float64)
        return Program(main, [a, b], [np.array([start, reference(wide, start)])], rtol=1e-5, atol=1e-5)

    case(f"T.{name}", title=f"{name} {dtype}")(program)


for _dtype in ("int32", "float32", "float64", "int64"):
    update("atomic_add", lambda a, s: a.sum() + s, _dtype)
    update("atomic_max", lambda a, s: max(a.max(), s), _dtype, start=1)
    update("atomic_min", lambda a, s: min(a.min(), s), _dtype, start=1)
update("atomic_or", lambda a, s: np.bitwise_or.reduce(a, None) | s)
update("atomic_and", lambda a, s: np.bitwise_and.reduce(a, None) & s)
update("atomic_xor", lambda a, s: np.bitwise_xor.reduce(a, None) ^ s)


def update_small(dtype):
    """The types that have no instruction of their own; the sums are exact in them."""

    def program():
        @T.prim_func
        def main(A: T.Tensor((4, 8), dtype), B: T.Tensor((2,), dtype)):
            with T.Kernel(4, threads=8) as bx:
                for i in T.Parallel(8):
                    T.atomic_add(B[1], A[bx, i])

        element = T.dtype(dtype).as_numpy()
        a = ints(4, 8, low=1, high=3).astype(element)
        return Program(main, [a, np.array([1, 2], element)], [np.array([1, a.astype(int).sum() + 2])])

    case(f"T.atomic_add ({dtype})", title=f"atomic_add {dtype}")(program)


for _dtype in ("float16", "bfloat16"):
    update_small(_dtype)


@case("T.atomic_add (tile, region, origin)", "T.atomic_add (scalar into a tile)")
def tiles():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "float32"), C: T.Tensor((6, 8), "float32")):
        with T.Kernel(2, threads=8):
            tile = T.alloc_fragment((4, 8), "float32")
            T.copy(A, tile)
            T.atomic_add(B, tile)
            T.atomic_add(C[0:4, 0:8], tile)
            T.atomic_add(C[2, 0], tile)
            T.atomic_add(C[5, :], 1.5)

    a, b, c = floats(4, 8), floats(4, 8, seed=1), floats(6, 8)
    want = c.astype(np.float64)
    want[:4] += 2 * a
    want[2:6] += 2 * a
    want[5] += 3
    return Program(main, [a, b, c], [b + 2.0 * a, want], rtol=1e-5, atol=1e-5)


@case("T.atomic_add (shared memory)")
def in_shared_memory():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            bins = T.alloc_shared((8,), "int32")
            T.clear(bins)
            for i in T.Parallel(64):
                T.atomic_add(bins[A[i]], 1)
            T.copy(bins, B)

    a = np.random.default_rng(0).integers(0, 8, 64).astype(np.int32)
    return Program(main, [a], [np.bincount(a, minlength=8)])


@case("T.atomic_add(return_prev=)")
def previous_value():
    @T.prim_func
    def main(A: T.Tensor((1,), "int32"), B: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(16):
                old = T.atomic_add(A[0], 3, return_prev=True)
                B[i] = old + old

    return Program(main, [np.array([4], np.int32), np.zeros(16, np.int32)], [2 * (4 + 3 * np.arange(16))])


@case("T.atomic_add(memory_order=)", "T.atomic_add(use_tma=)")
def orders():
    @T.prim_func
    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(2, threads=4):
            for i in T.Parallel(4):
                T.atomic_add(A[i], i, memory_order="acquire")
                T.atomic_add(A[i], 1, memory_order="release", use_tma=False)
                T.atomic_max(A[i], 0, memory_order="acq_rel")

    a = np.abs(ints(4))  # so that the maximum never counts, in whatever order the blocks run
    return Program(main, [a], [a + 2 * (np.arange(4) + 1)])


@case("T.atomic_addx2", "T.atomic_addx4")
def adjacent():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(2, threads=2):
            for i in T.Parallel(2):
                T.atomic_addx2(B[2 * i], A[2 * i])
            T.atomic_addx4(B[4], A[4])

    a, b = floats(8), floats(8, seed=1)
    want = b + 2.0 * a
    want[4:] = b[4:] + 4.0 * a[4:]  # each of the two threads adds
    return Program(main, [a, b], [want], rtol=1e-5, atol=1e-5)


@case("T.atomic_load", "T.atomic_store", "T.atomic_exchange")
def load_and_store():
    @T.prim_func
    def main(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32"), C: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=4):
            for i in T.Parallel(4):
                x = T.atomic_load(A[i], memory_order="acquire")
                T.atomic_store(B[i], x + 1, memory_order="release")
                C[i] = T.atomic_exchange(A[i], 7)

    a, zeros = ints(4), np.zeros(4, np.int32)
    return Program(main, [a, zeros, zeros], [np.full(4, 7), a + 1, a])


@case("T.atomic (the paper's spelling)", "T.atomic")
def by_name():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((3,), "int32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                T.atomic("add", B[0], A[i])
                T.atomic.max(B[1], A[i])
                T.atomic("min", B[2], A[i])

    a = ints(8)
    return Program(main, [a, np.zeros(3, np.int32)], [np.array([a.sum(), max(a.max(), 0), min(a.min(), 0)])])
