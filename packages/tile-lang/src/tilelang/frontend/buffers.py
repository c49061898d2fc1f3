"""Buffers, their elements and regions, as a kernel under trace sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelang.errors import AssignToParameter, IndexOutOfRange, InvalidArgument
from tilelang.frontend.builder import active, require
from tilelang.frontend.literals import is_literal
from tilelang.frontend.values import Value, as_value, binary, convert, index_node
from tilelang.ir.dtypes import DType


class Buffer:
    """A tensor parameter, or memory from `T.alloc_*`.

    `shape` holds ints and run-time values; `dtype` is the type as the user wrote it; `scope` one of the memory
    scopes of docs/internals/tile-ir.md; `node` is the tirx buffer variable.
    """

    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, node: Any, dtype: DType, shape: Sequence[Any], *, parameter: bool = False) -> None:
        self.node = node
        self.dtype = dtype
        self.shape = tuple(shape)
        self.parameter = parameter
        self.private_depth = 0  # number of open T.Parallel loops when it was allocated

    @property
    def name(self) -> str:
        return str(self.node.name)

    @property
    def scope(self) -> str:
        return str(self.node.scope())

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def strides(self) -> tuple[Any, ...]:
        """Elements between neighbours in each dimension; row-major unless `T.StridedTensor` says otherwise."""
        given = list(self.node.ty.strides)
        if given:
            return tuple(wrap_node(s) for s in given)
        result: list[Any] = [1]
        for extent in reversed(self.shape[1:]):
            result.insert(0, result[0] * extent)
        return tuple(result[: len(self.shape)])

    def indices_text(self) -> str:
        """`i, j`: index names for a message that shows a loop over the buffer."""
        return ", ".join("ijklmn"[d] if d < 6 else f"i{d}" for d in range(self.ndim)) or "i"

    def region(self) -> Region:
        return Region(self, [(0, extent, 1, False) for extent in self.shape])

    def __getitem__(self, index: Any) -> Any:
        return subscript(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        store(self, index, value)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __iter__(self) -> Any:
        raise InvalidArgument(
            f"{self.name} is a buffer and cannot be iterated by Python",
            found="iteration over a run-time buffer",
            expected="a loop over indices",
            repair=f"`for i in T.serial({self.shape[0] if self.shape else 1}): ... {self.name}[i] ...`",
        )

    def __repr__(self) -> str:
        return f"{self.name}: {self.scope or 'global'} {show_extents(self.shape)} {self.dtype}"

    def _arithmetic(self, op: str, other: Any, swapped: bool = False) -> Any:
        return binary(op, other, self) if swapped else binary(op, self, other)

    def __add__(self, other: Any) -> Any:
        return self._arithmetic("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._arithmetic("add", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._arithmetic("sub", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._arithmetic("mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._arithmetic("mul", other, True)

    def __truediv__(self, other: Any) -> Any:
        return self._arithmetic("truediv", other)


class Element(Value):
    """One element `A[i, j]`: its value in an expression, and a place for T.copy, atomics and T.access_ptr."""

    __slots__ = ("buffer", "indices")

    def __init__(self, buffer: Buffer, indices: list[Any]) -> None:
        self.buffer = buffer
        self.indices = indices

        def load() -> Any:
            from tvm import tirx

            return tirx.BufferLoad(buffer.node, [index_node(i) for i in indices])

        super().__init__(load, buffer.dtype)

    def __repr__(self) -> str:
        shown = ", ".join(str(i.node) if isinstance(i, Value) else str(i) for i in self.indices)
        return f"{self.buffer.name}[{shown}]"


class ScalarVar(Value):
    """A mutable scalar from `T.alloc_var`: reads give its content, assignment to its name stores."""

    __slots__ = ("buffer", "fresh")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.fresh = True  # until the assignment that names it has run

        def load() -> Any:
            from tvm import tirx

            return tirx.BufferLoad(buffer.node, [tirx.const(0, "int32")])

        super().__init__(load, buffer.dtype)

    @property
    def node(self) -> Any:
        # Never cached: each mention is a read of its own.
        from tvm import tirx

        return tirx.BufferLoad(self.buffer.node, [tirx.const(0, "int32")])

    def __getitem__(self, index: Any) -> Any:
        return self.buffer[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.buffer[index] = value


class Region:
    """A box of a buffer, `A[i0:i1, j]`: (origin, extent, step, is a point) for each dimension."""

    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, buffer: Buffer, ranges: list[tuple[Any, Any, Any, bool]]) -> None:
        self.buffer = buffer
        self.ranges = ranges

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents of the dimensions that were not indexed by a single number."""
        return tuple(extent for _, extent, _, point in self.ranges if not point)

    @property
    def extents(self) -> list[Any]:
        return [extent for _, extent, _, _ in self.ranges]

    @property
    def stepped(self) -> bool:
        return any(step != 1 for _, _, step, _ in self.ranges)

    def node(self, extents: Sequence[Any] | None = None) -> Any:
        """The tirx region, with other extents if given (an origin takes them from the other side of a copy)."""
        from tilelang.ir import tile_ir

        sizes = self.extents if extents is None else extents
        pairs = [(index_node(r[0]), index_node(e)) for r, e in zip(self.ranges, sizes)]
        return tile_ir.region(self.buffer.node, pairs)

    def __getitem__(self, index: Any) -> Any:
        items = list(index) if isinstance(index, tuple) else [index]
        full: list[Any] = []
        open_dims = len([r for r in self.ranges if not r[3]])
        items = _expand_ellipsis(items, open_dims, self.buffer)
        for origin, extent, step, point in self.ranges:
            if point or not items:
                full.append((origin, extent, step, point))
                continue
            item = items.pop(0)
            inner = _range_of(self.buffer, len(full), item, extent)
            full.append((origin + inner[0] * step, inner[1], inner[2] * step, inner[3]))
        if all(point for *_, point in full):
            return Element(self.buffer, [r[0] for r in full])
        return Region(self.buffer, full)

    def __setitem__(self, index: Any, value: Any) -> None:
        target = self[index]
        if isinstance(target, Element):
            store(self.buffer, tuple(target.indices), value)
        else:
            _refuse_region_store(self.buffer)

    def __repr__(self) -> str:
        show = lambda x: str(x.node) if isinstance(x, Value) else str(x)  # noqa: E731
        parts = [show(o) if p else f"{show(o)}:{show(o + e)}" for o, e, _, p in self.ranges]
        return f"{self.buffer.name}[{', '.join(parts)}]"


