"""Hints, debugging, other languages (surface.md a.4 to a.6)."""

import numpy as np
import pytest

import tilelang.language as T
from surface_cases.case import TRACES, Program, build, case, floats, ints, needs_compiler


def swizzled(names, *args, **keywords):
    def program():
        @T.prim_func
        def main(A: T.Tensor((24, 40), "float32"), B: T.Tensor((24, 40), "float32")):
            with T.Kernel(5, 6, threads=8) as (bx, by):
                T.use_swizzle(*args, **keywords)
                tile = T.alloc_shared((4, 8), "float32")
                T.copy(A[by * 4, bx * 8], tile)
                T.copy(tile, B[by * 4, bx * 8])

        a = floats(24, 40)
        return Program(main, [a], [a])

    case(*names, title=names[0])(program)


swizzled(["T.use_swizzle", "T.use_swizzle (positional)"], 10)
swizzled(["T.use_swizzle(panel_size=)"], panel_size=4)
for _order in ("row", "column", "col"):
    swizzled([f'T.use_swizzle(order="{_order}")'], panel_size=4, order=_order)
swizzled(["T.use_swizzle(enable=)"], panel_size=4, enable=False)


@case("T.annotate_safe_value")
def safe_value():
    @T.prim_func
    def main(A: T.Tensor((5,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            T.annotate_safe_value({A: -2.5})
            tile = T.alloc_shared((8,), "float32")
            T.copy(A[0], tile)
            T.copy(tile, B)

    a = floats(5)
    return Program(main, [a], [np.concatenate([a, np.full(3, -2.5)])])


@case("T.prefetch")
def prefetch():
    @T.prim_func
    def main(A: T.Tensor((24, 40), "float32"), B: T.Tensor((24, 40), "float32")):
        with T.Kernel(5, 6, threads=8) as (bx, by):
            T.prefetch(A[by * 4 + 4 : by * 4 + 8, bx * 8 : bx * 8 + 8])
            tile = T.alloc_shared((4, 8), "float32")
            T.copy(A[by * 4, bx * 8], tile)
            T.copy(tile, B[by * 4, bx * 8])

    a = floats(24, 40)
    return Program(main, [a], [a])


@case("T.annotate_l2_hit_ratio", "T.annotate_min_blocks_per_sm")
def other_annotations():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            T.annotate_l2_hit_ratio({A: 0.5})
            T.annotate_min_blocks_per_sm(2)
            T.copy(A, B)

    a = floats(8)
    return Program(main, [a], [a])


@case("T.assume")
def assume():
    m = T.dynamic("m")

    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((m,), "float32")):
        with T.Kernel(T.ceildiv(m, 8), threads=8) as bx:
            T.assume(m % 8 == 0)
            T.copy(A[bx * 8 : bx * 8 + 8], B[bx * 8 : bx * 8 + 8])

    a = floats(16)
    return Program(main, [a], [a])


def printed(func, mode, arguments):
    """What a kernel prints: the interpreter through Python, the CPU from its threads."""
    import contextlib
    import io

    heard = io.StringIO()
    with contextlib.redirect_stdout(heard):
        build(func, mode)(*arguments)
    return heard.getvalue()


@case("T.print", "T.print(msg=)")
def prints(mode):
    @T.prim_func
    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=4) as bx:
            tile = T.alloc_shared((4,), "int32")
            T.copy(A, tile)
            T.print(tile)
            if bx == 0:
                T.print(tile[2], msg="the third")

    a = np.array([11, 22, 33, 44], np.int32)
    if mode == TRACES:
        return Program(main, [a], []).run(mode)
    text = printed(main, mode, [a])
    assert "the third" in text
    assert all(str(x) in text for x in a)
    return None


@case("T.device_assert")
def device_assert(mode):
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                T.device_assert(A[i] > 0, "an element is not positive")

    a = np.abs(ints(8))
    Program(main, [a], [a]).run(mode)
    if mode == TRACES:
        return
    a[3] = -1
    with pytest.raises(Exception, match="an element is not positive"):
        build(main, mode)(a)


SOURCE = "__device__ int dot(int a, int b) { return a * b; }"


@case("T.import_source", "T.call_extern", "T.call_extern (dtype second)")
def foreign_functions(mode):
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((2, 8), "int32")):
        with T.Kernel(1, threads=8):
            T.import_source(SOURCE, meaning={"dot": lambda a, b: a * b})
            for i in T.Parallel(8):
                B[0, i] = T.call_extern("int32", "dot", A[i], 3)
                B[1, i] = T.call_extern("dot", "int32", A[i], A[i])

    a = ints(8)
    needs_compiler(mode)
    Program(main, [a], [np.stack([a * 3, a * a])]).run(mode)


@case("T.ptx", empty={"CPU": "an instruction of NVIDIA GPUs: the CPU target refuses the kernel"})
def inline_ptx():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                B[i] = T.ptx("mul.lo.s32", A[i], 3, dtype="int32", meaning=lambda a, b: a * b)

    a = ints(8)
    return Program(main, [a], [a * 3])
