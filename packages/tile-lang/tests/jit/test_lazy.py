"""The lazy style: a factory gives kernels; outputs are named by out_idx."""

import numpy as np
import pytest

import tile_runtime.errors as runtime_errors
import tilelang
import tilelang.language as T
from tilelang.errors import OutputError

X = np.arange(8, dtype=np.float32)


@tilelang.jit(execution="interpret")
def scale(n, factor=2.0):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1):
            for i in T.serial(n):
                B[i] = A[i] * factor

    return main


def three(n):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n, 2), "float32")):
        with T.Kernel(1):
            for i in T.serial(n):
                B[i] = A[i] + 1
                C[i, 0] = A[i]
                C[i, 1] = -A[i]

    return main


def test_factory_gives_a_kernel():
    kernel = scale(8)
    b = np.zeros(8, np.float32)
    assert kernel(X, b) is None
    np.testing.assert_array_equal(b, X * 2)
    assert repr(kernel) == "<JITKernel main (A, B) on interpret>"


def test_same_arguments_give_the_same_kernel(compilations):
    first = scale(8, 3.5)
    assert scale(n=8, factor=3.5) is first
    assert scale(8, 3.5) is first
    assert scale(4, 3.5) is not first
    assert len(compilations) == 2


def test_equal_arguments_of_different_types_give_different_kernels(compilations):
    kernels = {id(scale(6, factor)) for factor in (1, 1.0, True)}
    assert len(kernels) == 3


@pytest.mark.parametrize("out_idx", [2, -1, [2], [-1]])
def test_output_left_out_is_allocated_and_returned(out_idx):
    kernel = tilelang.compile(three(8), out_idx=out_idx, execution="interpret")
    c = kernel(X, np.zeros(8, np.float32))
    assert isinstance(c, np.ndarray)
    np.testing.assert_array_equal(c, np.stack([X, -X], 1))


@pytest.mark.parametrize("out_idx", [2, [-1]])
def test_output_passed_is_written_into_and_returned(out_idx):
    kernel = tilelang.compile(three(8), out_idx=out_idx, execution="interpret")
    c = np.zeros((8, 2), np.float32)
    assert kernel(X, np.zeros(8, np.float32), c) is c
    np.testing.assert_array_equal(c, np.stack([X, -X], 1))


@pytest.mark.parametrize("out_idx", [[1, 2], [-2, -1], (1, -1)])
def test_several_outputs(out_idx):
    kernel = tilelang.compile(three(8), out_idx=out_idx, execution="interpret")
    b, c = kernel(X)
    np.testing.assert_array_equal(b, X + 1)
    np.testing.assert_array_equal(c, np.stack([X, -X], 1))
    mine = np.zeros(8, np.float32), np.zeros((8, 2), np.float32)
    again = kernel(X, *mine)
    assert again[0] is mine[0]
    assert again[1] is mine[1]
    assert kernel.out_idx == [1, 2]


def test_output_in_front_of_the_inputs():
    m = T.dynamic("m")

    @tilelang.jit(out_idx=0, execution="interpret")
    def double():
        @T.prim_func
        def main(B: T.Tensor((m, 2), "float32"), A: T.Tensor((m,), "float32")):
            with T.Kernel(m) as i:
                B[i, 0] = A[i]
                B[i, 1] = A[i] * 2

        return main

    np.testing.assert_array_equal(double()(X), np.stack([X, X * 2], 1))


@pytest.mark.parametrize("out_idx", [3, -4, [0, 5], "B", [1.0]])
def test_impossible_out_idx(out_idx):
    with pytest.raises(OutputError, match="out_idx names no parameter"):
        tilelang.compile(three(8), out_idx=out_idx, execution="interpret")


def test_wrong_number_of_arguments_says_both_ways_to_call():
    kernel = tilelang.compile(three(8), out_idx=2, execution="interpret")
    with pytest.raises(ValueError, match="Kernel expected 2 inputs, but 1 are provided"):
        kernel(X)


def test_keywords_fill_parameters():
    kernel = tilelang.compile(three(8), out_idx=[1, 2], execution="interpret")
    b, _ = kernel(A=X)
    np.testing.assert_array_equal(b, X + 1)
    c = np.zeros((8, 2), np.float32)
    b = np.zeros(8, np.float32)
    assert kernel(X, C=c, B=b)[1] is c
    with pytest.raises(TypeError, match="no parameter 'Z'"):
        kernel(Z=X)
    with pytest.raises(TypeError, match="no value for A"):
        kernel(B=b, C=c)
    with pytest.raises(TypeError, match="no value for B"):
        kernel(A=X, C=c)


