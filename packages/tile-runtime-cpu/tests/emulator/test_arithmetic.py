"""Functions of the header on a thread's own values, each alone with distinct ones, against numpy: integers, C's library,
approximations, elements of less than a byte.

Where both vendors' headers have a function, both are asked.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

# ---- integers --------------------------------------------------------------------------------------------------------

#: Of four bytes of a and b: the products' signs.
DOT4 = [("s8", "i1", "i1"), ("u8", "u1", "u1"), ("s8_u8", "i1", "u1"), ("u8_s8", "u1", "i1")]
#: The functions whose names the tests put together, and those outside of the namespace.
BUILT = [*(f"dot4_{name}" for name, _, _ in DOT4), "__dp4a", "memcpy", "isnan", "isinf", "isfinite"]


@pytest.mark.parametrize("intrinsic", ["tl::dp4a", "__dp4a"])
def test_dp4a(run_on_each, intrinsic):
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 256, (32, 4), "u1"), rng.integers(0, 256, (32, 4), "u1"), rng.integers(-99, 99, 32, "i4")
    signed, unsigned = np.zeros(32, "i4"), np.zeros(32, "u4")
    body = """
      int t = threadIdx.x;
      S[t] = tl::dp4a(A[t], B[t], C[t]);
      U[t] = tl::dp4a((unsigned)A[t], (unsigned)B[t], 5u);"""
    args = [a.view("i4"), b.view("i4"), c, signed, unsigned]
    body = body.replace("tl::dp4a", intrinsic)
    run_on_each("const int* A, const int* B, const int* C, int* S, unsigned* U", body, args).check()
    np.testing.assert_array_equal(signed, c + (a.view("i1").astype("i4") * b.view("i1")).sum(1))
    np.testing.assert_array_equal(unsigned, 5 + (a.astype("u4") * b).sum(1))


@pytest.mark.parametrize(
    ("vendor", "name", "a_type", "b_type"),
    [("cuda", *form) for form in DOT4] + [("hip", *form) for form in DOT4[:2]],  # AMD's take bytes of one sign
)
def test_products_of_four_bytes(run_body, vendor, name, a_type, b_type):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 256, (32, 4), "u1") for _ in range(2))
    c = rng.integers(-99, 99, 32, "i4")
    expected = c + (a.view(a_type).astype("i4") * b.view(b_type).astype("i4")).sum(1)
    body = f"int t = threadIdx.x; tl::dot4_{name}(C + t, A + t, B + t);"
    parameters = "const int* A, const int* B, int* C"
    run_body(parameters, body, [a.view("i4"), b.view("i4"), c], vendor=vendor).check()
    np.testing.assert_array_equal(c, expected)


def test_bytes_are_chosen_by_digits(run_body):
    rng = np.random.default_rng(2)
    a, b, chosen = (rng.integers(0, 1 << 32, 256, "u4") for _ in range(3))
    out = np.zeros(256, "u4")
    body = "for (int i = threadIdx.x; i < 256; i += 32) O[i] = tl::prmt(A[i], B[i], C[i]);"
    run_body("const unsigned* A, const unsigned* B, const unsigned* C, unsigned* O", body, [a, b, chosen, out]).check()
    memory = np.stack([a, b], 1).view("u1")  # bytes 0 to 3 are a's
    digits = chosen[:, None] >> (4 * np.arange(4)) & 15
    taken = np.take_along_axis(memory, (digits & 7).astype("i8"), 1)
    expected = np.where(digits & 8, np.where(taken & 128, 255, 0), taken).astype("u1")
    np.testing.assert_array_equal(out, expected.view("u4")[:, 0])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, where a half is infinite or no number
def test_halves_are_multiplied_and_added_with_one_rounding(run_body):
    rng = np.random.default_rng(4)
    a, b, c = (rng.integers(0, 1 << 16, 4096, "u2").view("f2") for _ in range(3))
    near = -(a.astype("f8") * b).astype("f2")
    c[::2] = np.where(rng.integers(0, 2, 2048), near[::2], np.float16(6e-8))  # sums near 0, and next to a product
    out = np.zeros(2048, "u4")
    body = "for (int i = threadIdx.x; i < 2048; i += 32) O[i] = tl::fma_halves(A[i], B[i], C[i]);"
    words = [x.view("u4") for x in (a, b, c)]
    run_body("const unsigned* A, const unsigned* B, const unsigned* C, unsigned* O", body, [*words, out]).check()
    np.testing.assert_array_equal(out.view("f2"), (a.astype("f8") * b + c).astype("f2"))


def test_multiply_and_add_round_once(run_body):
    rng = np.random.default_rng(3)
    a, b = 1 + rng.integers(1, 99, (2, 32)) * 2.0**-12
    integers = rng.integers(-(1 << 31), 1 << 31, (3, 32), "i8")
    single, double = np.full(32, -1, "f4"), np.full(32, -1.0)
    whole = integers[2].astype("i4")
    body = """
      int t = threadIdx.x;
      float a = A[t], b = B[t];
      tl::fma_f32(F + t, &a, &b);
      double x = A[t] + 0x1p-40, y = B[t] + 0x1p-41;
      tl::fma_f64(D + t, &x, &y);
      tl::mad_s32(I + t, M + t, N + t);"""
    parameters = "const double* A, const double* B, const int* M, const int* N, float* F, double* D, int* I"
    run_body(parameters, body, [a, b, *integers[:2].astype("i4"), single, double, whole]).check()
    np.testing.assert_array_equal(single, (a * b - 1).astype("f4"))
    x, y = a.astype(np.longdouble) + 2.0**-40, b.astype(np.longdouble) + 2.0**-41
    np.testing.assert_array_equal(double, (x * y - 1).astype("f8"))
    np.testing.assert_array_equal(whole, (integers[0] * integers[1] + integers[2]).astype("i4"))


#: By the number of bits: the least and greatest of two numbers, the ones and the leading zeros of one.
OF_INTEGERS = {32: ["min", "max", "__popc", "__clz"], 64: ["min", "max", "__popcll", "__clzll"]}
BUILT += [*OF_INTEGERS[32], *OF_INTEGERS[64], "abs"]


@pytest.mark.parametrize(
    ("c_type", "dtype"), [("int", "i4"), ("unsigned", "u4"), ("long long", "i8"), ("unsigned long long", "u8")]
)
def test_integer_functions(run_on_each, c_type, dtype):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(4)
    x = np.concatenate([np.array([0, 1, info.max, info.min], dtype), rng.integers(info.min, info.max, 28, dtype)])
    x[8:] >>= np.arange(24).astype(dtype)
    y = np.roll(x, 5)
    out = np.zeros((5, 32), dtype)
    least, greatest, ones, zeros = OF_INTEGERS[info.bits]
    body = f"""
      int t = threadIdx.x;
      O[t] = {least}(X[t], Y[t]);
      O[32 + t] = {greatest}(X[t], Y[t]);
      O[64 + t] = {ones}(X[t]);
      O[96 + t] = {zeros}(X[t]);
      O[128 + t] = {"abs(X[t])" if info.min else 0};"""
    run_on_each(f"const {c_type}* X, const {c_type}* Y, {c_type}* O", body, [x, y, out]).check()
    patterns = [int(v) & (1 << info.bits) - 1 for v in x.tolist()]
    np.testing.assert_array_equal(out[:2], [np.minimum(x, y), np.maximum(x, y)])
    assert out[2].tolist() == [p.bit_count() for p in patterns]
    assert out[3].tolist() == [info.bits - p.bit_length() for p in patterns]
    np.testing.assert_array_equal(out[4], np.abs(x) if info.min else 0 * x)


# ---- C's library -----------------------------------------------------------------------------------------------------


def from_math(function):
    return np.vectorize(function, otypes=["f8"])


def rounded(x):
    """To the nearest whole number, half away from zero."""
    return np.trunc(x + np.copysign(0.5, x))


#: Functions of one number, with what they are and the first and last of their arguments.
ONE = {
    "exp": (np.exp, -9, 9), "exp2": (np.exp2, -9, 9), "exp10": (lambda x: 10.0**x, -9, 9), "expm1": (np.expm1, -3, 3),
    "log": (np.log, 0.01, 99), "log2": (np.log2, 0.01, 99), "log10": (np.log10, 0.01, 99), "log1p": (np.log1p, -0.9, 9),
    "sin": (np.sin, -9, 9), "cos": (np.cos, -9, 9), "tan": (np.tan, -1.5, 1.5), "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 1), "atan": (np.arctan, -9, 9), "sinh": (np.sinh, -5, 5), "cosh": (np.cosh, -5, 5),
    "tanh": (np.tanh, -3, 3), "asinh": (np.arcsinh, -9, 9), "acosh": (np.arccosh, 1, 9), "atanh": (np.arctanh, -0.9, 0.9),
    "erf": (from_math(math.erf), -3, 3), "sqrt": (np.sqrt, 0, 99), "rsqrt": (lambda x: x**-0.5, 0.01, 99),
    "floor": (np.floor, -9, 9), "ceil": (np.ceil, -9, 9), "trunc": (np.trunc, -9, 9), "round": (rounded, -8.5, 7),
    "nearbyint": (np.rint, -8.5, 7), "rint": (np.rint, -8.5, 7), "fabs": (np.abs, -9, 9),
}  # fmt: skip
TWO = {
    "pow": np.power, "fmod": np.fmod, "atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign, "fmin": np.fmin,
    "fmax": np.fmax,
}  # fmt: skip
SUFFIXES = [("float", "f", "f4", 2e-6), ("double", "", "f8", 1e-14)]
BUILT += [name + suffix for name in (*ONE, *TWO, "fma", "ldexp") for suffix in ("", "f")]


@pytest.mark.parametrize(("c_type", "suffix", "dtype", "tolerance"), SUFFIXES)
def test_functions_of_one_number(run_on_each, c_type, suffix, dtype, tolerance):
    x = np.stack([np.linspace(first, last, 32) for _, first, last in ONE.values()]).astype(dtype)
    out = np.zeros_like(x)
    lines = [f"O[{32 * i} + t] = {name}{suffix}(X[{32 * i} + t]);" for i, name in enumerate(ONE)]
    body = "int t = threadIdx.x;\n" + "\n".join(lines)
    run_on_each(f"const {c_type}* X, {c_type}* O", body, [x, out]).check()
    for name, given, found in zip(ONE, x, out):
        expected = ONE[name][0](given.astype("f8"))
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(("c_type", "suffix", "dtype", "tolerance"), SUFFIXES)
def test_functions_of_more_numbers(run_on_each, c_type, suffix, dtype, tolerance):
    rng = np.random.default_rng(5)
    x, y = rng.uniform(0.2, 5, (2, 32)).astype(dtype)
    signs = np.where(np.arange(32) % 3, 1, -1).astype(dtype)
    names = [n for n in TWO if n != "pow"]
    out = np.zeros((len(names) + 3, 32), dtype)
    lines = [f"O[{32 * i} + t] = {name}{suffix}(X[t] * S[t], Y[t] * S[31 - t]);" for i, name in enumerate(names)]
    lines += [
        f"O[{32 * len(names)} + t] = pow{suffix}(X[t], Y[t] * S[t]);",
        f"O[{32 * len(names) + 32} + t] = fma{suffix}(X[t], Y[t], S[t]);",
        f"O[{32 * len(names) + 64} + t] = ldexp{suffix}(X[t], t - 16);",
    ]
    parameters = f"const {c_type}* X, const {c_type}* Y, const {c_type}* S, {c_type}* O"
    run_on_each(parameters, "int t = threadIdx.x;\n" + "\n".join(lines), [x, y, signs, out]).check()
    a, b, s = x.astype("f8"), y.astype("f8"), signs.astype("f8")
    expected = [TWO[name](a * s, b * s[::-1]) for name in names]
    expected += [a ** (b * s), a * b + s, a * 2.0 ** (np.arange(32) - 16)]
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("c_type", "dtype"), [("float", "f4"), ("double", "f8")])
def test_kinds_of_numbers(run_on_each, c_type, dtype):
    x = np.resize([0, 1, -2.5, np.inf, -np.inf, np.nan, -np.nan, np.finfo(dtype).tiny, np.finfo(dtype).max], 32)
    x = x.astype(dtype)
    out = np.zeros((4, 32), "u1")
    body = """
      int t = threadIdx.x;
      O[t] = isnan(X[t]), O[32 + t] = isinf(X[t]), O[64 + t] = isfinite(X[t]);
      memcpy(O + 96 + t, (const unsigned char*)(X + t) + sizeof(X[t]) - 1, 1);"""
    run_on_each(f"const {c_type}* X, uint8_t* O", body, [x, out]).check()
    last = x.view("u1").reshape(32, -1)[:, -1]
    np.testing.assert_array_equal(out, [np.isnan(x), np.isinf(x), np.isfinite(x), last])


# ---- approximations --------------------------------------------------------------------------------------------------

FAST = "exp2 exp exp10 log2 log log10 sin cos tan tanh rsqrt sqrt reciprocal".split()
BUILT += [f"fast::{name}" for name in FAST]


def test_approximate_functions(run_on_each):
    x, y = np.linspace(0.1, 1.4, 32).astype("f4"), np.linspace(-2, 2, 32).astype("f4")
    out = np.zeros((len(FAST) + 2, 32), "f4")
    lines = [f"O[{32 * i} + t] = tl::fast::{name}(X[t]);" for i, name in enumerate(FAST)]
    lines += [
        f"O[{32 * len(FAST)} + t] = tl::fast::divide(Y[t], X[t]);",
        f"O[{32 * len(FAST) + 32} + t] = tl::fast::pow(X[t], Y[t]);",
    ]
    body = "int t = threadIdx.x;\n" + "\n".join(lines)
    run_on_each("const float* X, const float* Y, float* O", body, [x, y, out]).check()
    a, b = x.astype("f8"), y.astype("f8")
    expected = [1 / a if name == "reciprocal" else ONE[name][0](a) for name in FAST]
    np.testing.assert_allclose(out, [*expected, b / a, a**b], rtol=2e-5, atol=1e-6)  # tanh on an H200: 8e-6


# ---- elements of less than a byte, halves of a word --------------------------------------------------------------------

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
PACKED = [
    *((f"tl::{'u' * unsigned}int{width}_t", width) for width in (1, 2, 4) for unsigned in (0, 1)),
    ("tl::fp4_e2m1_t", 4),
]


def values_of(c_type, codes, width):
    if "fp4" in c_type:
        return np.where(codes & 8, -1, 1) * E2M1[codes & 7]
    if "uint" in c_type:
        return codes.astype("f8")
    return np.where(codes >> (width - 1), codes.astype("f8") - (1 << width), codes)


@pytest.mark.parametrize(("c_type", "width"), PACKED)
def test_packed_elements(run_on_each, c_type, width):
    """Read one by one and as vectors, written one by one and as vectors, and as a register of a matrix instruction."""
    n, per = 512, 8 // width
    memory = np.random.default_rng(6).integers(0, 256, n // per, "u1")
    codes = memory[np.arange(n) // per] >> (np.arange(n) % per * width).astype("u1") & ((1 << width) - 1)
    ones, vectors = np.zeros(n, "f4"), np.zeros(n, "f4")
    written = np.zeros((2, n // per), "u1")
    words = np.zeros(n * width // 32, "u4")
    body = f"""
      typedef {c_type} T;
      const int t = threadIdx.x;
      for (int i = t * 16; i < t * 16 + 16; ++i) O[i] = (float)tl::unpack<T>(X, i);
      tl::vec<T, 16> all = tl::unpack<T, 16>(X, t * 16);
      for (int i = 0; i < 16; ++i) V[t * 16 + i] = (float)all[i];
      for (int i = t * 16; i < t * 16 + 16; ++i) tl::pack<T>(W, i, all[i % 16]);
      tl::pack<T, 16>(W + {n // per}, t * 16, all);
      for (int w = t; w < {words.size}; w += 32) {{
        T x[{32 // width}];
        for (int e = 0; e < {32 // width}; ++e) x[e] = tl::unpack<T>(X, w * {32 // width} + e);
        R[w] = tl::packed_word(x);
      }}"""
    parameters = "const uint8_t* X, float* O, float* V, uint8_t* W, uint32_t* R"
    run_on_each(parameters, body, [memory, ones, vectors, written, words]).check()
    expected = values_of(c_type, codes, width)
    np.testing.assert_array_equal(ones, expected)
    np.testing.assert_array_equal(vectors, expected)
    np.testing.assert_array_equal(written, [memory, memory])
    np.testing.assert_array_equal(words, memory.view("u4"))


@pytest.mark.parametrize(("c_type", "dtype"), [("tl::half_t", "f2"), ("tl::bfloat16_t", ml_dtypes.bfloat16)])
def test_halves_of_a_word(run_on_each, c_type, dtype):
    x = (np.arange(64) - 20.5).astype(dtype)
    out = np.zeros((2, 32), "f4")
    body = f"""
      int t = threadIdx.x;
      O[t] = (float)tl::low_half<{c_type}>(X[t]);
      O[32 + t] = (float)tl::high_half<{c_type}>(X[t]);"""
    run_on_each("const uint32_t* X, float* O", body, [x.view("u4"), out]).check()
    np.testing.assert_array_equal(out, x.reshape(32, 2).T.astype("f4"))
