"""Memory of every scope, views, fill and clear (surface.md a.2)."""

import numpy as np

import tilelang.language as T
from surface_cases.case import Program, case, floats, ints, needs_compiler

SHAPE = (4, 32)


def through(allocate, names):
    """A case that moves a tensor through one tile made by `allocate`."""

    def program():
        @T.prim_func
        def main(A: T.Tensor(SHAPE, "float32"), B: T.Tensor(SHAPE, "float32")):
            with T.Kernel(1, threads=8):
                tile = allocate()
                T.copy(A, tile)
                for i, j in T.Parallel(*SHAPE):
                    tile[i, j] = tile[i, j] + 1
                T.copy(tile, B)

        a = floats(*SHAPE)
        return Program(main, [a], [a + np.float32(1)])

    case(*names, title=names[0])(program)


through(lambda: T.alloc_shared((4, 32), "float32"), ["T.alloc_shared"])
through(lambda: T.alloc_shared([4, 32], dtype="float32"), ["T.alloc_shared([..], dtype=)"])
through(lambda: T.alloc_shared(4, 32, dtype="float32"), ["T.alloc_shared (sizes as varargs)"])
through(lambda: T.alloc_shared((4, 32), "float32", scope="shared"), ["T.alloc_shared(scope=)"])
for _mode in ("128b", "64b", "32b"):
    through(
        lambda mode=_mode: T.alloc_shared((4, 32), "float32", layout=f"swizzle_{mode}"),
        [f'T.alloc_shared(layout="swizzle_{_mode}")'],
    )
through(lambda: T.alloc_fragment((4, 32), "float32"), ["T.alloc_fragment"])
through(lambda: T.alloc_fragment(4, 32, "float32"), ["T.alloc_fragment (sizes as varargs)"])
through(lambda: T.alloc_fragments((4, 32), "float32"), ["T.alloc_fragments"])
through(lambda: T.alloc_buffer((4, 32), "float32"), ["T.alloc_buffer"])
through(lambda: T.alloc_buffer((4, 32), "float32", scope="local.fragment"), ["T.alloc_buffer(scope=)"])


@case("T.alloc_local")
def alloc_local():
    @T.prim_func
    def main(A: T.Tensor((8, 4), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            mine = T.alloc_local((4,), "float32")
            for i in T.serial(4):
                mine[i] = A[tx, i]
            B[tx] = mine[0] + mine[3]

    a = floats(8, 4)
    return Program(main, [a], [a[:, 0] + a[:, 3]])


@case("T.alloc_local (inside T.Parallel)")
def alloc_local_of_an_iteration():
    @T.prim_func
    def main(A: T.Tensor((8, 4), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                mine = T.alloc_local((1,), "float32")
                mine[0] = 0
                for k in T.serial(4):
                    mine[0] += A[i, k]
                B[i] = mine[0]

    a = floats(8, 4)
    return Program(main, [a], [a.sum(1)], rtol=1e-5, atol=1e-5)


@case("T.alloc_var", "T.alloc_var(init=)")
def alloc_var():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=1):
            total = T.alloc_var("int32", init=5)
            count = T.alloc_var(T.int32)
            count = 0
            for i in T.serial(8):
                total += A[i]
                if A[i] > 0:
                    count = count + 1
            B[0] = total
            B[1] = count

    a = ints(8)
    return Program(main, [a], [np.array([5 + a.sum(), (a > 0).sum()])])


@case("T.clear", "T.fill")
def fill_and_clear():
    @T.prim_func
    def main(B: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_fragment((4, 8), "float32")
            T.clear(tile)
            T.fill(tile[1:3, 2:6], 3.5)
            T.fill(tile[0, 0], -1)
            T.copy(tile, B)

    want = np.zeros((4, 8))
    want[1:3, 2:6] = 3.5
    want[0, 0] = -1
    return Program(main, [], [want])


@case("T.infinity", "T.max_value", "T.min_value")
def limits():
    @T.prim_func
    def main(A: T.Tensor((3,), "float32"), B: T.Tensor((4,), "int64")):
        with T.Kernel(1, threads=1):
            A[0] = -T.infinity("float32")
            A[1] = T.infinity("float16")
            A[2] = T.max_value("float16")
            B[0] = T.max_value("int32")
            B[1] = T.min_value("int32")
            B[2] = T.max_value("uint8")
            B[3] = T.min_value("int4")

    integers = np.array([2**31 - 1, -(2**31), 255, -8])
    return Program(main, [], [np.array([-np.inf, np.inf, 65504]), integers])


@case("T.reshape")
def reshape():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((8, 4), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((4, 8), "float32")
            T.copy(A, tile)
            T.copy(T.reshape(tile, (8, 4)), B)

    a = floats(4, 8)
    return Program(main, [a], [a.reshape(8, 4)])


@case("T.view")
def view():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "int32"), C: T.Tensor((4, 16), "uint16")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((4, 8), "float32")
            T.copy(A, tile)
            T.copy(T.view(tile, dtype="int32"), B)
            T.copy(T.view(tile, (4, 16), "uint16"), C)

    a = floats(4, 8)
    return Program(main, [a], [a.view(np.int32), a.view(np.uint16)])


@case("T.SharedBuffer", "T.FragmentBuffer")
def buffer_annotations_of_macros():
    @T.macro
    def add(x: T.SharedBuffer((8,), "float32"), y: T.FragmentBuffer((8,), "float32")):
        for i in T.Parallel(8):
            y[i] += x[i]

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            x = T.alloc_shared((8,), "float32")
            y = T.alloc_fragment((8,), "float32")
            T.copy(A, x)
            T.fill(y, 2)
            add(x, y)
            T.copy(y, B)

    a = floats(8)
    return Program(main, [a], [a + np.float32(2)])


def _sum_of_four(pointer):
    return np.float32(sum(pointer.load(i) for i in range(4)))


@case("T.access_ptr", "T.address_of")
def addresses(mode):
    source = "float sum_of_four(const float* x) { return x[0] + x[1] + x[2] + x[3]; }"

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((2,), "float32")):
        with T.Kernel(1, threads=1):
            T.import_source(source, meaning={"sum_of_four": _sum_of_four})
            B[0] = T.call_extern("float32", "sum_of_four", T.access_ptr(A[0], "r"))
            B[1] = T.call_extern("float32", "sum_of_four", T.address_of(A[4]))

    a = floats(8)
    needs_compiler(mode)
    Program(main, [a], [a.reshape(2, 4).sum(1)], rtol=1e-5, atol=1e-5).run(mode)


@case("T.evaluate")
def evaluate():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            T.evaluate(A[0] + 1)
            T.copy(A, B)

    a = ints(8)
    return Program(main, [a], [a])


@case("A[...] and too few indices")
def open_indices():
    @T.prim_func
    def main(A: T.Tensor((3, 4, 8), "float32"), B: T.Tensor((4, 8), "float32"), C: T.Tensor((3, 4, 8), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((4, 8), "float32")
            T.copy(A[1], tile)
            T.copy(tile, B[...])
            T.copy(A[...], C[..., 0:8])

    a = floats(3, 4, 8)
    return Program(main, [a], [a[1], a])
