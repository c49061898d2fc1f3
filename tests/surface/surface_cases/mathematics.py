"""Scalar mathematics, casts, bits (surface.md a.3, b.2)."""

import math

import numpy as np

import tilelang.language as T
from surface_cases.case import Program, case, floats, ints, positive


def elementwise(name, reference, data=floats, dtype="float32", rtol=2e-6, atol=2e-6, label=""):
    """A case that applies a function of one argument."""

    def program():
        function = getattr(T, name)

        @T.prim_func
        def main(A: T.Tensor((64,), dtype), B: T.Tensor((64,), dtype)):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(64):
                    B[i] = function(A[i])

        element = T.dtype(dtype).as_numpy()
        a = data(64, dtype=element)
        wide = a if element.kind in "iu" else a.astype(np.float64)
        return Program(main, [a], [reference(wide)], rtol, atol)

    case(f"T.{name}", title=f"{name} {dtype}{label}")(program)


def unit(*shape, **options):
    """Within (-1, 1)."""
    return (floats(*shape, **options) / 2.5).astype(options["dtype"])


def above_one(*shape, **options):
    return (positive(*shape, **options) + 1).astype(options["dtype"])


_erf = np.vectorize(math.erf)

for _name in "exp exp2 sin cos tan sinh cosh tanh".split():
    elementwise(_name, getattr(np, _name), rtol=4e-6)
for _name in "log log2 log10 log1p sqrt".split():
    elementwise(_name, getattr(np, _name), positive, rtol=4e-6)
elementwise("exp10", lambda x: 10.0**x, rtol=4e-6)
elementwise("rsqrt", lambda x: x**-0.5, positive)
elementwise("sigmoid", lambda x: 1 / (1 + np.exp(-x)))
elementwise("erf", _erf)
for _name in "asin acos atanh".split():
    elementwise(_name, getattr(np, _name.replace("a", "arc", 1)), unit, rtol=4e-6, atol=4e-6)
elementwise("atan", np.arctan)
elementwise("asinh", np.arcsinh, rtol=4e-6)
elementwise("acosh", np.arccosh, above_one, rtol=4e-6)
for _name in "floor ceil trunc".split():
    elementwise(_name, getattr(np, _name), rtol=0, atol=0)
for _name in "round nearbyint".split():
    elementwise(_name, np.rint, rtol=0, atol=0)
    elementwise(_name, np.rint, lambda *s, **o: (ints(*s) / 2).astype(np.float32), rtol=0, atol=0, label=" halves")
elementwise("abs", np.abs, rtol=0, atol=0)
elementwise("abs", np.abs, ints, "int32", 0, 0)
for _name in "exp exp2 log2 tanh sigmoid".split():
    _reference = {"sigmoid": lambda x: 1 / (1 + np.exp(-x))}.get(_name) or getattr(np, _name)
    elementwise(_name, _reference, positive, "float16", 2e-3, 2e-3)
    elementwise(_name, _reference, positive, "float64", 1e-12, 1e-12)
elementwise("popcount", np.bitwise_count, ints, "uint32", 0, 0)
elementwise("bitwise_not", np.invert, ints, "int32", 0, 0)


def products_of_pairs(dtype):
    def program():
        @T.prim_func
        def main(
            A: T.Tensor((48,), "uint32"),
            B: T.Tensor((48,), "uint32"),
            C: T.Tensor((48,), "float32"),
            D: T.Tensor((48,), "float32"),
        ):
            with T.Kernel(1, threads=16):
                for i in T.Parallel(48):
                    D[i] = T.dot2(A[i], B[i], C[i], dtype=dtype)

        a, b = (floats(48, 2, seed=seed).astype(T.dtype(dtype).as_numpy()) for seed in (1, 2))
        c = floats(48, seed=3)
        expected = c + (a.astype(np.float64) * b.astype(np.float64)).sum(-1)
        return Program(main, [a.view(np.uint32)[:, 0], b.view(np.uint32)[:, 0], c], [expected], 2e-6, 2e-6)

    case("T.dot2", title=f"dot2 {dtype}")(program)


for _name in ("bfloat16", "float16"):
    products_of_pairs(_name)


def tests_of_values(name):
    def program():
        function = getattr(T, name)

        @T.prim_func
        def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "bool")):
            with T.Kernel(1, threads=8):
                for i in T.Parallel(8):
                    B[i] = function(A[i])

        a = floats(8)
        a[1], a[3], a[5] = np.nan, np.inf, -np.inf
        return Program(main, [a], [getattr(np, name)(a)])

    case(f"T.{name}", title=name)(program)


for _name in ("isnan", "isinf", "isfinite"):
    tests_of_values(_name)