def wrap_node(node: Any) -> Any:
    """A tirx extent as a Python int or a run-time value."""
    from tilelang.ir.tile_ir import static

    value = static(node)
    return value if value is not None else as_value(node)


def subscript(buffer: Buffer, index: Any) -> Any:
    """`A[...]`: an Element when every dimension gets a number, otherwise a Region (missing ones are whole)."""
    items = _expand_ellipsis(list(index) if isinstance(index, tuple) else [index], buffer.ndim, buffer)
    if len(items) > buffer.ndim:
        raise IndexOutOfRange(
            f"{buffer.name} has {buffer.ndim} dimensions and is indexed with {len(items)}",
            found=f"{len(items)} indices",
            expected=f"at most {buffer.ndim}, shape {_shape_text(buffer)}",
            repair="drop the surplus indices",
        )
    ranges = [_range_of(buffer, d, item, buffer.shape[d]) for d, item in enumerate(items)]
    ranges += [(0, buffer.shape[d], 1, False) for d in range(len(items), buffer.ndim)]
    if all(point for *_, point in ranges):
        return Element(buffer, [r[0] for r in ranges])
    return Region(buffer, ranges)


def _expand_ellipsis(items: list[Any], rank: int, buffer: Buffer) -> list[Any]:
    places = [i for i, item in enumerate(items) if item is Ellipsis]
    if not places:
        return items
    if len(places) > 1:
        raise IndexOutOfRange(f"{buffer.name} is indexed with two `...`", expected="one at most", repair="drop one")
    missing = rank - (len(items) - 1)
    return items[: places[0]] + [slice(None)] * missing + items[places[0] + 1 :]


def _range_of(buffer: Buffer, dim: int, item: Any, extent: Any) -> tuple[Any, Any, Any, bool]:
    if isinstance(item, slice):
        step = 1 if item.step is None else item.step
        if not isinstance(step, int) or step < 1:
            raise InvalidArgument(
                f"the slice of {buffer.name} in dimension {dim} has an impossible step",
                found=f"step {step!r}",
                expected="a positive integer known at compile time",
                repair="use T.Parallel with the index you mean",
            )
        start = 0 if item.start is None else _wrap(buffer, dim, item.start, extent, slice_bound=True)
        stop = extent if item.stop is None else _wrap(buffer, dim, item.stop, extent, slice_bound=True)
        size = simplify(stop - start)
        if step != 1:
            size = (size + (step - 1)) // step
        return start, size, step, False
    return _wrap(buffer, dim, item, extent), 1, 1, True


