from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tile_runtime.tensor import Unreadable, is_contiguous, numpy_address, read


class Producer:
    """An array that only speaks DLPack, of before version 1.0 if `old`."""

    def __init__(self, array: Any, old: bool = False) -> None:
        self.array = array
        self.old = old

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("unexpected keyword argument")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "uint64", "float16"])
def test_numpy(dtype: str) -> None:
    array = np.zeros((4, 6), dtype)[1:, ::2]
    view = read(array)
    assert view is not None
    assert view.pointer == array.__array_interface__["data"][0] == numpy_address(array)
    assert (view.shape, view.strides, view.dtype) == ((3, 3), (6, 2), dtype)
    assert (view.device, view.library, view.writable) == ("cpu", "numpy", True)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "float4_e2m1fn"])
def test_ml_dtypes(name: str) -> None:
    view = read(np.zeros(4, getattr(ml_dtypes, name)))
    assert view is not None
    assert view.dtype == name


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float4_e2m1fn_x2", "bool", "int64"])
def test_torch(name: str) -> None:
    tensor = torch.zeros(4, 6, dtype=torch.uint8).view(torch.uint8).to(torch.uint8)
    tensor = torch.empty(4, 6, dtype=getattr(torch, name)).t()
    view = read(tensor)
    assert view is not None
    assert (view.pointer, view.shape, view.strides) == (tensor.data_ptr(), (6, 4), (1, 6))
    assert (view.dtype, view.device, view.device_index, view.library) == (name, "cpu", 0, "torch")


@pytest.mark.parametrize("old", [False, True])
def test_dlpack(old: bool) -> None:
    array = np.arange(12, dtype=np.int16).reshape(3, 4)[:, 1:]
    view = read(Producer(array, old))
    assert view is not None
    assert (view.pointer, view.shape, view.strides) == (numpy_address(array), (3, 3), (4, 1))
    assert (view.dtype, view.itemsize, view.library) == ("int16", 2, "dlpack")
    for dtype in (torch.bool, torch.bfloat16, torch.float64):
        view = read(Producer(torch.zeros(2, dtype=dtype), old))
        assert view is not None
        assert view.dtype == str(dtype).removeprefix("torch.")


def test_a_read_only_array_is_seen_as_such() -> None:
    array = np.zeros(3)
    array.setflags(write=False)
    for value in (array, Producer(array)):
        view = read(value)
        assert view is not None
        assert not view.writable


def test_subclasses_are_arrays() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    masked = np.ma.masked_array([1.0, 2.0])
    for value in (parameter, masked):
        assert read(value) is not None


@pytest.mark.parametrize("value", [None, 3, 2.5, "x", [1, 2], object()])
def test_what_is_no_array(value: object) -> None:
    assert read(value) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.zeros(3, ">f4"), "byte order"),
        (np.zeros(3, object), "not a plain number"),
        (np.zeros(3, [("a", "f4"), ("b", "i1")])["a"], "byte strides"),
        (torch.zeros(3).to_sparse(), "to_dense"),
        (torch.zeros(3, device="meta"), "without memory"),
        (torch.zeros(3, dtype=torch.complex64).conj().imag, "resolve_neg"),
        (Producer(np.zeros(3, "M8[s]")), "cannot give out"),
    ],
)
def test_arrays_without_plain_memory_say_why(value: Any, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        read(value)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((2, 3), (3, 1), True),
        ((2, 3), (1, 2), False),
        ((1, 3), (99, 1), True),
        ((2, 1), (1, 77), True),
        ((0, 3), (5, 7), True),
        ((), (), True),
        ((2, 3), (4, 1), False),
    ],
)
def test_contiguity(shape: tuple[int, ...], strides: tuple[int, ...], expected: bool) -> None:
    assert is_contiguous(shape, strides) is expected
    if 0 not in shape:
        itemsize = 4
        base = np.zeros(400, np.float32)
        array = np.lib.stride_tricks.as_strided(base, shape, [s * itemsize for s in strides])
        assert array.flags.c_contiguous is expected
