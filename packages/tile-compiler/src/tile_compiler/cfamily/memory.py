"""Buffers as C++ pointers and arrays: names, linear indices, and the vectors of neighbours that move at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tvm import ir
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.cfamily.element_types import INT32, INT64, ElementType, split
from tile_compiler.cfamily.expressions import CONTINUED, LONG, Expressions
from tile_compiler.cfamily.literals import ATOM, POSTFIX, UNARY, Text, int_literal
from tile_compiler.cfamily.names import Names
from tile_compiler.rewrite import is_call
from tilelang.ir import tile_ir

INT32_LIMIT = 2**31
WORTH_A_NAME = 12  # columns of an index that is used twice
# Arguments (by position, from 0) that a header function only reads: their parameters stay const.
READ_ONLY_ARGUMENTS = {
    "tl::cp_async": (1,),
    "tl::tma_store": (1,),
    "tl::load_to_lds": (1,),
    **{f"tl::stmatrix_x{count}{suffix}": (1,) for count in (1, 2, 4) for suffix in ("", "_trans")},
}


@dataclass
class Array:
    """A buffer in the text. `written` and `addressed` are found out while printing."""

    name: str
    element: ElementType
    scope: str  # "global", "shared" or "local"
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    wide: bool = False  # an offset into it may need 64 bits
    scalar: bool = False  # an array of one element, printed as a plain variable
    owner: Array | None = None  # whose storage a view shows
    written: bool = False
    addressed: bool = False

    @property
    def packed(self) -> bool:
        """Whether several elements share a byte. A thread's own arrays hold one in each."""
        return self.element.per_byte > 1 and self.scope != "local"

    @property
    def pointee(self) -> str:
        """The type that a pointer to the elements points to."""
        return "uint8_t" if self.packed else self.element.text

    def mark(self, *, written: bool = False, addressed: bool = False) -> None:
        """Note a use, for the owner of the storage too."""
        array: Array | None = self
        while array is not None:
            array.written |= written
            array.addressed |= addressed
            array = array.owner


@dataclass
class Line:
    """One line of the body. A line that only declares `declares` is left out if nothing below mentions the name."""

    depth: int
    text: str
    declares: str = ""
    array: Array | None = field(default=None)
    at: str = ""  # the user's statement, as file:line
    places: Any = None  # the buffer in shared memory that it gives its address


