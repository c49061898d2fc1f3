"""Arithmetic of run-time scalars: the type of a result, and its value against numpy."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilelang.language as T
from tilelang.errors import DtypeError
from tilelang.interpreter import run
from tilelang.ir import tile_ir


def result_of(function, *arrays, dtype):
    """Elementwise `function` over arrays of one length, stored as `dtype`."""
    kinds = [T.dtype(a.dtype.name) for a in arrays]
    n = len(arrays[0])
    out = np.zeros(n, T.dtype(dtype).as_numpy())
    if len(arrays) == 1:

        @T.prim_func
        def unary(A: T.Tensor((n,), kinds[0]), O: T.Tensor((n,), dtype)):
            with T.Kernel(1):
                for i in T.serial(n):
                    O[i] = function(A[i])

        run(unary, [*arrays, out])
    else:

        @T.prim_func
        def binary(A: T.Tensor((n,), kinds[0]), B: T.Tensor((n,), kinds[1]), O: T.Tensor((n,), dtype)):
            with T.Kernel(1):
                for i in T.serial(n):
                    O[i] = function(A[i], B[i])

        run(binary, [*arrays, out])
    return out


def type_of(function, *dtypes):
    """The dtype of an expression over elements of the given types."""
    seen = []

    def kernel(A: T.Tensor((1,), dtypes[0]), B: T.Tensor((1,), dtypes[-1])):
        with T.Kernel(1):
            seen.append(function(A[0], B[0]) if len(dtypes) == 2 else function(A[0]))
            T.clear(A)

    T.prim_func(kernel)
    return str(seen[0].dtype)


# -- types of results -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("int32", "int32", "int32"),
        ("int8", "int32", "int32"),
        ("int8", "int16", "int16"),
        ("uint8", "int8", "int8"),
        ("uint32", "int32", "int32"),
        ("uint8", "int32", "int32"),
        ("int32", "int64", "int64"),
        ("int32", "float32", "float32"),
        ("int64", "float16", "float16"),
        ("float16", "float32", "float32"),
        ("float16", "bfloat16", "float32"),
        ("bfloat16", "float32", "float32"),
        ("float32", "float64", "float64"),
        ("bool", "int8", "int8"),
        ("bool", "float16", "float16"),
        ("tfloat32", "float16", "float32"),
    ],
)
def test_two_runtime_operands_meet_in_the_wider_type(a, b, expected):
    assert type_of(lambda x, y: x + y, a, b) == expected
    assert type_of(lambda x, y: y * x, a, b) == expected


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"])
def test_integer_literal_takes_the_other_operands_type(dtype):
    assert type_of(lambda x: x + 1, dtype) == dtype
    assert type_of(lambda x: 2 * x, dtype) == dtype
    assert type_of(lambda x: T.max(x, 0), dtype) == dtype


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float16", "float16"),
        ("bfloat16", "bfloat16"),
        ("float64", "float64"),
        ("int8", "float32"),
        ("int64", "float32"),
    ],
)
def test_float_literal_takes_a_float_operands_type_and_makes_integers_float32(dtype, expected):
    assert type_of(lambda x: x * 0.5, dtype) == expected
    assert type_of(lambda x: 0.5 + x, dtype) == expected


def test_comparisons_and_predicates_are_bool():
    assert type_of(lambda x, y: x < y, "int8", "float16") == "bool"
    assert type_of(lambda x: T.isnan(x), "float32") == "bool"
    assert type_of(lambda x: ~(x == 1), "int32") == "bool"


def test_literal_too_large_for_the_operand_widens_it():
    assert type_of(lambda x: x + (1 << 40), "int32") == "int64"
    assert type_of(lambda x: x + 300, "uint8") == "int64"
    assert type_of(lambda x: x + 200, "uint8") == "uint8"


def test_numpy_scalars_are_literals():
    assert type_of(lambda x: x * np.float32(2), "float16") == "float16"
    assert type_of(lambda x: np.int64(2) + x, "int8") == "int8"


def test_functions_of_integers_compute_in_float32():
    assert type_of(T.exp, "int32") == "float32"
    assert type_of(T.sqrt, "float16") == "float16"
    assert type_of(T.floor, "int32") == "int32"
    assert type_of(lambda x: T.pow(x, 2.0), "int32") == "float32"
    assert type_of(lambda x: x**3, "int32") == "int32"


@pytest.mark.parametrize(
    "function", [lambda x: x / 2, lambda x: 1 / x, lambda x: x / x], ids=["x / 2", "1 / x", "x / x"]
)
def test_division_of_integers_is_an_error(function):
    with pytest.raises(DtypeError, match="`/` of two integers"):
        type_of(function, "int32")


@pytest.mark.parametrize("function", [lambda x: x & 1, lambda x: x << 1, lambda x: x ^ x], ids=["&", "<<", "^"])
def test_bit_operations_of_floats_are_errors(function):
    with pytest.raises(DtypeError, match="needs integers"):
        type_of(function, "float32")


# -- values -------------------------------------------------------------------------------------------------------

INT = st.integers(-100, 100)


@given(st.lists(st.tuples(INT, INT.filter(bool)), min_size=1, max_size=16))
def test_floor_division_and_remainder_follow_python(pairs):
    a, b = (np.array(x, np.int32) for x in zip(*pairs))
    np.testing.assert_array_equal(result_of(lambda x, y: x // y, a, b, dtype="int32"), a // b)
    np.testing.assert_array_equal(result_of(lambda x, y: x % y, a, b, dtype="int32"), a % b)
    np.testing.assert_array_equal(result_of(lambda x, y: T.floordiv(x, y), a, b, dtype="int32"), a // b)
    np.testing.assert_array_equal(result_of(lambda x, y: T.truncmod(x, y), a, b, dtype="int32"), np.fmod(a, b))


@given(st.lists(st.tuples(INT, INT.filter(bool)), min_size=1, max_size=16))
def test_floor_division_and_remainder_of_floats(pairs):
    a, b = (np.array(x, np.float32) / 4 for x in zip(*pairs))
    np.testing.assert_array_equal(result_of(lambda x, y: x // y, a, b, dtype="float32"), np.floor(a / b))
    expected = a - np.floor(a / b) * b
    np.testing.assert_allclose(result_of(lambda x, y: x % y, a, b, dtype="float32"), expected, atol=1e-6)


@given(st.lists(INT, min_size=1, max_size=8), st.integers(1, 9))
def test_floor_division_by_a_literal(values, divisor):
    a = np.array(values, np.int32)
    np.testing.assert_array_equal(result_of(lambda x: x // divisor, a, dtype="int32"), a // divisor)
    np.testing.assert_array_equal(result_of(lambda x: x % -divisor, a, dtype="int32"), a % -divisor)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint32", "int64", "uint64"])
def test_integers_wrap(dtype):
    info = np.iinfo(dtype)
    a = np.array([info.max, info.min, 1], dtype)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result_of(lambda x: x + 1, a, dtype=dtype), a + np.array(1, dtype))
        np.testing.assert_array_equal(result_of(lambda x: x * x, a, dtype=dtype), a * a)
        np.testing.assert_array_equal(result_of(lambda x: -x, a, dtype=dtype), np.negative(a))


def test_right_shift_is_arithmetic_for_signed_types():
    a = np.array([-8, -1, 7, 100], np.int32)
    np.testing.assert_array_equal(result_of(lambda x: x >> 1, a, dtype="int32"), a >> 1)
    u = np.array([0xFFFFFFF8, 7], np.uint32)
    np.testing.assert_array_equal(result_of(lambda x: x >> 1, u, dtype="uint32"), u >> 1)
    np.testing.assert_array_equal(result_of(lambda x: T.shift_left(x, 3), a, dtype="int32"), a << 3)


def test_bit_operations():
    a, b = np.array([0b1100, -1, 77], np.int32), np.array([0b1010, 12, -3], np.int32)
    for function, expected in [
        (lambda x, y: x & y, a & b),
        (lambda x, y: x | y, a | b),
        (lambda x, y: x ^ y, a ^ b),
        (lambda x, y: ~x, ~a),
        (lambda x, y: T.bitwise_and(x, T.bitwise_not(y)), a & ~b),
        (lambda x, y: T.bitwise_or(x, T.bitwise_xor(y, 5)), a | (b ^ 5)),
    ]:
        np.testing.assert_array_equal(result_of(function, a, b, dtype="int32"), expected)


def test_nothing_is_folded_for_floats():
    a = np.array([np.nan, np.inf, -np.inf, 1.0, -0.0], np.float32)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(result_of(lambda x: x * 0, a, dtype="float32"), a * 0)
        np.testing.assert_array_equal(result_of(lambda x: x - x, a, dtype="float32"), a - a)
        np.testing.assert_array_equal(result_of(lambda x: x / x, a, dtype="float32"), np.divide(a, a))
    negated = result_of(lambda x: -x, np.array([0.0, -0.0, 2.0], np.float32), dtype="float32")
    np.testing.assert_array_equal(np.signbit(negated), [True, False, True])


def test_integer_products_with_zero_may_be_folded():
    from tvm import tirx

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                A[i * 0 + i] = 1

    store = next(n for n in tile_ir.walk(kernel.body) if isinstance(n, tirx.BufferStore))
    assert str(store.indices[0]) == "i"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_operation_rounds_to_its_type(dtype):
    kind = T.dtype(dtype).as_numpy()
    a, b = np.array([1.0, 3.0, 100.25], kind), np.array([0.001, 1 / 3, 0.37], kind)
    both = np.float32(a) + np.float32(b)
    expected = (np.float32(both.astype(kind)) * np.float32(b)).astype(kind)
    np.testing.assert_array_equal(result_of(lambda x, y: (x + y) * y, a, b, dtype=dtype), expected)


def test_float16_with_bfloat16_computes_in_float32():
    a, b = np.array([1.0009765625], np.float16), np.array([1.0078125], ml_dtypes.bfloat16)
    result = result_of(lambda x, y: x * y, a, b, dtype="float32")
    np.testing.assert_array_equal(result, np.float32(a) * np.float32(b))


# -- casts ----------------------------------------------------------------------------------------------------------

FLOATS = np.array([0.0, -0.0, 1.5, -1.5, 2.5, 127.6, 300.0, -300.0, 1e20, -1e20, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
def test_float_to_integer_truncates_saturates_and_takes_nan_as_zero(dtype):
    info = np.iinfo(dtype)
    wide = np.nan_to_num(np.trunc(FLOATS.astype(np.float64)), nan=0, posinf=1e30, neginf=-1e30)
    expected = [min(max(int(x), info.min), info.max) for x in wide]
    result = result_of(lambda x: T.cast(x, dtype), FLOATS, dtype=dtype)
    assert [int(x) for x in result] == expected


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2", "float16", "bfloat16"])
def test_cast_spellings_agree(dtype):
    values = np.array([0.1, 1.3, -2.7, 100.0], np.float32)
    kind = T.dtype(dtype)
    expected = values.astype(kind.as_numpy()).astype(np.float32)
    for cast in (lambda x: T.cast(x, dtype), lambda x: kind(x), lambda x: T.Cast(dtype, x), lambda x: x.astype(dtype)):
        np.testing.assert_array_equal(result_of(lambda x, c=cast: c(x), values, dtype="float32"), expected)


def test_float8_saturates():
    result = result_of(lambda x: T.cast(x, "float8_e4m3"), np.array([1e6, -1e6, 448, 460], np.float32), dtype="float32")
    np.testing.assert_array_equal(result, [448, -448, 448, 448])


def test_float_to_bool_is_not_zero():
    result = result_of(lambda x: T.cast(x, "bool"), np.array([0, -0.0, 0.5, np.nan], np.float32), dtype="int32")
    np.testing.assert_array_equal(result, [0, 0, 1, 1])


def test_reinterpret_keeps_the_bits():
    a = np.array([1.0, -2.5, 0.0, np.inf], np.float32)
    np.testing.assert_array_equal(result_of(lambda x: T.reinterpret(x, "int32"), a, dtype="int32"), a.view(np.int32))
    np.testing.assert_array_equal(result_of(lambda x: T.reinterpret("int32", x), a, dtype="int32"), a.view(np.int32))
    h = np.array([1.0, 0.1], np.float16)
    np.testing.assert_array_equal(result_of(lambda x: T.reinterpret(x, "uint16"), h, dtype="uint16"), h.view(np.uint16))


def test_cast_outside_of_a_kernel_gives_a_numpy_scalar():
    assert T.float16(0.1) == np.float16(0.1)
    assert T.cast(3.7, "int32") == 3


# -- functions --------------------------------------------------------------------------------------------------------

POSITIVE = np.array([0.25, 0.5, 1.0, 2.0, 3.7], np.float32)
UNARY = [
    ("exp", np.exp), ("exp2", np.exp2), ("log", np.log), ("log2", np.log2), ("log10", np.log10), ("log1p", np.log1p),
    ("sin", np.sin), ("cos", np.cos), ("tan", np.tan), ("sinh", np.sinh), ("cosh", np.cosh), ("tanh", np.tanh),
    ("atan", np.arctan), ("asinh", np.arcsinh), ("sqrt", np.sqrt), ("rsqrt", lambda x: 1 / np.sqrt(x)),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x))), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc),
    ("round", np.rint), ("nearbyint", np.rint), ("abs", np.abs),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reference"), UNARY, ids=[n for n, _ in UNARY])
def test_functions_of_one_argument(name, reference):
    expected = reference(POSITIVE.astype(np.float64))
    np.testing.assert_allclose(result_of(getattr(T, name), POSITIVE, dtype="float32"), expected, rtol=1e-6)
    assert getattr(T, name)(2.0) == pytest.approx(float(reference(2.0)))  # a Python number stays one


def test_extrema_skip_nan():
    a, b = np.array([1, np.nan, 3, np.nan], np.float32), np.array([2, 2, np.nan, np.nan], np.float32)
    np.testing.assert_array_equal(result_of(T.max, a, b, dtype="float32"), np.fmax(a, b))
    np.testing.assert_array_equal(result_of(T.min, a, b, dtype="float32"), np.fmin(a, b))
    np.testing.assert_array_equal(
        result_of(lambda x: T.clamp(x, 1, 2), POSITIVE, dtype="float32"), np.clip(POSITIVE, 1, 2)
    )


def test_powers():
    a = np.array([2, -3, 5], np.int32)
    np.testing.assert_array_equal(result_of(lambda x: x**2, a, dtype="int32"), a**2)
    np.testing.assert_allclose(result_of(lambda x: x**0.5, POSITIVE, dtype="float32"), POSITIVE**0.5, rtol=1e-6)
    np.testing.assert_allclose(result_of(lambda x: 2**x, POSITIVE, dtype="float32"), 2**POSITIVE, rtol=1e-6)


def test_predicates():
    a = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    for name in ("isnan", "isinf", "isfinite"):
        np.testing.assert_array_equal(result_of(getattr(T, name), a, dtype="bool"), getattr(np, name)(a))


def test_limits():
    n = np.zeros(1, np.float32)
    assert result_of(lambda x: x + T.infinity("float32"), n, dtype="float32")[0] == np.inf
    assert result_of(lambda x: T.max_value("float16") + x, n, dtype="float32")[0] == 65504
    assert result_of(lambda x: T.min_value("int8"), n, dtype="int32")[0] == -128
    assert result_of(lambda x: T.max_value("uint8"), n, dtype="int32")[0] == 255


def test_select_and_if_then_else():
    a = np.array([-2, 3], np.int32)
    np.testing.assert_array_equal(result_of(lambda x: T.if_then_else(x > 0, x, 0), a, dtype="int32"), [0, 3])
    np.testing.assert_array_equal(result_of(lambda x: T.Select(x > 0, x, -x), a, dtype="int32"), [2, 3])
    assert T.if_then_else(True, 1, 2) == 1


@pytest.mark.parametrize(("a", "b"), [(0, 4), (1, 4), (7, 4), (8, 4), (9, 1)])
def test_ceildiv_of_numbers_and_of_values(a, b):
    assert T.ceildiv(a, b) == T.cdiv(a, b) == -(-a // b)
    assert result_of(lambda x: T.ceildiv(x, b), np.array([a], np.int32), dtype="int32")[0] == -(-a // b)


def test_popcount():
    a = np.array([0, 1, 255, -1], np.int32)
    np.testing.assert_array_equal(result_of(T.popcount, a, dtype="int32"), [0, 1, 8, 32])
