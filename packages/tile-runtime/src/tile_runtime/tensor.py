"""Reads any array a caller passes: numpy (with ml_dtypes), torch, and whatever speaks DLPack.

`read` gives the facts of one array. It is the slow, complete way; generated launchers read the two common types in
line and come here only for what is unusual. No array library but numpy is imported.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

import numpy as np

_word = ctypes.c_uint64.from_address


class TensorView(NamedTuple):
    """Where an array lies. `shape` and `strides` count stored elements; `owner` must live while `pointer` is used."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int
    device: str  # "cpu", "cuda", "rocm"
    device_index: int
    library: str  # "numpy", "torch", "dlpack"
    writable: bool
    owner: object


class Unreadable(Exception):
    """An array that exists but has no plain memory: its text says why (a caller turns it into its own error)."""


def read(value: object) -> TensorView | None:
    """The facts of an array; None if `value` is none. Raises Unreadable for sparse, fake or foreign-order arrays."""
    if isinstance(value, np.ndarray):
        return _read_numpy(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _read_torch(value, torch)
    if hasattr(value, "__dlpack__"):
        return _read_dlpack(value)
    return None


# -- numpy ---------------------------------------------------------------------------------------------------------


def _find_numpy_data_offset() -> int | None:
    """Bytes from `id(array)` to its data pointer, which numpy's C interface puts first after the object header.

    Reading it there takes 0.08 us, `__array_interface__` 0.7 us. The place is checked on two arrays of this very
    numpy and Python; None if it is not there (other interpreters), and the slow way is used.
    """
    if sys.implementation.name != "cpython":
        return None
    offset = object.__basicsize__
    for probe in (np.zeros(3, np.uint8), np.zeros((2, 2), np.float64)[1:]):
        if _word(id(probe) + offset).value != probe.__array_interface__["data"][0]:
            return None
    return offset


NUMPY_DATA_OFFSET = _find_numpy_data_offset()


def numpy_address(array: np.ndarray[Any, Any]) -> int:
    """Address of the first element."""
    if NUMPY_DATA_OFFSET is None:
        return int(array.__array_interface__["data"][0])
    return _word(id(array) + NUMPY_DATA_OFFSET).value


def _read_numpy(array: np.ndarray[Any, Any]) -> TensorView:
    dtype = array.dtype
    if not dtype.isnative or dtype.hasobject or dtype.fields is not None:
        raise Unreadable(f"a numpy array of dtype {dtype!r}, which is not a plain number of this machine's byte order")
    size = max(1, dtype.itemsize)
    if any(s % size for s in array.strides):
        raise Unreadable(
            f"a numpy array with byte strides {array.strides}, which are no multiples of its itemsize {size}"
        )
    strides = tuple(s // size for s in array.strides)
    flags = array.flags
    return TensorView(
        numpy_address(array), array.shape, strides, dtype.name, size, "cpu", 0, "numpy", flags.writeable, array
    )


# -- torch ---------------------------------------------------------------------------------------------------------

_torch_names: dict[Any, str] = {}


def torch_dtype_name(dtype: Any) -> str:
    """`float16` for torch.float16."""
    name = _torch_names.get(dtype)
    if name is None:
        name = _torch_names[dtype] = str(dtype).removeprefix("torch.")
    return name


def _read_torch(tensor: Any, torch: Any) -> TensorView:
    if tensor.layout is not torch.strided:
        raise Unreadable(f"a torch tensor of layout {tensor.layout}; make it dense with .to_dense()")
    device = tensor.device
    if device.type == "meta" or type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
        raise Unreadable("a torch tensor without memory (meta or fake)")
    if tensor.is_neg() or tensor.is_conj():
        raise Unreadable("a torch view with a pending negation or conjugation; call .resolve_neg().resolve_conj()")
    kind = "rocm" if device.type == "cuda" and getattr(torch.version, "hip", None) else device.type
    name = torch_dtype_name(tensor.dtype)
    return TensorView(
        tensor.data_ptr(),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        name,
        tensor.element_size(),
        kind,
        device.index or 0,
        "torch",
        True,
        tensor,
    )


# -- DLPack --------------------------------------------------------------------------------------------------------

_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 10: "rocm", 11: "cpu", 13: "cuda"}
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_NARROW = {
    10: "float8_e4m3fn", 11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz", 14: "float8_e8m0fnu",
    15: "float6_e2m3fn", 16: "float6_e3m2fn", 17: "float4_e2m1fn",
}  # fmt: skip
_READ_ONLY = 1


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_is = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is.restype = ctypes.c_int
_capsule_is.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _read_dlpack(value: Any) -> TensorView:
    """The capsule is only looked into, never consumed: dropping it gives the memory back to its library."""
    try:
        try:
            capsule = value.__dlpack__(max_version=(1, 1))
        except TypeError:  # a producer from before DLPack 1.0
            capsule = value.__dlpack__()
    except Exception as error:
        raise Unreadable(f"an array of {type(value).__name__} that DLPack cannot give out: {error}") from None
    writable = True
    if _capsule_is(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
        if versioned.major > 1:
            raise Unreadable(f"a DLPack capsule of version {versioned.major}, which this runtime does not know")
        tensor, writable = versioned.tensor, not versioned.flags & _READ_ONLY
    elif _capsule_is(capsule, b"dltensor"):
        tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    else:
        raise Unreadable(f"what {type(value).__name__}.__dlpack__ returned, which is no DLPack capsule")
    rank = tensor.ndim
    shape = tuple(tensor.shape[i] for i in range(rank))
    strides = tuple(tensor.strides[i] for i in range(rank)) if tensor.strides else _contiguous_strides(shape)
    name = _NARROW.get(tensor.code) or {"bool": "bool"}.get(
        _CODES.get(tensor.code, ""), f"{_CODES.get(tensor.code, '?')}{tensor.bits}"
    )
    if tensor.lanes != 1:
        name += f"x{tensor.lanes}"
    device = _DEVICES.get(tensor.device_type, f"device type {tensor.device_type}")
    pointer = (tensor.data or 0) + tensor.byte_offset
    return TensorView(
        pointer,
        shape,
        strides,
        name,
        max(1, tensor.bits // 8),
        device,
        tensor.device_id,
        "dlpack",
        bool(writable),
        (value, capsule),
    )


def _contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the elements lie in C order without gaps; strides of extents below 2 do not matter."""
    if 0 in shape:
        return True
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True