def binary(name, reference, dtype="float32", data=floats, rtol=0.0):
    """A case that applies a function of two arguments."""

    def program():
        function = getattr(T, name)

        @T.prim_func
        def main(A: T.Tensor((64,), dtype), B: T.Tensor((64,), dtype), C: T.Tensor((64,), dtype)):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(64):
                    C[i] = function(A[i], B[i])

        element = T.dtype(dtype).as_numpy()
        a, b = data(64, dtype=element), data(64, dtype=element, seed=1)
        wide = (lambda x: x) if element.kind in "iu" else (lambda x: x.astype(np.float64))
        return Program(main, [a, b], [reference(wide(a), wide(b))], rtol=rtol, atol=rtol)

    case(f"T.{name}", title=f"{name} {dtype}")(program)


for _dtype, _data in (("float32", floats), ("int32", ints)):
    binary("max", np.maximum, _dtype, _data)
    binary("min", np.minimum, _dtype, _data)
binary("pow", np.power, data=positive, rtol=4e-6)
binary("fmod", np.fmod, rtol=1e-6)
binary("atan2", np.arctan2, rtol=4e-6)
binary("floordiv", np.floor_divide, "int32", ints)
binary("floormod", np.remainder, "int32", ints)
binary("truncdiv", lambda a, b: np.trunc(a / b), "int32", ints)
binary("truncmod", np.fmod, "int32", ints)
binary("bitwise_and", np.bitwise_and, "int32", ints)
binary("bitwise_or", np.bitwise_or, "int32", ints)
binary("bitwise_xor", np.bitwise_xor, "int32", ints)
binary("shift_left", np.left_shift, "uint32", ints)
binary("shift_right", np.right_shift, "uint32", lambda *s, **o: ints(*s, high=30, **o))
for _name in ("ceildiv", "cdiv"):
    binary(_name, lambda a, b: -(-a.astype(int) // b), "uint16", ints)


@case("T.max (more than two)", "T.min (more than two)", "T.clamp")
def several_arguments():
    @T.prim_func
    def main(A: T.Tensor((3, 8), "float32"), B: T.Tensor((3, 8), "float32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                B[0, i] = T.max(A[0, i], A[1, i], A[2, i])
                B[1, i] = T.min(A[0, i], A[1, i], 0.25)
                B[2, i] = T.clamp(A[2, i], -1, 1)

    a = floats(3, 8)
    want = np.stack([a.max(0), np.minimum(np.minimum(a[0], a[1]), 0.25), np.clip(a[2], -1, 1)])
    return Program(main, [a], [want])


@case("T.if_then_else", "T.Select")
def selections():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((2, 8), "float32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                B[0, i] = T.if_then_else(A[i] > 0, A[i], A[i] * 2)
                B[1, i] = T.Select(A[i] > 0, A[i], 0.5)

    a = floats(8)
    return Program(main, [a], [np.stack([np.where(a > 0, a, a * 2), np.where(a > 0, a, 0.5)])])


@case("T.cast", "T.Cast", "x.astype")
def casts():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "int32"), C: T.Tensor((2, 8), "float32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                B[i] = T.cast(A[i] * 3, "int32")
                C[0, i] = T.Cast("float16", A[i])
                C[1, i] = A[i].astype(T.bfloat16)

    import ml_dtypes

    a = floats(8)
    rounded = np.stack([a.astype(np.float16), a.astype(ml_dtypes.bfloat16).astype(np.float32)])
    return Program(main, [a], [np.trunc(a * 3), rounded])


@case("T.reinterpret")
def bits():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "uint32"), C: T.Tensor((8,), "float16")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                B[i] = T.reinterpret(A[i], "uint32")
                C[i] = T.reinterpret("float16", T.cast(B[i] >> 16, "uint16"))

    a = floats(8)
    codes = a.view(np.uint32)
    return Program(main, [a], [codes, (codes >> 16).astype(np.uint16).view(np.float16)])


@case("x + y, x - y, x * y, x / y, x // y, x % y, x ** y, -x, abs(x), ~x, x << y, x >> y, x & y, x | y, x ^ y")
def operators():
    @T.prim_func
    def main(
        A: T.Tensor((8,), "float32"),
        B: T.Tensor((8,), "int32"),
        C: T.Tensor((6, 8), "float32"),
        D: T.Tensor((9, 8), "int32"),
    ):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                C[0, i] = A[i] + 1.5
                C[1, i] = 1 - A[i]
                C[2, i] = A[i] * A[7 - i]
                C[3, i] = 3 / A[i]
                C[4, i] = -A[i]
                C[5, i] = abs(A[i]) ** 2
                D[0, i] = B[i] // 3
                D[1, i] = B[i] % 3
                D[2, i] = -B[i]
                D[3, i] = ~B[i]
                D[4, i] = B[i] << 2
                D[5, i] = B[i] >> 1
                D[6, i] = B[i] & 5
                D[7, i] = B[i] | 8
                D[8, i] = B[i] ^ 3

    a, b = floats(8), ints(8)
    one = np.float32(1)
    c = np.stack([a + np.float32(1.5), one - a, a * a[::-1], np.float32(3) / a, -a, a * a])
    d = np.stack([b // 3, b % 3, -b, ~b, b << 2, b >> 1, b & 5, b | 8, b ^ 3])
    return Program(main, [a, b], [c, d])
