"""Calls that come again, run by native code (again.ll): found by the shapes of their operands, checked, launched."""

from __future__ import annotations

import ctypes
import inspect
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from .elf import Image
from .errors import LoadError
from .native import Words, is_usable, python_function, python_interface, torch_words
from .native_interface import HEADER_BYTES
from .shipped_code import ShippedCode

CODE = ShippedCode(Path(__file__).parent, "again")
_IMPORTS = ("PyObject_Call", "PyObject_Vectorcall", "PyObject_RichCompareBool", "PyDict_GetItemWithError", "PyErr_Clear",
            "PyTuple_New", "PyTuple_SetItem", "PyTuple_GetItem", "PyTuple_Size", "Py_IncRef", "Py_DecRef",
            "_PyFunction_Vectorcall", "_Py_NoneStruct", "_Py_TrueStruct")  # fmt: skip
_SLOT_BITS = 10
_ENTRIES = 256  # functions that native code has room for, and one
_SPREAD = 0x9E3779B97F4A7C15  # 2^64 / the golden ratio


@dataclass
class Known:
    """What a call takes and does. Places are positions among the operands, then what is made, then what is held.

    `shapes` are those of the torch tensors that lead the arguments, whose addresses are multiples of `alignment`, and None for
    each None among or right behind them; `others` the arguments from the first that is neither; `same` the pairs of operands
    that are one object, `apart` those whose memory does not overlap: the place of each and its bytes. `check` is called with
    the `guarded` operands and says whether they are like the first ones; each of `conditions` gives its value, each of
    `entries` (a dictionary and a key of type str or bytes) is that very object, or is not there for None, each of `words`, an
    address, holds this number, and each of `numbers`, the address of a C function without arguments, tells this one (64 bits).
    `made` are functions and their arguments, of which the first `results` make what the call returns (one object, or a tuple);
    `held` are tensors or None; `steps` functions, addresses of 8-byte counters of their calls, and places of their arguments.
    """

    shapes: Sequence[Sequence[int] | None]
    others: Sequence[object]
    same: Sequence[tuple[int, int]]
    check: Callable[..., bool]
    guarded: Sequence[int]
    conditions: Sequence[tuple[Callable[[], object], object]]
    entries: Sequence[tuple[dict[Any, Any], str | bytes, object]]
    words: Sequence[tuple[int, int]]
    made: Sequence[tuple[Callable[..., Any], tuple[object, ...]]]
    results: int
    held: Sequence[Any]
    steps: Sequence[tuple[Callable[..., Any], int, Sequence[int]]]
    alignment: int
    apart: Sequence[tuple[int, int, int, int]] = ()
    numbers: Sequence[tuple[int, int]] = ()

    def record(self, following: Words | None = None) -> Words:
        """The record of again.ll; what it points to lives as long as it. `following`: that of what else a call may be."""
        leading, keep = len(self.shapes), []

        def address(thing: object) -> int:
            keep.append(thing)
            return id(thing)

        absent = [i for i, shape in enumerate(self.shapes) if shape is None]
        lists: list[int] = [*map(address, self.others), *absent]
        lists += [word for group in (*self.apart, *self.words, *self.numbers) for word in group]
        for entries, key, value in self.entries:
            lists += [address(entries), address(key), 0 if value is None else address(value)]
        lists += [*self.guarded, *(place for pair in self.same for place in pair)]
        for ask, value in self.conditions:
            lists += [address(ask), address(value)]
        for make, arguments in self.made:
            lists += [address(make), address(arguments)]
        for thing in self.held:
            lists += [address(thing), 0 if thing is None else thing.data_ptr()]
        for run, counter, places in self.steps:
            words = getattr(run, "__self__", None)
            launch = words.launch if isinstance(words, Words) else 0
            lists += [address(run), id(words) + HEADER_BYTES, launch, counter, len(places), *places]
        room = max(len(self.guarded), *(len(places) for *_, places in self.steps))
        head = [
            leading + len(self.others),
            leading,
            leading + len(self.made) + len(self.held),
            room,
            self.alignment - 1,
        ]
        head += [len(self.guarded), len(self.same), len(self.conditions), len(self.made), self.results, len(self.held)]
        head += [
            len(self.steps),
            address(self.check),
            len(self.words),
            len(self.entries),
            len(self.apart),
            len(self.numbers),
            0 if following is None else address(following),
            len(absent),
        ]
        record = Words(struct.pack(f"={len(head) + len(lists)}Q", *head, *lists))
        record.keep = keep
        return record

    def slot(self) -> int:
        """Where the code looks for it."""
        hashed = 0
        for shape in self.shapes:
            for value in (2**64 - 1,) if shape is None else (len(shape), *shape):
                hashed = (hashed ^ value) * _SPREAD & 2**64 - 1
        return hashed >> 64 - _SLOT_BITS


