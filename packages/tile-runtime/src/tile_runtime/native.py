"""The native entry of a kernel: machine code of the artifact (native_source.py) as Python functions.

The code is mapped without a linker (elf.py). It may import the functions of the Python C interface that
native_source.IMPORTS lists, and nothing else. A machine where this cannot be (another processor, no exchange interface
in torch, an interpreter with other objects) keeps the Python launcher, which does the same more slowly.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .elf import Image
from .errors import LoadError
from .native_interface import HEADER_BYTES, LAUNCH, MAP_SLOT_BYTES, MAP_SLOTS, PREPARED, State
from .native_source import IMPORTS
from .tensor_map import ALIGNMENT

_METH_FASTCALL = 0x0080
_word = ctypes.c_uint64.from_address
_EXCHANGE = "__dlpack_c_exchange_api__"
_NO_SYNC_READER, _STREAM_READER = 5, 6  # words of DLPackExchangeAPI (dlpack.h, 1.3)
_MAJOR_VERSION = 1


@dataclass
class Vendor:
    """What a vendor's runtime knows: addresses of C functions, and for each launch its kernel and attributes.

    `device_type` is DLPack's (2 for CUDA, 10 for ROCm); `device_reader` tells the current device, 0 where there is one only;
    `encoder` makes tensor maps, of which the manifest has `maps`; `keep` must live as long as the addresses.
    """

    device_type: int
    launcher: int
    device_reader: int
    launches: Sequence[tuple[int, int]]
    keep: object = None
    encoder: int = 0
    maps: int = 0


class Words(bytes):
    """8-byte words that native code reads, in a Python object with what must live as long as it.

    `launch` is 0, or the address of a C function of (address of the words, addresses of tensors), for native code that calls what
    these words belong to: it returns 0; -1 with Python's error set; -2 if this is another call, and nothing has happened.
    """

    keep: object
    launch = 0


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class NativeEntry:
    """The loaded code, and the state that its two functions share. Raises LoadError for code that does not load here."""

    def __init__(self, data: bytes, vendor: Vendor) -> None:
        if not is_usable():
            raise LoadError("native entries are code for x86-64 Linux and CPython's own objects")
        self._image = Image([("native entry", data)], python_interface())
        self._vendor = vendor
        self._table = (ctypes.c_uint64 * (State.LAUNCHES + State.WORDS_OF_LAUNCH * len(vendor.launches)))()
        self._table[State.DEVICE_TYPE] = vendor.device_type
        self._table[State.DEVICE_READER] = vendor.device_reader
        self._table[State.LAUNCHER] = vendor.launcher
        self._maps = ctypes.create_string_buffer(vendor.maps * MAP_SLOTS * MAP_SLOT_BYTES + ALIGNMENT)
        self._table[State.MAPS] = ctypes.addressof(self._maps) + -ctypes.addressof(self._maps) % ALIGNMENT
        self._table[State.ENCODER] = vendor.encoder
        for i, (kernel, attributes) in enumerate(vendor.launches):
            self._table[self._place(i) + State.KERNEL] = kernel
            self._table[self._place(i) + State.ATTRIBUTES] = attributes
        self.learn_torch()

    @staticmethod
    def _place(launch: int) -> int:
        return State.LAUNCHES + State.WORDS_OF_LAUNCH * launch

    def learn_torch(self) -> bool:
        """Let the code recognise torch's tensors, once torch is loaded; False as long as it cannot."""
        torch = sys.modules.get("torch")
        if self._table[State.TENSOR_TYPE]:
            return True
        if torch is None or not hasattr(torch, "nn"):
            return False
        readers = exchange_functions(torch)
        if readers is None:
            return False
        self._table[State.TENSOR_READER], self._table[State.STREAM_READER] = readers
        self._table[State.PARAMETER_TYPE] = id(torch.nn.Parameter)
        self._table[State.TENSOR_TYPE] = id(torch.Tensor)
        return True

    def set_ready(self, launch: int, device: int) -> None:
        """A launch has been prepared on a device: from now on the code may do it."""
        if device < 64:
            self._table[self._place(launch) + State.READY] |= 1 << device

    def set_kernel(self, launch: int, device: int, kernel: int) -> None:
        """As `set_ready`, with a handle that belongs to this device alone: on others Python launches from now on."""
        if device < 64:
            self._table[self._place(launch) + State.KERNEL] = kernel
            self._table[self._place(launch) + State.READY] = 1 << device

    def launch(self, python: Callable[..., Any]) -> Callable[..., Any]:
        """The function for plain calls; what it does not recognise goes to `python`."""
        return self._function(LAUNCH, python, b"")

    def prepared(self, python: Callable[..., Any], dims: Sequence[int], scalars: Sequence[Any]) -> Callable[..., Any]:
        """The function for calls with these dims and scalars; it takes the tensors alone."""
        words = [struct.pack("<q", d) for d in dims]
        words += [struct.pack("<d" if isinstance(s, float) else "<q", s) for s in scalars]
        return self._function(PREPARED, python, b"".join(words))

    def _function(self, symbol: str, python: Callable[..., Any], words: bytes) -> Callable[..., Any]:
        words = struct.pack("<QQ", ctypes.addressof(self._table), id(python)) + words
        return python_function(self._image.address(symbol), words, (self, python))


