"""Arithmetic, intrinsics and calls, lane by lane, against numpy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tilelang.language as T
from tilelang.interpreter import InterpreterError, externs, run

N = 16


def elementwise(function, dtypes, result):
    """The kernel C[i] = function(A[i], B[i], ...) for up to two operands."""
    first, second = dtypes[0], dtypes[-1]

    @T.prim_func
    def main(A: T.Tensor((N,), first), B: T.Tensor((N,), second), C: T.Tensor((N,), result)):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(N):
                C[i] = function(A[i], B[i]) if len(dtypes) == 2 else function(A[i])

    return main


def apply(main, a, b, result):
    c = np.zeros(N, T.dtype(result).as_numpy())
    run(main, [a, b, c])
    return c


_BINARY = {
    "add": (lambda a, b: a + b, np.add),
    "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply),
    "max": (lambda a, b: T.max(a, b), np.fmax),
    "min": (lambda a, b: T.min(a, b), np.fmin),
}
_KERNELS = {}  # traced once for all examples


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int32", "uint16", "int64"])
@pytest.mark.parametrize("name", _BINARY)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_binary_agrees_with_numpy(name, dtype, data):
    if (name, dtype) not in _KERNELS:
        _KERNELS[name, dtype] = elementwise(_BINARY[name][0], [dtype, dtype], dtype)
    main = _KERNELS[name, dtype]
    numpy_dtype = T.dtype(dtype).as_numpy()
    if T.dtype(dtype).is_float:
        arrays = hnp.arrays(np.float32, N, elements=st.floats(width=32))
        with np.errstate(all="ignore"):
            a, b = (data.draw(arrays).astype(numpy_dtype) for _ in range(2))
    else:
        a, b = (data.draw(hnp.arrays(numpy_dtype, N)) for _ in range(2))
    with np.errstate(all="ignore"):
        expected = _BINARY[name][1](a, b).astype(numpy_dtype)
    got = apply(main, a, b, dtype)
    assert got.dtype == expected.dtype
    wide = np.float64 if T.dtype(dtype).is_float else numpy_dtype  # where NaN compares equal
    np.testing.assert_array_equal(got.astype(wide), expected.astype(wide))


@pytest.mark.parametrize("a", [7, -7])
@pytest.mark.parametrize("b", [2, -2, 3])
def test_integer_division_floors(a, b):
    main = elementwise(lambda x, y: (x // y) * 1000 + x % y, ["int32", "int32"], "int32")
    got = apply(main, np.full(N, a, np.int32), np.full(N, b, np.int32), "int32")
    assert got[0] == (a // b) * 1000 + a % b


INTRINSICS = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "exp10": lambda x: 10.0**x,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "log1p": math.log1p,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "asinh": math.asinh,
    "acosh": lambda x: math.acosh(x),
    "atanh": math.atanh,
    "erf": math.erf,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "nearbyint": round,
    "abs": abs,
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", INTRINSICS)
def test_intrinsics_round_once(name, dtype):
    numpy_dtype = T.dtype(dtype).as_numpy()
    a = (np.linspace(0.03, 0.97, N) + (1 if name == "acosh" else 0)).astype(numpy_dtype)
    got = apply(elementwise(getattr(T, name), [dtype], dtype), a, a, dtype)
    expected = np.asarray([INTRINSICS[name](float(x)) for x in a]).astype(np.float64)
    if dtype == "bfloat16":
        np.testing.assert_allclose(got.astype(np.float64), expected, rtol=2.0**-8)
    else:
        np.testing.assert_array_equal(got, expected.astype(numpy_dtype))


@pytest.mark.parametrize(("name", "function"), [("pow", math.pow), ("fmod", math.fmod), ("atan2", math.atan2)])
def test_binary_intrinsics(name, function):
    a, b = np.linspace(0.5, 8, N).astype(np.float32), np.linspace(-2, 3.1, N).astype(np.float32)
    got = apply(elementwise(getattr(T, name), ["float32", "float32"], "float32"), a, b, "float32")
    expected = np.asarray([function(float(x), float(y)) for x, y in zip(a, b)]).astype(np.float32)
    np.testing.assert_array_equal(got, expected)


def test_tests_of_floats():
    a = np.resize(np.asarray([1, np.nan, np.inf, -np.inf, 0], np.float32), N)
    for name in ("isnan", "isinf", "isfinite"):
        got = apply(elementwise(getattr(T, name), ["float32"], "bool"), a, a, "bool")
        np.testing.assert_array_equal(got, getattr(np, name)(a))


def test_bits():
    a, b = np.arange(-8, 8).astype(np.int32), np.resize(np.arange(5), N).astype(np.int32)
    for function, expected in [
        (lambda x, y: (x & y) | (x ^ 5), (a & b) | (a ^ 5)),
        (lambda x, y: (x << y) + (x >> y), (a << b) + (a >> b)),
        (lambda x, y: ~x + y, ~a + b),
        (lambda x, y: T.popcount(x) + y, np.asarray([bin(x & 0xFFFFFFFF).count("1") for x in a.tolist()]) + b),
    ]:
        np.testing.assert_array_equal(
            apply(elementwise(function, ["int32", "int32"], "int32"), a, b, "int32"), expected
        )


def test_reinterpret():
    a = np.linspace(-3, 3, N).astype(np.float16)
    got = apply(elementwise(lambda x: T.reinterpret("uint16", x), ["float16"], "uint16"), a, a, "uint16")
    np.testing.assert_array_equal(got, a.view(np.uint16))


def test_zero_times_infinity_stays_nan():
    a = np.resize(np.asarray([np.inf, np.nan, 2], np.float32), N)
    got = apply(elementwise(lambda x: x * 0 + (x - x), ["float32"], "float32"), a, a, "float32")
    np.testing.assert_array_equal(got, np.where(np.isfinite(a), 0, np.nan))


def test_if_then_else_reads_only_the_taken_side():
    @T.prim_func
    def main(A: T.Tensor((N,), "int32"), B: T.Tensor((N,), "int32")):
        with T.Kernel(1, threads=8):
            s = T.alloc_shared((N,), "int32")
            for i in T.Parallel(N):
                if i < 4:
                    s[i] = i
            for i in T.Parallel(N):
                B[i] = T.if_then_else(i < 4, s[i], T.if_then_else(A[i] != 0, 100 // A[i], -1))

    a = np.resize(np.asarray([0, 5], np.int32), N)
    b = np.zeros(N, np.int32)
    run(main, [a, b])
    np.testing.assert_array_equal(b, [0, 1, 2, 3, *np.resize([-1, 20], 12)])


def test_division_by_zero_is_an_error():
    main = elementwise(lambda x, y: x // y, ["int32", "int32"], "int32")
    with pytest.raises(InterpreterError, match="integer division by zero"):
        apply(main, np.ones(N, np.int32), np.arange(N, dtype=np.int32), "int32")


@pytest.fixture
def clean_externs():
    before = dict(externs)
    yield
    externs.clear()
    externs.update(before)


@pytest.mark.usefixtures("clean_externs")
def test_externs_run_once_per_lane():
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=N):
            tx = T.get_thread_binding()
            if tx < 10:
                T.call_extern("handle", "bump", T.address_of(B[tx]), T.call_extern("float32", "twice", A[tx]))

    with pytest.raises(InterpreterError, match="'twice', which has no meaning in Python"):
        run(main, [np.zeros(N, np.float32), np.zeros(N, np.float32)])
    externs["twice"] = lambda x: 2 * x
    externs["bump"] = lambda p, x: p.store(p.load() + x)
    a, b = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    run(main, [a, b])
    np.testing.assert_array_equal(b, np.where(np.arange(N) < 10, 1 + 2 * a, 1))


@pytest.mark.usefixtures("clean_externs")
def test_extern_sees_live_memory():
    @T.prim_func
    def main(B: T.Tensor((N,), "int32")):
        with T.Kernel(1, threads=4):
            s = T.alloc_shared((N,), "int32")
            T.call_extern("handle", "iota", T.address_of(s[0]), N)
            T.copy(s, B)

    def iota(pointer, count):
        pointer.array[pointer.offset : pointer.offset + count] = np.arange(count)

    externs["iota"] = iota
    b = np.zeros(N, np.int32)
    run(main, [b])
    np.testing.assert_array_equal(b, np.arange(N))


@pytest.mark.usefixtures("clean_externs")
def test_extern_for_the_whole_block():
    @T.prim_func
    def main(B: T.Tensor((1,), "int32")):
        with T.Kernel(3, threads=4):
            T.call_extern("handle", "count", T.address_of(B[0]))

    def count(pointer):
        pointer.store(pointer.load() + 1)

    externs["count"] = count
    b = np.zeros(1, np.int32)
    run(main, [b])
    assert b[0] == 12
    count.per_block = True
    run(main, [b])
    assert b[0] == 15