def test_scalars_are_positional_parameters():
    @T.prim_func
    def main(n: T.int32, x: T.float32, flag: T.bool, A: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            for i in T.serial(n):
                if flag:
                    A[i] = x

    kernel = tilelang.compile(main, execution="interpret")
    for n, x in [(3, 2.5), (np.int64(3), np.float64(2.5)), (np.array(3), 2.5)]:
        a = X.copy()
        kernel(n, x, True, a)
        np.testing.assert_array_equal(a[:4], [2.5, 2.5, 2.5, 3])
    with pytest.raises(runtime_errors.ScalarRangeError):
        kernel(1 << 40, 1.0, True, X.copy())
    with pytest.raises(runtime_errors.ArgumentTypeError):
        kernel(1.5, 1.0, True, X.copy())


def test_int_and_float_annotations_are_scalars():
    @T.prim_func
    def main(n: int, x: float, A: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            for i in T.serial(n):
                A[i] = x

    a = X.copy()
    tilelang.compile(main, execution="interpret")(2, 0.5, a)
    np.testing.assert_array_equal(a[:3], [0.5, 0.5, 2])


def test_scalar_as_a_grid_extent():
    @T.prim_func
    def main(n: T.int32, A: T.Tensor((8,), "float32")):
        with T.Kernel(n) as i:
            A[i] = n

    a = X.copy()
    tilelang.compile(main, execution="interpret")(3, a)
    np.testing.assert_array_equal(a, [3, 3, 3, 3, 4, 5, 6, 7])


def test_dynamic_dimensions_need_no_new_kernel(compilations):
    m, n = T.dynamic("m, n")

    @tilelang.jit(out_idx=-1, execution="interpret")
    def transpose():
        @T.prim_func
        def main(A: T.Tensor((m, n), "float32"), B: T.Tensor((n, m), "float32")):
            with T.Kernel(m, n) as (i, j):
                B[j, i] = A[i, j]

        return main

    for shape in [(2, 3), (4, 1), (1, 1)]:
        a = np.random.default_rng(0).random(shape, np.float32)
        np.testing.assert_array_equal(transpose()(a), a.T)
    assert len(compilations) == 1


def test_strided_tensors_bind_their_strides():
    m, s = T.dynamic("m, s")

    @T.prim_func
    def main(A: T.StridedTensor((m, 4), (s, 1), "float32"), B: T.Tensor((m, 4), "float32")):
        with T.Kernel(m) as i:
            for j in T.serial(4):
                B[i, j] = A[i, j]

    kernel = tilelang.compile(main, out_idx=1, execution="interpret")
    wide = np.arange(36, dtype=np.float32).reshape(3, 12)
    np.testing.assert_array_equal(kernel(wide[:, 2:6]), wide[:, 2:6])
    np.testing.assert_array_equal(kernel(wide[:, :4].copy()), wide[:, :4])


def test_get_tir_and_source_and_parameters():
    func = scale.get_tir(8)
    assert str(func.attrs["global_symbol"]) == "main"
    kernel = scale(8)
    assert [p.name for p in kernel.params] == ["A", "B"]
    assert kernel.prim_func is not None
    assert "main" in scale.get_kernel_source(8)


def test_par_compile_takes_keywords_and_tuples():
    kernels = scale.par_compile([{"n": 4}, (8,), {"n": 8, "factor": 0.5}])
    outputs = []
    for kernel, n in zip(kernels, (4, 8, 8)):
        b = np.zeros(n, np.float32)
        kernel(X[:n].copy(), b)
        outputs.append(b)
    np.testing.assert_array_equal(outputs[0], X[:4] * 2)
    np.testing.assert_array_equal(outputs[2], X / 2)


def test_jit_on_a_prim_func_compiles_at_once():
    kernel = tilelang.jit(three(8), out_idx=[1, 2], execution="interpret")
    np.testing.assert_array_equal(kernel(X)[0], X + 1)


def test_factory_keeps_its_name_and_documentation():
    @tilelang.jit
    def documented(n):
        """Add things."""

    assert documented.__name__ == "documented"
    assert documented.__doc__ == "Add things."


def test_wrong_factory_arguments_are_pythons_error():
    with pytest.raises(TypeError, match="missing a required argument: 'n'"):
        scale()


def test_prepared_call_takes_tensors_only():
    kernel = tilelang.compile(three(8), out_idx=[2], execution="interpret")
    fast = kernel.prepare(X, np.zeros(8, np.float32), np.zeros((8, 2), np.float32))
    b, c = np.zeros(8, np.float32), np.zeros((8, 2), np.float32)
    fast(X, b, c)
    np.testing.assert_array_equal(b, X + 1)