def _wrap(buffer: Buffer, dim: int, index: Any, extent: Any, slice_bound: bool = False) -> Any:
    """A provably negative index counted from the end; a constant index checked against its dimension."""
    if isinstance(index, (Buffer, Region, float, np.floating)) or not (
        is_literal(index) or isinstance(index, Value) or hasattr(index, "ty")
    ):
        raise InvalidArgument(
            f"{buffer.name} is indexed with something that is no integer in dimension {dim}",
            found=f"{index!r}"[:120],
            expected="an integer or an integer expression",
            repair="index with numbers, T.Parallel or T.serial variables, or elements of integer buffers",
        )
    if is_literal(index):
        index = int(index)
        if isinstance(extent, int) and not slice_bound and not -extent <= index < extent:
            raise IndexOutOfRange(
                f"index {index} is out of range for dimension {dim} of {buffer.name}",
                found=f"{buffer.name} with shape {_shape_text(buffer)}",
                expected=f"an index from {-extent} to {extent - 1}",
                repair="mend the index, or the shape of the buffer",
            )
        return index + extent if index < 0 else index
    value = as_value(index)
    if _certainly_negative(value):
        return simplify(value + extent)
    return value


def _certainly_negative(value: Value) -> bool:
    builder = active()
    if builder is None or not value.dtype.is_signed or isinstance(value, Element):
        return False
    kind = type(value.node).__name__
    if kind not in ("Sub", "Mul", "Add"):  # a plain variable is never provably negative here
        return False
    from tvm import tirx

    return bool(builder.analyzer.can_prove(tirx.LT(value.node, tirx.const(0, str(value.dtype)))))


def simplify(x: Any) -> Any:
    """An integer expression with what the trace knows applied; a Python int when it is one."""
    if not isinstance(x, Value):
        return x
    builder = active()
    if builder is None or not x.dtype.is_integer:
        return x
    return wrap_node(builder.analyzer.simplify(x.node))


def provably_equal(a: Any, b: Any) -> bool:
    """Whether two extents are equal for certain."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    difference = simplify(as_value(a) - b)
    return isinstance(difference, int) and difference == 0


def store(buffer: Any, index: Any, value: Any) -> None:
    """`A[index] = value`: a thread-level store, converted to A's type."""
    if isinstance(buffer, (ScalarVar,)):
        buffer = buffer.buffer
    if isinstance(buffer, Region):
        buffer[index] = value
        return
    if not isinstance(buffer, Buffer):
        buffer[index] = value  # a list or dict of the user's, at compile time
        return
    from tvm import tirx

    builder = require(f"a store to {buffer.name}")
    place = subscript(buffer, index)
    if not isinstance(place, Element):
        _refuse_region_store(buffer)
    check_private_write(buffer)
    node = convert(as_value(value, buffer.dtype), buffer.dtype).node
    builder.emit(tirx.BufferStore(buffer.node, node, [index_node(i) for i in place.indices], span=builder.span()))


def check_private_write(buffer: Buffer) -> None:
    """A thread's own memory from outside a T.Parallel loop may not be written in it: which thread would do it?"""
    builder = require("a store")
    depth = sum(frame.kind == "parallel" for frame in builder.loops)
    if buffer.scope in ("local", "local.var") and depth > buffer.private_depth:
        from tilelang.errors import PrivateWriteInParallel

        raise PrivateWriteInParallel(
            f"{buffer.name} is private to a thread and is written inside T.Parallel",
            found=f"{buffer.name} ({buffer.scope}) allocated outside of the loop",
            expected="iterations that write shared memory, a fragment or global memory, or memory of their own",
            repair=f"allocate {buffer.name} inside the loop, make it a fragment, or use T.serial",
        )


def _refuse_region_store(buffer: Buffer) -> None:
    raise AssignToParameter(
        f"a region of {buffer.name} is assigned to",
        found="`A[...] = value` where some dimension is a slice",
        expected="one index per dimension",
        repair="T.copy(src, A[...]) moves a tile, T.fill(A[...], x) sets one, T.Parallel writes elements",
    )


def _shape_text(buffer: Buffer) -> str:
    return show_extents(buffer.shape)


def show_extents(extents: Sequence[Any]) -> str:
    """A shape as Python writes it, `(32,)` for one dimension."""
    parts = [str(e.node) if isinstance(e, Value) else str(e) for e in extents]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