class KnownCalls:
    """The calls of one operation that are known. `call(*arguments)` runs one and gives its result; None, and nothing has
    happened, if it is another call. Of calls whose shapes share a slot the last ones are known, MOST or less."""

    #: A model calls an operation on operands of the same shapes with few other arguments.
    MOST = 8

    def __init__(self, image: Image) -> None:
        self._image = image
        self._slots = (ctypes.c_uint64 * (1 << _SLOT_BITS))()
        self._records: dict[int, tuple[Words, int]] = {}  # the last one, which holds the others, and how many there are
        words = struct.pack("=QQ", torch_words(), ctypes.addressof(self._slots))
        self.call = python_function(image.address("tl_again_v1"), words, (image, self._slots))

    def keep(self, known: Known) -> None:
        """From now on `call` knows this call."""
        torch_words()
        slot = known.slot()
        before, count = self._records.get(slot, (None, 0))
        if count == self.MOST:
            before, count = None, 0
        record = known.record(before)
        self._slots[slot] = id(record)
        self._records[slot] = record, count + 1  # what it does not hold goes when it is not running

    def enter(self, function: FunctionType, parameters: Sequence[str]) -> bool:
        """Calls of `function` that are known are answered by native code, before Python starts to run it: those of its first
        parameters, which are these, with the others at their defaults. False where Python has no such entry (before 3.12)."""
        install = getattr(ctypes.pythonapi, "PyFunction_SetVectorcall", None)
        if install is None:
            return False
        self.entry(function, parameters)
        install.argtypes, install.restype = [ctypes.py_object, ctypes.c_void_p], None
        install(function, self._image.address("tl_enter_v1"))
        return True

    def entry(self, function: FunctionType, parameters: Sequence[str]) -> int:
        """The address of what answers, a `vectorcallfunc` of PEP 590, which knows this function from now on."""
        entry = Entry(function, parameters, self.call)
        table = (ctypes.c_uint64 * (2 * _ENTRIES)).from_address(self._image.address("tl_entries"))
        address = id(function)
        places = ((address // 16 + i) % _ENTRIES for i in range(_ENTRIES))
        free = sum(not word for word in table[::2])
        slot = next(place for place in places if table[2 * place] in (0, address))
        if table[2 * slot] or free > 1:  # a search ends at one that is free; Python's are the calls of what has no room
            _entered.append(entry)
            table[2 * slot + 1] = ctypes.addressof(entry.words)
            table[2 * slot] = address
        return self._image.address("tl_enter_v1")

    def clear(self) -> None:
        """Forget all calls."""
        ctypes.memset(self._slots, 0, ctypes.sizeof(self._slots))
        self._records.clear()


class Entry:
    """What again.ll knows of a function: its parameters with their defaults, of which the first are arguments of known calls."""

    def __init__(self, function: FunctionType, parameters: Sequence[str], call: Callable[..., Any]) -> None:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        last = function.__defaults__ or ()
        defaults = dict(zip(names[code.co_argcount - len(last) : code.co_argcount], last))
        defaults |= function.__kwdefaults__ or {}
        others = names[len(parameters) :]
        other = code.co_posonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        if other or names[: len(parameters)] != tuple(parameters) or any(name not in defaults for name in others):
            raise ValueError(
                f"{function.__qualname__} does not begin with {', '.join(parameters)} and go on with defaults"
            )
        own = call.__self__  # type: ignore[attr-defined]
        words = [id(own), code.co_argcount, len(names), len(parameters)]
        for name in names:
            words += [id(name), id(defaults[name]) if name in defaults else 0]
        self.words = (ctypes.c_uint64 * len(words))(*words)
        self._keep = (function, call, defaults)


#: Native code has them, and one that another took the place of may be in use: they live for good.
_entered: list[Entry] = []


@cache
def _image() -> Image | None:
    if not is_usable():
        return None
    data, _ = CODE.object()
    if data is None:
        return None
    try:
        return Image([("again.o", data)], python_interface(_IMPORTS))
    except LoadError:
        return None


def known_calls() -> KnownCalls | None:
    """A table for one operation; None on a machine where the code cannot be had."""
    image = _image()
    return None if image is None else KnownCalls(image)
