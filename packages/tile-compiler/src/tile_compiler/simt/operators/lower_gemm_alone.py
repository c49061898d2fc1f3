"""`T.gemm` where no matrix instruction fits: each thread sums the products of its own elements of C.

They are rectangles as a rule (`gemm.rectangles`): of one operand the thread holds its rows for a step of k, and reads the
other piece by piece, so that an element from shared memory serves as many products as the rectangle is long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx as tir

from tile_compiler.instructions import MatrixMultiply
from tile_compiler.simt.distribution import Distribution
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.gemm import cleared
from tile_compiler.simt.operators.nests import address, int32, load, local, run, serial, store, under, unrolled
from tile_compiler.simt.terms import Ints, is_formula, names, to_tir
from tile_compiler.tileops.site import cast, element_type
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import IndexExpr, Layout, placeholders
from tilelang.layout.fit import expr_of_values
from tilelang.ops import Gemm

VECTOR_BITS = 128
NEIGHBOURS = 4  # elements of a vector at most
UNROLLED = 1024  # products of a thread between two branches: 16 KB of instructions

#: Adds to a register of C the product of what (array, place) of A and of B hold: one element, or `dot.k` of them.
Add = Callable[[Any, tuple[Any, Any], tuple[Any, Any]], Any]


def multiply_add(op: Gemm, low: Lowering) -> Any:
    """Each thread: `for k: for its elements (i, j): sum += A[i, k] * B[k, j]`."""
    c, dist = low.registers(op.c.source), low.distribution(op.c.source)
    result = element_type(op.c)
    wide = result if not dtype_of(result).is_float or result == "float64" else "float32"
    sums = c
    before: list[Any] = []
    after: list[Any] = []
    if wide != result:
        sums = local(dist.steps, wide, f"{op.c.source.name}_sum")
        low.temporaries.append(tir.AllocBuffer(sums))
        before.append(unrolled("r", dist.steps, lambda r: store(sums, cast(load(c, r), wide), r)))
        after.append(unrolled("r", dist.steps, lambda r: store(c, cast(load(sums, r), result), r)))
    zero = unrolled("r", dist.steps, lambda r: store(sums, tir.const(0, wide), r))

    def add(r: Any, a: tuple[Any, Any], b: tuple[Any, Any]) -> Any:
        product = cast(load(*a), wide) * cast(load(*b), wide)
        return store(sums, load(sums, r) + product, r, span=low.span)

    body = _loop(op, dist, low, add)
    if tile_ir.static(op.clear_accum) == 1:
        before = []
    return tile_ir.sequence([*before, *cleared(op, zero, low.span), body, *after])


def dot_products(op: Gemm, dot: MatrixMultiply, low: Lowering) -> Any:
    """Each thread: `for k in steps of 4: for its elements (i, j): sum += A[i, k:k+4] . B[k:k+4, j]`."""
    c, dist = low.registers(op.c.source), low.distribution(op.c.source)
    zero = unrolled("r", dist.steps, lambda r: store(c, tir.const(0, element_type(op.c)), r))

    def add(r: Any, a: tuple[Any, Any], b: tuple[Any, Any]) -> Any:
        return run(dot.name, *dot.arguments(address(c, r), address(*a), address(*b)), span=low.span)

    return tile_ir.sequence([*cleared(op, zero, low.span), _loop(op, dist, low, add, dot.k)])


def _loop(op: Gemm, dist: Distribution, low: Lowering, add: Add, at_once: int = 0) -> Any:
    rectangle = _Rectangle.of(dist)
    if rectangle is None:
        return _one_by_one(op, dist, low, add, at_once or 1)
    return _Products(op, rectangle, low, add, at_once).loop()


@dataclass(frozen=True)
class _Rectangle:
    """A thread's elements of C: each of its rows with each of its columns, in the registers `register(row, column)`.

    `shape` counts the thread's rows and columns, `together` how many neighbours of C each of them comes with.
    """

    dist: Distribution
    register: IndexExpr
    shape: tuple[int, int]
    together: tuple[int, int]

    @classmethod
    def of(cls, dist: Distribution) -> _Rectangle | None:
        """None where threads have elements in other patterns, or some have none."""
        if (dist.held < 0).any():
            return None
        indices = np.unravel_index(dist.held, dist.shape)
        numbers = [np.unique(index, axis=1, return_inverse=True)[1].ravel() for index in indices]
        rows, columns = (int(number.max()) + 1 for number in numbers)
        if rows * columns != dist.steps:
            return None
        table = np.full((rows, columns), -1, np.int64)
        table[numbers[0], numbers[1]] = np.arange(dist.steps)
        register = expr_of_values(table, placeholders(2))
        if (table < 0).any() or not is_formula(register):
            return None
        together = _neighbours(indices[0][:, table[:, 0]]), _neighbours(indices[1][:, table[0]])
        return cls(dist, register, (rows, columns), together)

    def at(self, row: Any, column: Any) -> Any:
        """The register of a row and a column of the thread."""
        return to_tir(self.register, dict(zip(names(2), (row, column))))

    def place(self, tx: Any, axis: int, number: Any) -> Any:
        """The index in C of a row (axis 0) or column (axis 1) of the thread."""
        register = self.at(number, int32(0)) if axis == 0 else self.at(int32(0), number)
        return self.dist.place(tx, register)[0][axis]


def _neighbours(indices: Ints) -> int:
    """How many, a power of two, come as aligned neighbours in every thread: `indices` by (thread, number)."""
    for count in (NEIGHBOURS, NEIGHBOURS // 2):
        if indices.shape[1] % count == 0:
            groups = indices.reshape(len(indices), -1, count)
            if (groups[..., :1] % count == 0).all() and (groups == groups[..., :1] + np.arange(count)).all():
                return count
    return 1


@dataclass(frozen=True)
class _Operand:
    """A by the rows of C, or B by its columns (`axis` 0 or 1): what a thread reads of it."""

    region: Any
    axis: int
    k_last: bool
    low: Lowering

    @classmethod
    def both(cls, op: Gemm, low: Lowering) -> tuple[_Operand, _Operand]:
        return cls(op.a, 0, not op.transpose_a, low), cls(op.b, 1, bool(op.transpose_b), low)

    def widest(self, count: int) -> int:
        """Neighbours in memory, of `count`, that one load can bring."""
        layout, bits = self.low.layout(self.region.source), dtype_of(element_type(self.region)).bits
        start = tile_ir.static(self.region.region[-1].min)
        if not isinstance(layout, Layout) or start is None or bits < 8:
            return 1
        return math.gcd(layout.vector_width(-1, min(count, VECTOR_BITS // bits)), start, count)

    def part(self, size: int) -> Any:
        """Registers for elements."""
        part = local(size, element_type(self.region), f"{self.region.source.name}_part")
        self.low.temporaries.append(tir.AllocBuffer(part))
        return part

    def read(self, into: Any, at: Any, place: Any, k: Any, count: int, *, along: bool) -> Any:
        """`into[at:at + count]` are the neighbours from (place, k) on, `along` k or across it; one vector where it can be."""
        if along == self.k_last and count > 1 and self.widest(count) == count:
            index = [self.low.simplify(x) for x in self._index(place, k)]
            index[-1] = tir.Ramp(index[-1], tir.const(1, str(index[-1].ty)), count)
            target = int32(at) if isinstance(at, int) else at
            return store(into, tir.BufferLoad(self.region.source, index), tir.Ramp(target, int32(1), count))

        def element(u: Any) -> Any:
            index = self._index(place, k + u) if along else self._index(place + u, k)
            return store(into, tir.BufferLoad(self.region.source, index), at + u)

        return unrolled("u", count, element)

    def _index(self, place: Any, k: Any) -> list[Any]:
        at = (place, k) if self.k_last else (k, place)
        region = self.region.region
        return [*(r.min for r in region[:-2]), *(r.min + x for r, x in zip(region[-2:], at))]


class _Products:
    """The loop over k for rectangles.

    before:     T.tl.gemm(A_tile, B_tile, acc), A by rows of k, B by rows of n
    after:      for k in range(0, K, 4): a = rows of A, four along k each
                    for u in unroll(4), j in unroll(columns / 4): b = B[k + u, 4 columns]; acc[i, j] += a[i, u] * b[j]
    """

    def __init__(self, op: Gemm, rectangle: _Rectangle, low: Lowering, add: Add, at_once: int = 0) -> None:
        self.rectangle, self.low, self.add, self.at_once = rectangle, low, add, at_once
        self.depth = at_once or max(self._along(o, op) for o in _Operand.both(op, low))
        self.steps = op.k // self.depth
        operands = sorted(_Operand.both(op, low), key=lambda o: rectangle.shape[o.axis])
        self.held, self.streamed = operands

    @staticmethod
    def _along(operand: _Operand, op: Gemm) -> int:
        """Elements along k that one load brings."""
        return math.gcd(operand.widest(NEIGHBOURS), op.k) if operand.k_last else 1

    def loop(self) -> Any:
        held, streamed = (o.part(self._size(o)) for o in (self.held, self.streamed))

        def step(k: Any) -> Any:
            first = k * self.depth
            return tile_ir.sequence([self._hold(held, first), self._stream(held, streamed, first)])

        together = self._steps_together()
        return serial(
            "k", self.steps // together, lambda k: unrolled("step", together, lambda n: step(k * together + n))
        )

    def _steps_together(self) -> int:
        """Steps without a branch between them, that loads of one run under the products of another."""
        products = math.prod(self.rectangle.shape) * self.depth
        return next(n for n in (8, 4, 2, 1) if n == 1 or (self.steps % n == 0 and products * n <= UNROLLED))

    def _size(self, operand: _Operand) -> int:
        if operand is self.held:
            return self.rectangle.shape[operand.axis] * self.depth
        return self.depth if self._goes_along(operand) else self._together(operand)

    def _goes_along(self, operand: _Operand) -> bool:
        return bool(self.at_once) or (operand.k_last and self.depth > 1 and operand.widest(self.depth) == self.depth)

    def _together(self, operand: _Operand) -> int:
        """Rows or columns that are read at once."""
        together = self.rectangle.together[operand.axis]
        return 1 if operand.k_last else operand.widest(together)

    def _hold(self, into: Any, first: Any) -> Any:
        """All rows (columns) of the thread for a step."""
        operand, depth = self.held, self.depth
        count = self.rectangle.shape[operand.axis]
        if self._goes_along(operand):
            return unrolled(
                "h", count, lambda h: operand.read(into, h * depth, self._place(operand, h), first, depth, along=True)
            )
        width = self._together(operand)

        def row(u: Any) -> Any:
            def piece(g: Any) -> Any:
                place = self._place(operand, g * width)
                return operand.read(into, u * count + g * width, place, first + u, width, along=False)

            return unrolled("g", count // width, piece)

        return unrolled("u", depth, row)

    def _stream(self, held: Any, part: Any, first: Any) -> Any:
        operand, depth = self.streamed, self.depth
        count = self.rectangle.shape[operand.axis]
        if self._goes_along(operand):

            def line(s: Any) -> Any:
                read = operand.read(part, 0, self._place(operand, s), first, depth, along=True)
                sums = unrolled("u", 1 if self.at_once else depth, lambda u: self._sums(held, u, s, (part, u)))
                return tile_ir.sequence([read, sums])

            return unrolled("s", count, line)
        width = self._together(operand)

        def row(u: Any) -> Any:
            def piece(g: Any) -> Any:
                read = operand.read(part, 0, self._place(operand, g * width), first + u, width, along=False)
                sums = unrolled("v", width, lambda v: self._sums(held, u, g * width + v, (part, v)))
                return tile_ir.sequence([read, sums])

            return unrolled("g", count // width, piece)

        return unrolled("u", depth, row)

    def _sums(self, held: Any, u: Any, s: Any, streamed: tuple[Any, Any]) -> Any:
        """The products of all that is held with one row or column of the other operand, at place u of the step."""
        count = self.rectangle.shape[self.held.axis]

        def one(h: Any) -> Any:
            at = h * self.depth + u if self._goes_along(self.held) else u * count + h
            row, column = (h, s) if self.held.axis == 0 else (s, h)
            factors = ((held, at), streamed) if self.held.axis == 0 else (streamed, (held, at))
            return self.add(self.rectangle.at(row, column), *factors)

        return unrolled("h", count, one)

    def _place(self, operand: _Operand, number: Any) -> Any:
        return self.rectangle.place(self.low.tx, operand.axis, number)


def _one_by_one(op: Gemm, dist: Distribution, low: Lowering, add: Add, at_once: int = 1) -> Any:
    """The loop over k where a thread's elements are no rectangle: each for itself, those that there are."""
    a, b = _Operand.both(op, low)
    parts = a.part(at_once), b.part(at_once)

    def step(k: Any) -> Any:
        def element(r: Any) -> Any:
            places, conditions = dist.place(low.tx, r)
            reads = [o.read(x, 0, at, k * at_once, at_once, along=True) for o, x, at in zip((a, b), parts, places)]
            return under(conditions, tile_ir.sequence([*reads, add(r, (parts[0], 0), (parts[1], 0))]))

        return unrolled("r", dist.steps, element)

    return serial("k", op.k // at_once, step)