class Memory(Expressions):
    """Expressions that read buffers. Vectors of global and shared memory become variables, declared in a line above."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self.identifiers = names
        self.arrays: dict[Any, Array] = {}
        self.lines: list[Line] = []
        self.depth = 1
        self.at = ""
        self.lanes = 1
        self.may_name = False  # this place in the text may put lines of its own above the statement
        self.by_element = False  # inside a condition that differs between lanes: nothing is read ahead of it
        self.cache: str | None = None  # how loads from global memory treat the caches
        self.loaded: dict[str, str] = {}  # within one statement: text of a vector's address -> its variable

    def put(self, text: str, declares: str = "", array: Array | None = None, places: Any = None) -> None:
        self.lines.append(Line(self.depth, text, declares, array, self.at, places))

    def assign(self, target: str, operator: str, value: str, declares: str = "") -> None:
        """`target = value;`, in two lines where one would be long."""
        space = f"\n{CONTINUED}" if len(target) + len(value) > LONG + 10 and "\n" not in value else " "
        self.put(f"{target} {operator}{space}{value};", declares)

    # -- declarations ------------------------------------------------------------------------------------------------

    def add_array(self, buffer: Any, scope: str, owner: Array | None = None, *, narrow: bool = False) -> Array:
        """Give a buffer its name and its way of being indexed; in a `narrow` one of dynamic extents int32 suffices."""
        try:
            element, lanes = split(tile_ir.dtype_name(buffer))
        except KeyError:
            raise self.unsupported(buffer, f"elements of type {tile_ir.dtype_name(buffer)}") from None
        if lanes > 1:
            raise self.unsupported(buffer, "a buffer's elements are scalars; vectors are made by Ramp indices")
        shape = tuple(buffer.ty.shape)
        strides = tuple(buffer.ty.strides or ())
        array = Array(self.identifiers.new(buffer.name), element, scope, shape, strides, owner=owner)
        if array.packed and len(shape) > 1:  # rows begin at bytes
            array.shape = (*shape[:-1], self.whole_bytes(shape[-1], element))
        dynamic = any(self.constant(e) is None for e in (*shape, *strides))
        array.wide = scope == "global" and not (narrow and dynamic) and self._is_wide(shape, strides)
        self.arrays[buffer] = array
        self.names[buffer] = array.name
        return array

    def whole_bytes(self, extent: Any, element: ElementType) -> Any:
        """The extent of a row of packed elements, with those that fill its last byte."""
        per, known = element.per_byte, self.constant(extent)
        dtype = str(extent.ty)
        if known is not None:
            return tir.const(-(-known // per) * per, dtype)
        return tir.floordiv(extent + (per - 1), per) * per

    def _is_wide(self, shape: tuple[Any, ...], strides: tuple[Any, ...]) -> bool:
        """Whether the last element's offset may pass 2^31; an extent that is not known may."""
        extents = [self.intervals(e)[1] for e in shape]
        if not strides:
            return math.prod(extents) > INT32_LIMIT
        steps = [self.intervals(s)[1] for s in strides]
        return sum(max(0.0, e - 1) * s for e, s in zip(extents, steps) if e > 1) >= INT32_LIMIT

    def array_of(self, node: Any, buffer: Any) -> Array:
        array = self.arrays.get(buffer)
        if array is None:
            raise self.unsupported(node, f"the buffer {buffer.name} is not declared here")
        return array

    # -- places ------------------------------------------------------------------------------------------------------

    def element_at(self, node: Any, buffer: Any, indices: Any) -> str:
        """The element: `A[row * 64 + column]`, an lvalue where it fills bytes."""
        array = self.array_of(node, buffer)
        if array.scalar:
            return array.name
        offset = self.offset(array, list(indices))[0]
        return (
            f"tl::unpack<{array.element.text}>({array.name}, {offset})" if array.packed else f"{array.name}[{offset}]"
        )

    def put_packed(self, node: Any, value: str, lanes: int = 1) -> None:
        """Store one element, or neighbours that fill bytes, into packed memory."""
        array = self.array_of(node, node.buffer)
        array.mark(written=True, addressed=True)
        place = self._plain_offset(array, node.indices)
        kind = array.element.text + (f", {lanes}" if lanes > 1 else "")
        self.put(f"tl::pack<{kind}>({array.name}, {place}, {value});")

    def _plain_offset(self, array: Array, indices: Any) -> str:
        """The linear index of the (first) element."""
        lane, self.lane = self.lane, None
        offset = self.offset(array, [i.base if isinstance(i, prim.Ramp) else i for i in indices])[0]
        self.lane = lane
        return offset

    def address_text(self, node: Any, buffer: Any, indices: Any) -> str:
        """The address of the (first) element: `&A[...]`, or `A` for offset 0."""
        array = self.array_of(node, buffer)
        array.mark(addressed=True)
        if array.scalar:
            return f"&{array.name}"
        offset = self._plain_offset(array, indices)
        if offset in ("0", "0LL"):
            return array.name
        return f"&{array.name}[({offset}) / {array.element.per_byte}]" if array.packed else f"&{array.name}[{offset}]"

    def offset(self, array: Array, indices: list[Any]) -> Text:
        """The linear index: the sum of index * stride, in 64 bits where the array needs it."""
        outside, self.indexing = self.indexing, True
        result = self._offset(array, indices)
        self.indexing = outside
        return result

    def _offset(self, array: Array, indices: list[Any]) -> Text:
        if len(indices) == 1 and not array.strides:
            index = indices[0]
            return self._swizzled(array, index) if isinstance(index, prim.BitwiseXor) else self.expression(index)
        terms: list[Text] = []
        for axis, index in enumerate(indices):
            if self.constant(index) != 0:
                terms.append(self._term(array, indices, axis, first=not terms))
        if len(terms) < 2:
            return terms[0] if terms else ("0", ATOM)
        return " + ".join(text if level <= 6 else f"({text})" for text, level in terms), 6

    def _swizzled(self, array: Array, index: Any) -> Text:
        """`place ^ ((place >> 3) & 24)`: the place gets a name where the text would hold it twice."""
        text, level = self.expression(index)
        place = self.text(index.a)
        if (
            not self.may_name
            or self.lane is not None
            or len(place) < WORTH_A_NAME
            or f"({place})" not in self.text(index.b)
        ):
            return text, level
        name = self.identifiers.new(f"{array.name}_place")
        self.assign(f"const {self.type_of(index)[0].text} {name}", "=", place, name)
        return text.replace(f"({place})", name), level

    def _term(self, array: Array, indices: list[Any], axis: int, first: bool) -> Text:
        """index * stride. In an array that needs 64 bits the first term has them, and with it the sum."""
        index = indices[axis]
        factors = [array.strides[axis]] if array.strides else list(array.shape[axis + 1 :])
        known, others = 1, []
        for factor in factors:
            value = self.constant(factor)
            if value is None:
                others.append(factor)
            else:
                known *= value
        position = self.constant(index)
        if position is not None and not others:
            return int_literal(position * known, INT64 if array.wide and first else INT32)
        largest = self.intervals(index)[1] * known * math.prod(max(1.0, self.intervals(o)[1]) for o in others)
        overflows = (known != 1 or bool(others)) and largest >= INT32_LIMIT
        wide = array.wide and (first or overflows) and str(index.ty) != "int64"
        if known == 1 and not others and not wide:
            return self.expression(index)
        start = f"(int64_t){self.tight(index, UNARY)}" if wide else self.tight(index, 5)
        parts = [start, *(self.tight(o, 4) for o in others), *([str(known)] if known != 1 else [])]
        return " * ".join(parts), 5

    def load(self, node: Any) -> Text:
        array, indices = self.array_of(node, node.source), list(node.indices)
        self.reads += 1
        vector = any(isinstance(i, prim.Ramp) or "x" in str(i.ty) for i in indices)
        if not vector:
            return self.element_at(node, node.source, indices), ATOM if array.scalar else POSTFIX
        if self.lane is None:
            raise self.unsupported(node, "a vector stands where a scalar belongs")
        if array.scope == "local" or self.by_element or not self.is_row(indices):
            return self.element_at(node, node.source, indices), POSTFIX
        return f"{self._loaded_vector(node, array)}[{self.lane}]", POSTFIX

    def is_row(self, indices: list[Any]) -> bool:
        """Whether the indices are those of neighbours that one access moves."""
        *outer, last = indices
        if not isinstance(last, prim.Ramp) or self.constant(last.stride) != 1:
            return False
        return not any("x" in str(i.ty) for i in outer)

    def _loaded_vector(self, node: Any, array: Array) -> str:
        address = self.address_text(node, node.source, node.indices)
        name = self.loaded.get(address)
        if name is None:
            name = self.loaded[address] = self.identifiers.new(f"{node.source.name}_row")
            vector = vector_type(array.element, self.lanes)
            self.assign(f"const {vector} {name}", "=", self.row_at(node, node.source, node.indices), name)
        return name

    def row_at(self, node: Any, buffer: Any, indices: Any, *, written: bool = False) -> str:
        """Neighbours as one lvalue of a vector type."""
        array, lanes = self.array_of(node, buffer), int(indices[-1].lanes)
        if array.packed:
            array.mark(addressed=True)
            return f"tl::unpack<{array.element.text}, {lanes}>({array.name}, {self._plain_offset(array, indices)})"
        row = self._row_of(array.element.text, lanes, self.address_text(node, buffer, indices), written)
        if written or not self.is_hinted(array, lanes):
            return row
        return f"tl::load<tl::{self.cache}>({row.removeprefix('*')})"

    def is_hinted(self, array: Array, lanes: int) -> bool:
        """Whether a row is loaded by `tl::load`, which says how the caches are to treat it."""
        size = lanes * array.element.bytes
        return self.cache is not None and array.scope == "global" and not array.packed and size in (4, 8, 16)

    def bytes_at(self, node: Any, buffer: Any, indices: Any, *, written: bool = False) -> str:
        """Neighbours in packed memory as one lvalue of bytes."""
        count = int(indices[-1].lanes) // self.array_of(node, buffer).element.per_byte
        return self._row_of("uint8_t", count, self.address_text(node, buffer, indices), written)

    @staticmethod
    def _row_of(element: str, lanes: int, address: str, written: bool) -> str:
        kind = element if lanes == 1 else f"tl::vec<{element}, {lanes}>"
        return f"*({'' if written else 'const '}{kind} *){parenthesized(address)}"

    def address(self, node: Any) -> Text:
        if not isinstance(node, ir.TensorLoad):
            array = self.array_of(node, node)
            array.mark(addressed=True)
            return array.name, ATOM
        return self.address_text(node, node.source, node.indices), UNARY

    def extern(self, node: Any) -> Text:
        """An address given to a function may be written through, unless the function is known to read."""
        function = str(node.args[0].value).split("<")[0]
        for position, argument in enumerate(node.args[1:]):
            if is_call(argument, "tirx.address_of", "tirx.buffer_data"):
                place = argument.args[0]
                buffer = place.source if isinstance(place, ir.TensorLoad) else place
                written = position not in READ_ONLY_ARGUMENTS.get(function, ())
                self.array_of(node, buffer).mark(written=written, addressed=True)
        return super().extern(node)


def vector_type(element: ElementType, lanes: int) -> str:
    return element.text if lanes == 1 else f"tl::vec<{element.text}, {lanes}>"


def parenthesized(address: str) -> str:
    """An address as the operand of a cast."""
    return address if address.startswith("&") or address.isidentifier() else f"({address})"
