"""What may be passed to a kernel: numpy arrays, torch tensors, whatever speaks DLPack; and what may not."""

import numpy as np
import pytest

import tile_runtime.errors as errors
import tilelang
import tilelang.language as T

n = T.dynamic("n")


@T.prim_func
def add_one(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
    with T.Kernel(T.ceildiv(n, 4)) as bx:
        for i in T.serial(4):
            B[bx * 4 + i] = A[bx * 4 + i] + 1


class Foreign:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.fixture(params=["interpret", "device"])
def kernel(request):
    return tilelang.compile(add_one, out_idx=[1], target="cpu", execution=request.param)


X = np.arange(6, dtype=np.float32)


def test_numpy_arrays(kernel):
    result = kernel(X)
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, X + 1)


def test_torch_tensors_give_torch_tensors(kernel):
    torch = pytest.importorskip("torch")
    result = kernel(torch.from_numpy(X))
    assert isinstance(result, torch.Tensor)
    np.testing.assert_array_equal(result.numpy(), X + 1)
    mine = torch.zeros(6)
    assert kernel(torch.from_numpy(X), mine) is mine
    np.testing.assert_array_equal(mine.numpy(), X + 1)


def test_dlpack_arrays(kernel):
    b = np.zeros(6, np.float32)
    kernel(Foreign(X.copy()), Foreign(b))
    np.testing.assert_array_equal(b, X + 1)


def test_libraries_may_be_mixed(kernel):
    torch = pytest.importorskip("torch")
    b = torch.zeros(6)
    kernel(X, b)
    np.testing.assert_array_equal(b.numpy(), X + 1)


def test_dlpack_arrays_of_eager_kernels():
    @tilelang.jit(execution="interpret")
    def double(A):
        N = T.const("N")
        A: T.Tensor((N,), "float32")
        with T.Kernel(N) as i:
            A[i] = A[i] * 2

    a = X.copy()
    double(Foreign(a))
    np.testing.assert_array_equal(a, X * 2)


def test_torch_tensors_of_eager_kernels():
    torch = pytest.importorskip("torch")

    @tilelang.jit(execution="interpret")
    def double(A: T.Tensor):
        B = T.empty(A.shape, A.dtype)
        with T.Kernel(*A.shape) as i:
            B[i] = A[i] * 2
        return B

    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        a = torch.arange(4).to(dtype)
        result = double(a)
        assert result.dtype == dtype
        assert torch.equal(result, a * 2)


def test_empty_tensors(kernel):
    assert kernel(np.zeros(0, np.float32)).shape == (0,)


WRONG = [
    (np.zeros((2, 3), np.float32), errors.ArgumentShapeError, "add_one.A.ndim is expected to be 1, but got 2"),
    (np.zeros(6), errors.ArgumentDtypeError, "add_one.A.dtype is expected to be float32, but got float64"),
    (np.zeros(12, np.float32)[::2], errors.ArgumentStrideError, "add_one.A.strides is expected to be contiguous"),
    (np.zeros(25, np.uint8)[1:].view(np.float32), errors.ArgumentAlignmentError, "no multiple of 4 bytes"),
    ([1.0, 2.0], errors.ArgumentTypeError, "add_one.A is expected to be a tensor"),
    (None, errors.ArgumentTypeError, "but got None"),
]


@pytest.mark.parametrize(
    ("argument", "error", "text"), WRONG, ids=["rank", "dtype", "stride", "alignment", "list", "None"]
)
def test_wrong_argument_names_kernel_and_parameter(kernel, argument, error, text):
    with pytest.raises(error, match=text.replace(".", r"\.")):
        kernel(argument)


def test_wrong_argument_is_noticed_after_right_ones(kernel):
    kernel(X)
    for argument, error, _ in WRONG:
        with pytest.raises(error):
            kernel(argument)
    np.testing.assert_array_equal(kernel(X), X + 1)


def test_arguments_that_disagree_on_a_dimension(kernel):
    with pytest.raises(errors.ArgumentShapeError, match=r"n = 6 from A\.shape\[0\]"):
        kernel(X, np.zeros(7, np.float32))


def test_torch_tensors_without_memory_are_refused(kernel):
    torch = pytest.importorskip("torch")
    with pytest.raises(errors.ArgumentTypeError, match="without memory"):
        kernel(torch.zeros(6, device="meta"))


def test_torch_tensor_of_another_type_says_how_to_convert(kernel):
    torch = pytest.importorskip("torch")
    with pytest.raises(errors.ArgumentDtypeError, match=r"A\.to\(torch\.float32\)"):
        kernel(torch.zeros(6, dtype=torch.float16))


def test_read_only_output_is_refused(kernel):
    b = np.zeros(6, np.float32)
    b.flags.writeable = False
    with pytest.raises(errors.ReadOnlyError, match="add_one.B is read-only"):
        kernel(X, b)


def test_read_only_input_is_accepted():
    kernel = tilelang.compile(add_one, out_idx=[1], target="cpu")
    a = X.copy()
    a.flags.writeable = False
    np.testing.assert_array_equal(kernel(a), X + 1)


def test_bools_and_small_floats_of_torch():
    torch = pytest.importorskip("torch")

    @T.prim_func
    def convert(A: T.Tensor((4,), "float8_e4m3"), M: T.Tensor((4,), "bool"), B: T.Tensor((4,), "bfloat16")):
        with T.Kernel(1):
            for i in T.serial(4):
                B[i] = T.if_then_else(M[i], A[i], 0)

    kernel = tilelang.compile(convert, out_idx=2, execution="interpret")
    a = torch.tensor([1.0, 2.0, -3.5, 4.0]).to(torch.float8_e4m3fn)
    m = torch.tensor([True, False, True, False])
    assert kernel(a, m).tolist() == [1.0, 0.0, -3.5, 0.0]