def python_function(address: int, words: bytes, keep: object, launch: int = 0) -> Callable[..., Any]:
    """The machine code at `address` as a METH_FASTCALL function with `words` as its `self`; `keep` lives as long as it."""
    this = Words(words)
    this.launch = launch
    method = _MethodDef(b"launch", address, _METH_FASTCALL, None)
    this.keep = (keep, method)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    made: Callable[..., Any] = make(ctypes.addressof(method), this, None)
    return made


_torch_words = (ctypes.c_uint64 * 3)()


def torch_words() -> int:
    """Address of three words: torch's types Tensor and Parameter, and the function that reads a tensor into a DLTensor. They are
    0 as long as torch is not loaded, or is one that native code cannot read."""
    torch = sys.modules.get("torch")
    if not _torch_words[0] and torch is not None and hasattr(torch, "nn"):
        readers = exchange_functions(torch)
        if readers is not None:
            _torch_words[:] = [id(torch.Tensor), id(torch.nn.Parameter), readers[0]]
    return ctypes.addressof(_torch_words)


def is_usable() -> bool:
    """Whether this interpreter's objects lie as the code expects: a type at 8 bytes, a bytes object's content at 32."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.implementation.name != "cpython":
        return False
    probe = Words(struct.pack("<Q", 0x7469_6C65))
    typed = _word(id(probe) + 8).value == id(Words) and _word(id(1.5) + 8).value == id(float)
    sized = _word(length_word(["a", "list"])).value == 2
    return typed and sized and _word(id(probe) + HEADER_BYTES).value == 0x7469_6C65


def length_word(things: list[Any]) -> int:
    """Address of the word that holds the list's length."""
    return id(things) + 16


def python_interface(names: Sequence[str] = IMPORTS) -> dict[str, int]:
    """Addresses of what native code imports, in this process."""
    found = {}
    for name in names:
        try:
            found[name] = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, name))
        except ValueError:
            raise LoadError(f"this Python offers no {name}, which native entries need") from None
    return found


def exchange_functions(torch: Any) -> tuple[int, int] | None:
    """(reads a tensor into a DLTensor, tells the current stream of a device); None where torch is too old for them."""
    capsule = getattr(torch.Tensor, _EXCHANGE, None)
    if capsule is None:
        return None
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    table = get(capsule, b"dlpack_exchange_api")
    if ctypes.c_uint32.from_address(table).value != _MAJOR_VERSION:
        return None
    reader, stream = (_word(table + 8 * word).value for word in (_NO_SYNC_READER, _STREAM_READER))
    return (reader, stream) if reader and stream else None
