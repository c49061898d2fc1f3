"""Reductions, scans, gemm and atomics by every spelling, against numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilelang.language as T
from tilelang.errors import DtypeError, GemmShapeMismatch, InvalidArgument, ReduceShapeMismatch
from tilelang.interpreter import run

RNG = np.random.default_rng(0)
X = RNG.integers(-9, 10, (4, 8)).astype(np.float32)
SHAPES = {0: (8,), 1: (4,)}


def reduced(array, operator, out_shape, dtype="float32", start=0, **options):
    """`operator(tile, out)` on fragments; out starts filled with `start`."""

    @T.prim_func
    def kernel(A: T.Tensor(array.shape, array.dtype), B: T.Tensor(out_shape, dtype)):
        with T.Kernel(1, threads=8):
            tile = T.alloc_fragment(array.shape, array.dtype)
            out = T.alloc_fragment(out_shape, dtype)
            T.copy(A, tile)
            T.fill(out, start)
            operator(tile, out)
            T.copy(out, B)

    b = np.zeros(out_shape, T.dtype(dtype).as_numpy())
    run(kernel, [array, b])
    return b


NAMED = [
    ("sum", T.reduce_sum, np.sum), ("max", T.reduce_max, np.max), ("min", T.reduce_min, np.min),
    ("product", T.reduce_product, np.prod), ("prod", T.reduce_prod, np.prod),
    ("abssum", T.reduce_abssum, lambda x, axis: np.abs(x).sum(axis)),
    ("absmax", T.reduce_absmax, lambda x, axis: np.abs(x).max(axis)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operator", "reference"), NAMED, ids=[n for n, *_ in NAMED])
@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_reductions_by_name_and_by_function(name, operator, reference, dim):
    expected = reference(X, axis=dim)
    np.testing.assert_array_equal(reduced(X, lambda a, b: operator(a, b, dim=dim), expected.shape), expected)
    np.testing.assert_array_equal(reduced(X, lambda a, b: T.reduce(a, b, name, dim), expected.shape), expected)


def test_reduction_along_axis_keyword_and_kept_dimension():
    np.testing.assert_array_equal(reduced(X, lambda a, b: T.reduce_sum(a, b, axis=0), (8,)), X.sum(0))
    np.testing.assert_array_equal(reduced(X, lambda a, b: T.reduce_sum(a, b, 1), (4, 1)), X.sum(1, keepdims=True))
    np.testing.assert_array_equal(reduced(X[0], lambda a, b: T.reduce_max(a, b), (1,)), [X[0].max()])


def test_clear_false_combines_with_the_old_content_once():
    np.testing.assert_array_equal(
        reduced(X, lambda a, b: T.reduce_sum(a, b, dim=1, clear=False), (4,), start=100), 100 + X.sum(1)
    )
    np.testing.assert_array_equal(
        reduced(X, lambda a, b: T.reduce_max(a, b, dim=1, clear=False), (4,), start=5), np.maximum(X.max(1), 5)
    )


def test_reductions_of_regions():
    np.testing.assert_array_equal(
        reduced(X, lambda a, b: T.reduce_sum(a[1:3, 2:6], b, dim=1), (2,)), X[1:3, 2:6].sum(1)
    )
    np.testing.assert_array_equal(reduced(X, lambda a, b: T.reduce_max(a[2, :], b, dim=0), (1,)), [X[2].max()])
    np.testing.assert_array_equal(
        reduced(X, lambda a, b: T.reduce_sum(a, b[1, :], dim=0), (3, 8), start=-1), [[-1] * 8, X.sum(0), [-1] * 8]
    )


def test_reduction_of_three_dimensions():
    x = RNG.integers(-3, 4, (2, 3, 4)).astype(np.float32)
    for dim in range(3):
        expected = x.sum(dim)
        np.testing.assert_array_equal(reduced(x, lambda a, b, d=dim: T.reduce_sum(a, b, d), expected.shape), expected)


def test_integer_reductions_start_at_the_types_limits():
    x = np.array([[-5, -7], [-128, -128]], np.int8)
    np.testing.assert_array_equal(reduced(x, lambda a, b: T.reduce_max(a, b, 1), (2,), "int8"), [-5, -128])
    u = np.array([[200, 7], [3, 255]], np.uint8)
    np.testing.assert_array_equal(reduced(u, lambda a, b: T.reduce_min(a, b, 1), (2,), "uint8"), [7, 3])


def test_bitwise_reductions():
    x = RNG.integers(0, 256, (4, 8)).astype(np.int32)
    for operator, reference in [
        (T.reduce_bitand, np.bitwise_and),
        (T.reduce_bitor, np.bitwise_or),
        (T.reduce_bitxor, np.bitwise_xor),
    ]:
        expected = reference.reduce(x, axis=1)
        np.testing.assert_array_equal(reduced(x, lambda a, b, o=operator: o(a, b, dim=1), (4,), "int32"), expected)


def test_nan_is_skipped_unless_asked_for():
    x = np.array([[1, np.nan, 3], [np.nan, np.nan, np.nan]], np.float32)
    assert reduced(x, lambda a, b: T.reduce_max(a, b, 1), (2,))[0] == 3
    assert np.isnan(reduced(x, lambda a, b: T.reduce_max(a, b, 1, nan_propagate=True), (2,))).all()


def test_custom_reductions():
    expected = np.sqrt((X.astype(np.float64) ** 2).sum(1))
    hypot = reduced(X, lambda a, b: T.reduce(a, b, lambda p, q: T.sqrt(p * p + q * q), 1, identity=0), (4,))
    np.testing.assert_allclose(hypot, expected, rtol=1e-5)
    parity = reduced(
        X.astype(np.int32), lambda a, b: T.reduce(a, b, lambda p, q: (p + q) % 2, 1, identity=0), (4,), "int32"
    )
    np.testing.assert_array_equal(parity, X.astype(np.int32).sum(1) % 2)
    combined = reduced(
        X, lambda a, b: T.reduce(a, b, lambda p, q: T.max(p, q), 1, clear=False, identity=-1e9), (4,), start=7
    )
    np.testing.assert_array_equal(combined, np.maximum(X.max(1), 7))


def test_reduction_errors():
    with pytest.raises(ReduceShapeMismatch, match=r"out of shape \(4,\) or \(4, 1\)"):
        reduced(X, lambda a, b: T.reduce_sum(a, b, dim=1), (8,))
    with pytest.raises(InvalidArgument, match="dim=2"):
        reduced(X, lambda a, b: T.reduce_sum(a, b, dim=2), (4,))


SCANS = [
    ("cumsum", np.cumsum),
    ("cumprod", np.cumprod),
    ("cummax", np.maximum.accumulate),
    ("cummin", np.minimum.accumulate),
]


@pytest.mark.parametrize(("name", "reference"), SCANS, ids=[n for n, _ in SCANS])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(name, reference, dim, reverse):
    x = RNG.integers(-2, 3, (4, 8)).astype(np.float32)
    flip = lambda y: np.flip(y, dim) if reverse else y  # noqa: E731
    expected = flip(reference(flip(x), axis=dim))
    operator = getattr(T, name)
    np.testing.assert_array_equal(reduced(x, lambda a, b: operator(a, b, dim, reverse), (4, 8)), expected)

    def in_place(a, b):
        operator(a, dim=dim, reverse=reverse)
        T.copy(a, b)

    np.testing.assert_array_equal(reduced(x, in_place, (4, 8)), expected)


# -- gemm -------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from(["float16", "bfloat16", "float32", "int8"]), st.sampled_from(["shared", "fragment"]),
)  # fmt: skip
def test_gemm_with_transposes_and_operands_of_every_scope(m, n, k, ta, tb, clear, dtype, scope):
    m, n, k = 4 * m, 4 * n, 4 * k
    a_shape, b_shape = (k, m) if ta else (m, k), (n, k) if tb else (k, n)
    accumulator = "int32" if dtype == "int8" else "float32"
    allocate = T.alloc_shared if scope == "shared" else T.alloc_fragment

    @T.prim_func
    def kernel(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((m, n), accumulator)):
        with T.Kernel(1, threads=32):
            a, b = allocate(a_shape, dtype), T.alloc_shared(b_shape, dtype)
            c = T.alloc_fragment((m, n), accumulator)
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 2)
            T.gemm(a, b, c, ta, tb, T.GemmWarpPolicy.FullRow, clear)
            T.copy(c, C)

    kind = T.dtype(dtype).as_numpy()
    a, b = (np.random.default_rng(1).integers(-4, 5, s).astype(kind) for s in (a_shape, b_shape))
    c = np.zeros((m, n), accumulator)
    run(kernel, [a, b, c])
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    expected = (wide_a.T if ta else wide_a) @ (wide_b.T if tb else wide_b) + (0 if clear else 2)
    np.testing.assert_array_equal(c, expected)


def test_gemm_on_regions_and_with_a_runtime_clear():
    @T.prim_func
    def kernel(A: T.Tensor((3, 8, 8), "float32"), C: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            tiles = T.alloc_shared((3, 8, 8), "float32")
            c = T.alloc_fragment((8, 8), "float32")
            T.copy(A, tiles)
            T.fill(c, 1000)
            for k in T.serial(3):
                T.gemm(tiles[k, :, :], tiles[0, 0:8, 0:8], c, clear_accum=k == 0)
            T.copy(c, C)

    a = RNG.integers(-3, 4, (3, 8, 8)).astype(np.float32)
    c = np.zeros((8, 8), np.float32)
    run(kernel, [a, c])
    np.testing.assert_array_equal(c, a.sum(0) @ a[0])


def test_gemm_errors_are_assertion_errors_with_upstreams_phrase():
    def kernel(A: T.Tensor((8, 8), "float16")):
        with T.Kernel(1, threads=32):
            a, b = T.alloc_shared((8, 32), "float16"), T.alloc_shared((64, 8), "float16")
            c = T.alloc_fragment((8, 8), "float32")
            T.gemm(a, b, c)

    with pytest.raises(AssertionError, match="T.gemm K shape check failed: K_A = 32, K_B = 64"):
        T.prim_func(kernel)
    assert issubclass(GemmShapeMismatch, ValueError)


def test_gemm_of_bools_is_an_error():
    def kernel(A: T.Tensor((8, 8), "float16")):
        with T.Kernel(1, threads=32):
            a = T.alloc_shared((8, 8), "bool")
            c = T.alloc_fragment((8, 8), "int32")
            T.gemm(a, a, c)

    with pytest.raises(DtypeError):
        T.prim_func(kernel)


# -- atomics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "reference"),
    [
        (T.atomic_add, np.add), (T.atomic_max, np.maximum), (T.atomic_min, np.minimum),
        (T.atomic_or, np.bitwise_or), (T.atomic_and, np.bitwise_and), (T.atomic_xor, np.bitwise_xor),
    ],
)  # fmt: skip
def test_atomics_on_elements(operator, reference):
    bins = RNG.integers(0, 4, 32).astype(np.int32)
    values = RNG.integers(0, 100, 32).astype(np.int32)

    @T.prim_func
    def kernel(I: T.Tensor((32,), "int32"), V: T.Tensor((32,), "int32"), H: T.Tensor((4,), "int32")):
        with T.Kernel(2, threads=8) as bx:
            for i in T.Parallel(16):
                operator(H[I[bx * 16 + i]], V[bx * 16 + i])

    h = np.full(4, 50, np.int32)
    expected = h.copy()
    reference.at(expected, bins, values)
    run(kernel, [bins, values, h])
    np.testing.assert_array_equal(h, expected)


def test_atomics_on_tiles_and_by_name():
    @T.prim_func
    def kernel(A: T.Tensor((4, 8), "float32"), B: T.Tensor((8, 8), "float32")):
        with T.Kernel(3, threads=8) as bx:
            tile = T.alloc_fragment((4, 8), "float32")
            T.copy(A, tile)
            T.atomic_add(B[4, 0], tile)
            T.atomic("max", B[0:4, :], tile)
            T.atomic.add(B[4, 0], 1)  # one element: by each thread

    b = np.zeros((8, 8), np.float32)
    run(kernel, [X, b])
    expected = np.concatenate([np.maximum(X, 0), 3 * X])
    expected[4, 0] += 3 * 8
    np.testing.assert_array_equal(b, expected)


def test_atomics_give_the_old_value_once():
    @T.prim_func
    def kernel(C: T.Tensor((1,), "int32"), O: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                place = T.atomic_add(C[0], 1, return_prev=True)
                O[i] = place + place

    c, o = np.array([10], np.int32), np.zeros(8, np.int32)
    run(kernel, [c, o])
    assert c[0] == 18
    np.testing.assert_array_equal(np.sort(o), 2 * np.arange(10, 18))


def test_atomic_load_store_exchange_and_neighbours():
    @T.prim_func
    def kernel(C: T.Tensor((8,), "float32"), O: T.Tensor((3,), "float32")):
        with T.Kernel(1):
            O[0] = T.atomic_load(C[1])
            T.atomic_store(C[1], 7)
            O[1] = T.atomic_exchange(C[1], 9)
            O[2] = C[1]
            T.atomic_addx2(C[2], C[6])
            T.atomic_addx4(C[2], 1, memory_order="release")

    c, o = np.arange(8, dtype=np.float32), np.zeros(3, np.float32)
    run(kernel, [c, o])
    np.testing.assert_array_equal(o, [1, 7, 9])
    np.testing.assert_array_equal(c, [0, 9, 2 + 6 + 1, 3 + 7 + 1, 5, 6, 6, 7])


def test_atomic_errors():
    def private(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            x = T.alloc_var("int32", init=0)
            T.atomic_add(x, 1)

    def order(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            T.atomic_add(A[0], 1, memory_order="strong")

    def name(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            T.atomic("sub", A[0], 1)

    for function, text in [
        (private, "memory of one thread"),
        (order, "unknown memory order"),
        (name, "unknown operation"),
    ]:
        with pytest.raises(InvalidArgument, match=text):
            T.prim_func(function)
