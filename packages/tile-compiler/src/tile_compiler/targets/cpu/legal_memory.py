"""How flat buffers are kept in memory, and the loads and stores that follow from it.

Three ways, by `flatten.Root`: *direct* (one storage type, plain loads), *raw* (views or reused scratch of several types,
parameters that may overlap: untyped helper calls on a byte pointer), *packed* (sub-byte elements of global memory: shift
and mask).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import ir, sym
from tvm import tirx as tir
from tvm.ir import prim

from tilelang.ir.dtypes import dtype_of as dtype_facts

from . import lookup
from .expressions import BINARY, const_like, dtype_of, scalar_of, with_lanes
from .features import CpuFeatures
from .flatten import FlatBody, Root, storage_bytes, storage_dtype


def pointer_var(name: str, dtype: str, scope: str) -> Any:
    return tir.Var(name, ir.PointerType(ir.PrimType(dtype), scope))


class LegalMemory:
    """The storage buffers of one launch. `status` is the one-element int32 buffer for the result code."""

    def __init__(self, flat: FlatBody, features: CpuFeatures) -> None:
        self.roots_of, self.features = flat.roots_of, features
        self.storage: dict[Root, Any] = {}
        self.count: Any = None  # lanes of the vectors here that are there; all where it is None
        self.pointers: list[Any] = []
        declared = []
        for root in (*flat.params, *flat.scratch):
            declared.append(self._declare(root))
        status_pointer = pointer_var("status", "int32", "global")
        self.status = tir.decl_buffer((1,), "int32", "status", data_alignment=4, layout=None)
        self.pointers.append(status_pointer)
        declared.append(tir.DeclBuffer(self.status, data=status_pointer))
        self.declarations = declared

    def _declare(self, root: Root) -> Any:
        dtype = self._storage_type(root)
        pointer = pointer_var(f"{root.name}_ptr", dtype, root.scope)
        align = root.align or dtype_facts(dtype).itemsize
        length = tir.const(1, "int64")
        buffer = tir.decl_buffer((length,), dtype, root.name, scope=root.scope, data_alignment=align, layout=None)
        self.storage[root] = buffer
        self.pointers.append(pointer)
        return tir.DeclBuffer(buffer, data=pointer)

    def _storage_type(self, root: Root) -> str:
        if root.raw or not root.flats:
            return "uint8"
        scalar = scalar_of(next(iter(root.flats)))[0]
        return "uint8" if self._is_packed(root, scalar) else storage_dtype(scalar)

    def _is_packed(self, root: Root, scalar: str) -> bool:
        return root.packed and dtype_facts(scalar).bits < 8

    def allocate(self, flat: Any) -> Any:
        """The allocation statement of a private root."""
        root = self.roots_of[flat]
        dtype = self._storage_type(root)
        length = tir.const(max(1, root.size // dtype_facts(dtype).itemsize), "int64")
        buffer = tir.decl_buffer((length,), dtype, root.name, scope="local", layout=None)
        self.storage[root] = buffer
        return tir.AllocBuffer(buffer)

    def address(self, flat: Any, index: Any) -> Any:
        """The address of one element (of the byte that holds it)."""
        root = self.roots_of[flat]
        scalar = scalar_of(str(flat.ty.dtype))[0]
        if self._is_packed(root, scalar):
            index = prim.FloorDiv(index, tir.const(dtype_facts(scalar).per_byte, "int64"))
        elif root.raw:
            index = index * storage_bytes(scalar)
        return tir.address_of(tir.BufferLoad(self.storage[root], [index]))

    @contextmanager
    def first_lanes(self, count: Any) -> Iterator[None]:
        """Inside, the first `count` lanes of all vectors are there, or all (None); what the others compute goes nowhere."""
        before, self.count = self.count, None if count is None else prim.Cast("int64", count)
        yield
        self.count = before

    def _is_masked(self, root: Root, index: Any, scalar: str) -> bool:
        """Whether an access must leave the memory of lanes that are not there alone: not in an array of the lanes themselves,
        and not in a thread's own, where it is known to reach no further. A vector that is read there again comes from the
        store, which does not forward what a mask wrote."""
        if self.count is None or root.scope == "local" or not _contiguous(index):
            return False
        end = int(index.base.value) + int(index.lanes) if isinstance(index.base, prim.IntImm) else None
        return end is None or end * storage_bytes(scalar) > root.size

    def _of_first_lanes(self, value: Any, flat: Any, index: Any) -> Any:
        """The value in the lanes that are there, and in the others what memory has."""
        lanes = int(index.lanes)
        numbers = prim.Ramp(tir.const(0, "int64"), tir.const(1, "int64"), lanes)
        return prim.Select(prim.LT(numbers, prim.Broadcast(self.count, lanes)), value, self.load(flat, index))

    def load(self, flat: Any, index: Any) -> Any:
        root = self.roots_of[flat]
        scalar = scalar_of(str(flat.ty.dtype))[0]
        lanes = scalar_of(dtype_of(index))[1]
        if self._is_packed(root, scalar):
            return self._load_packed(root, scalar, index, lanes)
        dtype = storage_dtype(scalar)
        if self._is_masked(root, index, scalar):
            first = f"tl.load_first.{dtype}.{lanes}"
            return tir.call_extern(with_lanes(dtype, lanes), first, self.address(flat, index.base), self.count)
        if (found := _repeated(index)) is not None:
            first, span = found
            few = lanes // span
            if few == 1:
                return prim.Broadcast(self.load(flat, first), lanes)
            value = self.load(flat, prim.Ramp(first, tir.const(1, "int64"), few))
            return tir.call_pure_extern(with_lanes(dtype, lanes), f"tl.repeat.{dtype}.{few}.{lanes}", value)
        if self.count is None and (name := self._lookup(root, dtype, index)) is not None:
            halves = name.endswith("halves")
            if lookup.looks_at(root.size // storage_bytes(dtype), self.features, halves):
                index = _without_mask(index, root.size // storage_bytes(dtype))
            if halves:
                index = _as_computed(index)
            counted = with_lanes("int16" if halves else "int32", lanes)
            table, at = self.address(flat, tir.const(0, "int64")), prim.Cast(counted, index)
            return tir.call_extern(with_lanes(dtype, lanes), name, table, at)
        if self.count is not None and root.scope != "local" and lanes > 1 and not _contiguous(index):
            raise ValueError(f"{root.name}: lanes that are not there may read anywhere")
        if not root.raw:
            return tir.BufferLoad(self.storage[root], [index])
        if lanes == 1 or _contiguous(index):
            base = index if lanes == 1 else index.base
            return tir.call_extern(with_lanes(dtype, lanes), f"tl.load.{dtype}.{lanes}", self.address(flat, base))
        offsets = index * const_like(dtype_of(index), storage_bytes(scalar))
        start = self.address(flat, tir.const(0, "int64"))
        return tir.call_extern(with_lanes(dtype, lanes), f"tl.gather.{dtype}.{lanes}", start, offsets)

    def _lookup(self, root: Root, dtype: str, index: Any) -> str | None:
        """The helper for lanes that each read an element anywhere in a small piece of memory."""
        lanes, entries = scalar_of(dtype_of(index))[1], root.size // storage_bytes(dtype)
        if lanes == 1 or isinstance(index, (prim.Ramp, prim.Broadcast)) or not entries:
            return None
        bits = dtype_facts(scalar_of(dtype_of(_as_computed(index)))[0]).bits
        return lookup.helper_name(dtype, entries, lanes, self.features, bits)

    def looks_up_pairs(self, flat: Any, entries: int) -> bool:
        """Whether a table of so many elements of 16 bits is looked up by the halves of words (`load_pair`)."""
        root = self.roots_of[flat]
        held = root.size // 2 == entries and not self._is_packed(root, "uint16")
        return held and lookup.are_halves("uint16", entries, 16, self.features)

    def load_pair(self, flat: Any, word: Any) -> Any:
        """The elements that either half of each word points to, side by side, as words."""
        lanes = scalar_of(dtype_of(word))[1]
        name = lookup.helper_name("uint16", self.roots_of[flat].size // 2, 2 * lanes, self.features, 16)
        table, at = self.address(flat, tir.const(0, "int64")), tir.reinterpret(f"int16x{2 * lanes}", word)
        return tir.reinterpret(f"uint32x{lanes}", tir.call_extern(f"uint16x{2 * lanes}", name, table, at))

    def store(self, flat: Any, index: Any, value: Any, span: Any) -> Any:
        root = self.roots_of[flat]
        scalar = scalar_of(str(flat.ty.dtype))[0]
        lanes = scalar_of(dtype_of(index))[1]
        if self._is_packed(root, scalar):
            return self._store_packed(root, scalar, index, value, lanes)
        dtype = storage_dtype(scalar)
        if self.count is not None and lanes == 1:
            raise ValueError(f"{root.name}: an element is stored whether or not a lane is there")
        if self._is_masked(root, index, scalar):
            first = f"tl.store_first.{dtype}.{lanes}"
            call = tir.call_extern("void", first, self.address(flat, index.base), value, self.count)
            return tir.Evaluate(call, span=span)
        if self.count is not None and root.scope != "local" and _contiguous(index):
            value = self._of_first_lanes(value, flat, index)
        if not root.raw:
            return tir.BufferStore(self.storage[root], value, [index], span=span)
        if lanes == 1 or _contiguous(index):
            base = index if lanes == 1 else index.base
            call = tir.call_extern("void", f"tl.store.{dtype}.{lanes}", self.address(flat, base), value)
        else:
            offsets = index * const_like(dtype_of(index), storage_bytes(scalar))
            start = self.address(flat, tir.const(0, "int64"))
            call = tir.call_extern("void", f"tl.scatter.{dtype}.{lanes}", start, offsets, value)
        return tir.Evaluate(call, span=span)

    # -- packed sub-byte elements: element e is in byte e // per, at bit (e % per) * bits ------------------------

    def _load_packed(self, root: Root, scalar: str, index: Any, lanes: int) -> Any:
        legal = with_lanes(storage_dtype(scalar), lanes)
        bits, per = dtype_facts(scalar).bits, dtype_facts(scalar).per_byte
        if lanes % per == 0 and _contiguous(index) and _multiple_of(index.base, per):
            first = prim.FloorDiv(index.base, tir.const(per, "int64"))
            count = lanes // per
            where = first if count == 1 else prim.Ramp(first, tir.const(1, "int64"), count)
            loaded = tir.BufferLoad(self.storage[root], [where])
            return tir.call_pure_extern(legal, f"tl.unpack.{scalar}.{lanes}", loaded)
        byte, shift = _split(index, bits, per)
        code = prim.RShift(tir.BufferLoad(self.storage[root], [byte]), shift)
        code = code & const_like(dtype_of(code), (1 << bits) - 1)
        if scalar.startswith("int"):
            up = const_like(legal, 8 - bits)
            return prim.RShift(prim.LShift(prim.Cast(legal, code), up), up)
        return code

    def _store_packed(self, root: Root, scalar: str, index: Any, value: Any, lanes: int) -> Any:
        bits, per = dtype_facts(scalar).bits, dtype_facts(scalar).per_byte
        storage = self.storage[root]
        if lanes % per == 0 and _contiguous(index) and _multiple_of(index.base, per):
            count = lanes // per
            first = prim.FloorDiv(index.base, tir.const(per, "int64"))
            where = first if count == 1 else prim.Ramp(first, tir.const(1, "int64"), count)
            packed = tir.call_pure_extern(with_lanes("uint8", count), f"tl.pack.{scalar}.{lanes}", value)
            return tir.BufferStore(storage, packed, [where])
        if lanes > 1:  # lanes may share a byte: one after the other
            bound = tir.Var("lanes", dtype_of(value))
            stores = [tir.Bind(bound, value)]
            for i in range(lanes):
                lane = prim.Shuffle([bound], [tir.const(i, "int32")])
                stores.append(self._store_packed(root, scalar, _lane_of(index, i), lane, 1))
            return tir.SeqStmt(stores)
        byte, shift = _split(index, bits, per)
        mask = tir.const((1 << bits) - 1, "uint8")
        kept = tir.BufferLoad(storage, [byte]) & ~prim.LShift(mask, shift)
        code = prim.Cast("uint8", value) & mask
        return tir.BufferStore(storage, kept | prim.LShift(code, shift), [byte])


def _contiguous(index: Any) -> bool:
    return isinstance(index, prim.Ramp) and isinstance(index.stride, prim.IntImm) and int(index.stride.value) == 1


def _repeated(index: Any) -> tuple[Any, int] | None:
    """(first, span) of an index whose lanes are first + lane // span, for a span of two lanes and more."""
    lanes = scalar_of(dtype_of(index))[1]
    if lanes == 1 or isinstance(index, (prim.Ramp, prim.Broadcast)):
        return None
    places = [_place(index, lane) for lane in range(lanes)]
    if any(place is None for place in places):
        return None
    analyzer = sym.Analyzer()
    steps = [analyzer.simplify(place - places[0]) for place in places]
    if not all(isinstance(step, prim.IntImm) for step in steps):
        return None
    found = [int(step.value) for step in steps]
    span = found.count(0)
    regular = span > 1 and lanes % span == 0 and found == [lane // span for lane in range(lanes)]
    return (analyzer.simplify(places[0]), span) if regular else None


def _place(index: Any, lane: int) -> Any:
    """One lane of an index that is computed from ramps and numbers; None for others."""
    if isinstance(index, prim.Ramp):
        return index.base + index.stride * lane
    if isinstance(index, prim.Broadcast):
        return index.value
    if type(index) in BINARY:
        a, b = _place(index.a, lane), _place(index.b, lane)
        return None if a is None or b is None else type(index)(a, b)
    if isinstance(index, prim.Cast):
        value = _place(index.value, lane)
        return None if value is None else prim.Cast(scalar_of(dtype_of(index))[0], value)
    return None


def _as_computed(index: Any) -> Any:
    """An index before it was widened."""

    def facts(node: Any) -> Any:
        return dtype_facts(scalar_of(dtype_of(node))[0])

    while (
        isinstance(index, prim.Cast)
        and facts(index.value).bits <= facts(index).bits
        and not facts(index.value).is_float
    ):
        index = index.value
    return index


def _without_mask(index: Any, entries: int) -> Any:
    """The index without a mask of all bits that count for so many entries."""
    inner = index
    while isinstance(inner, prim.Cast):
        inner = inner.value
    mask = inner.b if isinstance(inner, prim.BitwiseAnd) else None
    number = mask.value if isinstance(mask, prim.Broadcast) else mask
    if not isinstance(number, prim.IntImm) or int(number.value) != entries - 1:
        return index
    return inner.a if dtype_facts(scalar_of(dtype_of(inner))[0]).bits <= 32 else index


def _multiple_of(value: Any, factor: int) -> bool:
    zero = tir.const(0, "int64")
    return bool(sym.Analyzer().can_prove(prim.EQ(prim.FloorMod(value, tir.const(factor, "int64")), zero)))


def _split(index: Any, bits: int, per: int) -> tuple[Any, Any]:
    """(byte index, shift in bits as uint8) of element indices."""
    dtype = dtype_of(index)
    lanes = scalar_of(dtype)[1]
    byte = prim.RShift(index, const_like(dtype, per.bit_length() - 1))
    place = index & const_like(dtype, per - 1)
    return byte, prim.Cast(with_lanes("uint8", lanes), place * const_like(dtype, bits))


def _lane_of(index: Any, lane: int) -> Any:
    if isinstance(index, prim.Ramp):
        return index.base + index.stride * lane
    return prim.Shuffle([index], [tir.const(lane, "int32")])
