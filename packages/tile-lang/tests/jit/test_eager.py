"""The eager style: the function's body is the kernel; calling it with tensors compiles, runs and returns."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import BadAnnotation, InvalidArgument, OutputError, UnboundDimension

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@tilelang.jit(execution="interpret")
def add(A, B, factor=1):
    M, N = T.const("M, N")
    A: T.Tensor[[M, N], T.float32]
    B: T.Tensor((M, N), "float32")
    C = T.empty((M, N), "float32")
    with T.Kernel(M, N) as (i, j):
        C[i, j] = A[i, j] + B[i, j] * factor
    return C


def test_call_runs_and_returns():
    np.testing.assert_array_equal(add(X, X), 2 * X)
    np.testing.assert_array_equal(add(X, B=X, factor=3), 4 * X)


def test_new_shape_compiles_anew_and_a_known_one_does_not(compilations):
    @tilelang.jit(execution="interpret")
    def double(A):
        N = T.const("N")
        A: T.Tensor((N,), "float32")
        B = T.empty(N, dtype="float32")
        with T.Kernel(1):
            for i in T.serial(N):
                B[i] = A[i] * 2
        return B

    for n in (4, 8, 4, 8, 4):
        a = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(double(a), a * 2)
    assert len(compilations) == 2


def test_dynamic_dimension_serves_every_shape(compilations):
    n = T.dynamic("n")

    @tilelang.jit(execution="interpret")
    def double(A):
        A: T.Tensor((n, 2), "float32")
        B = T.empty((n, 2), "float32")
        with T.Kernel(n) as i:
            for j in T.serial(2):
                B[i, j] = A[i, j] * 2
        return B

    for rows in (1, 5, 3):
        a = np.random.default_rng(0).random((rows, 2), np.float32)
        np.testing.assert_array_equal(double(a), a * 2)
    assert len(compilations) == 1


def test_dynamic_and_constant_dimensions_together(compilations):
    @tilelang.jit(execution="interpret")
    def rows(A):
        M, K = T.dynamic("m"), T.const("K")
        A: T.Tensor((M, K), "float32")
        S = T.empty((M,), "float32")
        with T.Kernel(M) as i:
            total = T.alloc_var("float32", init=0)
            for j in T.serial(K):
                total += A[i, j]
            S[i] = total
        return S

    for shape in [(2, 4), (5, 4), (3, 4), (3, 2)]:
        a = np.random.default_rng(0).random(shape, np.float32)
        np.testing.assert_allclose(rows(a), a.sum(1), rtol=1e-6)
    assert len(compilations) == 2


def test_bare_annotations_take_shape_and_type_from_the_call(compilations):
    @tilelang.jit(execution="interpret")
    def copy(A: T.Tensor, B: T.Tensor):
        M, N = A.shape
        with T.Kernel(M, N) as (i, j):
            B[i, j] = A[i, j] * 2

    for dtype in (np.float32, np.int32):
        a = X.astype(dtype)
        b = np.zeros((3, 4), np.float16)
        copy(a, b)
        np.testing.assert_array_equal(b, a * 2)
    assert len(compilations) == 2


def test_annotations_in_the_signature():
    @tilelang.jit(execution="interpret")
    def scale(A: T.Tensor((3, 4), "float32"), factor: T.float32, B: T.Tensor([3, 4], T.float32)):
        with T.Kernel(3, 4) as (i, j):
            B[i, j] = A[i, j] * factor

    b = np.zeros((3, 4), np.float32)
    scale(X, 2.5, b)
    np.testing.assert_array_equal(b, X * 2.5)


def test_outputs_come_back_in_the_order_of_return():
    @tilelang.jit(execution="interpret")
    def both(A):
        N = T.const("N")
        A: T.Tensor((N,), "float32")
        plus = T.empty((N,), "float32")
        minus = T.empty((N,), "int32")
        with T.Kernel(1):
            for i in T.serial(N):
                plus[i] = A[i] + 1
                minus[i] = A[i] - 1
        return minus, plus

    minus, plus = both(np.arange(3, dtype=np.float32))
    np.testing.assert_array_equal(plus, [1, 2, 3])
    np.testing.assert_array_equal(minus, [-1, 0, 1])
    assert minus.dtype == np.int32


def test_outputs_of_computed_shapes():
    @tilelang.jit(execution="interpret")
    def pool(A, k=2):
        N = T.const("N")
        A: T.Tensor((N,), "float32")
        B = T.empty((T.ceildiv(N, k),), "float32")
        with T.Kernel(T.ceildiv(N, k)) as i:
            best = T.alloc_var("float32", init=-1e30)
            for j in T.serial(k):
                if i * k + j < N:
                    best = T.max(best, A[i * k + j])
            B[i] = best
        return B

    np.testing.assert_array_equal(pool(np.float32([3, 1, 4, 1, 5])), [3, 4, 5])
    np.testing.assert_array_equal(pool(np.float32([3, 1, 4, 1, 5]), k=3), [4, 5])


def test_sizes_are_plain_integers():
    seen = []

    @tilelang.jit(execution="interpret")
    def kernel(A):
        M, N = T.const("M N")
        A: T.Tensor((M, N), "float32")
        B = T.empty((M * N,), "float32")
        if M > 2:
            pass
        with T.Kernel(M, N) as (i, j):
            seen.append((type(M), M, N))
            B[i * N + j] = A[i, j]
        return B

    np.testing.assert_array_equal(kernel(X), X.ravel())
    assert seen[-1] == (int, 3, 4)


def test_one_size_in_two_arguments_must_agree():
    with pytest.raises(UnboundDimension, match="two arguments disagree on"):
        add(X, X[:2])


def test_equal_values_of_different_types_compile_anew(compilations):
    @tilelang.jit(execution="interpret")
    def kind(A, flag):
        A: T.Tensor((1,), "float32")
        B = T.empty((1,), "float32")
        with T.Kernel(1):
            B[0] = {bool: 1, int: 2, float: 3}[type(flag)]
        return B

    a = np.zeros(1, np.float32)
    assert [kind(a, flag)[0] for flag in (1, True, 1.0, 1)] == [2, 1, 3, 2]
    assert len(compilations) == 3


def test_run_time_scalars_compile_once(compilations):
    @tilelang.jit(execution="interpret")
    def fill(A, x: T.float32):
        A: T.Tensor((4,), "float32")
        with T.Kernel(1):
            T.fill(A, x)

    a = np.zeros(4, np.float32)
    for x in (1.5, 2.5, 3):
        fill(a, x)
        assert (a == x).all()
    assert len(compilations) == 1


def test_python_types_annotate_compile_time_values(compilations):
    @tilelang.jit(execution="interpret")
    def fill(A: T.Tensor((4,), "float32"), step: int = 2, *, value: float = 1.5, on: bool = True):
        with T.Kernel(1):
            for i in [0, 1, 2, 3][::step]:
                if on:
                    A[i] = value

    a = np.zeros(4, np.float32)
    fill(a)
    np.testing.assert_array_equal(a, [1.5, 0, 1.5, 0])
    fill(a, 1, value=2)
    np.testing.assert_array_equal(a, [2, 2, 2, 2])
    fill.compile(step=3)(a)
    np.testing.assert_array_equal(a, [1.5, 2, 2, 1.5])
    assert len(compilations) == 3


def test_run_time_scalar_of_a_compiled_kernel():
    @tilelang.jit(execution="interpret")
    def fill(A: T.Tensor((4,), "float32"), x: T.float32, n: T.int32):
        with T.Kernel(1):
            for i in T.serial(n):
                A[i] = x

    a = np.zeros(4, np.float32)
    fill.compile()(a, 2.5, 3)
    np.testing.assert_array_equal(a, [2.5, 2.5, 2.5, 0])


def test_strided_argument_of_a_bare_annotation():
    @tilelang.jit(execution="interpret")
    def copy(A: T.Tensor):
        B = T.empty(A.shape, A.dtype)
        with T.Kernel(*A.shape) as (i, j):
            B[i, j] = A[i, j]
        return B

    np.testing.assert_array_equal(copy(X.T), X.T)
    np.testing.assert_array_equal(copy(X[:, ::2]), X[:, ::2])
    np.testing.assert_array_equal(copy(X), X)


def test_compile_for_sizes_without_tensors(compilations):
    kernel = add.compile(M=3, N=4)
    np.testing.assert_array_equal(kernel(X, X), 2 * X)
    kernel = add.compile(M=3, N=4, factor=2)
    np.testing.assert_array_equal(kernel(X, X), 3 * X)
    assert str(add.get_tir(M=2, N=2).attrs["global_symbol"]) == "add"
    assert "add" in add.get_kernel_source(M=2, N=2)
    kernels = add.par_compile([{"M": 1, "N": 4}, {"M": 2, "N": 4}])
    np.testing.assert_array_equal(kernels[1](X[:2], X[:2]), 2 * X[:2])


def test_get_tir_for_tensors():
    func = add.get_tir(X, X)
    assert [int(e) for e in func.params[0].ty.shape] == [3, 4]


def test_size_that_nothing_gives_is_an_error():
    with pytest.raises(UnboundDimension, match="the size N of add has no value"):
        add.compile(M=3)


def test_out_idx_with_the_eager_style_is_an_error():
    with pytest.raises(OutputError, match="of the eager style"):

        @tilelang.jit(out_idx=[1])
        def copy(A: T.Tensor, B: T.Tensor):
            with T.Kernel(1):
                T.copy(A, B)


def test_out_idx_on_a_function_with_returned_outputs_is_an_error():
    with pytest.raises(OutputError, match="returns its outputs"):
        tilelang.compile(add.get_tir(M=2, N=2), out_idx=[0], execution="interpret")


def test_returning_something_else_is_an_error():
    @tilelang.jit(execution="interpret")
    def wrong(A: T.Tensor):
        with T.Kernel(1):
            T.clear(A)
        return 3

    with pytest.raises(OutputError, match="wrong returns something that T.empty did not make"):
        wrong(X.copy())


def test_argument_of_another_rank_names_it():
    with pytest.raises(InvalidArgument, match="A has the wrong number of dimensions"):
        add(X[0], X[0])


def test_missing_and_surplus_arguments_are_pythons_errors():
    with pytest.raises(TypeError, match="missing a required argument: 'B'"):
        add(X)
    with pytest.raises(TypeError, match="too many positional arguments"):
        add(X, X, 1, 2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'C'"):
        add(X, X, C=X)


def test_const_outside_of_the_eager_style_is_an_error():
    def kernel(A: T.Tensor((4,), "float32")):
        N = T.const("N")
        with T.Kernel(1):
            T.clear(A)

    with pytest.raises(BadAnnotation, match="T.const"):
        T.prim_func(kernel)


def test_const_of_a_number_is_a_typed_literal():
    @tilelang.jit(execution="interpret")
    def kernel(A: T.Tensor):
        with T.Kernel(1):
            A[0] = T.const(0.1, "float16")

    a = np.zeros(1, np.float32)
    kernel(a)
    assert a[0] == np.float16(0.1)


def test_several_kernels_and_scratch():
    @tilelang.jit(execution="interpret")
    def normalise(A):
        N = T.const("N")
        A: T.Tensor((N,), "float32")
        B = T.empty((N,), "float32")
        total = T.alloc_global((1,), "float32")
        with T.Kernel(1):
            acc = T.alloc_var("float32", init=0)
            for i in T.serial(N):
                acc += A[i]
            total[0] = acc
        with T.Kernel(N) as i:
            B[i] = A[i] / total[0]
        return B

    a = np.float32([1, 2, 5])
    np.testing.assert_allclose(normalise(a), a / 8)


def test_eager_as_a_method():
    class Model:
        factor = 3

        @tilelang.jit(execution="interpret")
        def scale(A: T.Tensor):
            B = T.empty(A.shape, "float32")
            with T.Kernel(*A.shape) as (i, j):
                B[i, j] = A[i, j] * 3
            return B

    np.testing.assert_array_equal(Model.scale(X), X * 3)


def test_nan_and_containers_as_compile_time_values():
    @tilelang.jit(execution="interpret")
    def total(A, weights, names=()):
        A: T.Tensor((1,), "float32")
        with T.Kernel(1):
            A[0] = sum(weights) + len(names)

    a = np.zeros(1, np.float32)
    for weights, names in [([1, 2], ()), ((1, 2.5), ("x",)), ({3: "three"}, ())]:
        total(a, weights, names)
        assert a[0] == sum(weights) + len(names)
