"""`Layout`: where each element of a tile lies in memory (paper, section 4.1).

A layout is a function from a logical index to a physical index, f: K^n -> K^m: base expressions, then an optional
XOR stage on the last physical coordinate. It need be neither affine nor onto (padding leaves holes). Extents are
any positive ints, and every question about the map is answered by evaluating it over the tile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.layout.evaluation import as_shape, contiguous_run, first_collision, linear_index, over_tile, point
from tilelang.layout.expr import IndexExpr, Json, as_expr, expr_from_json, placeholders, substitute
from tilelang.layout.fit import expr_of_values, sum_of_digits
from tilelang.layout.simplify import affine_form, bounds, simplify
from tilelang.layout.swizzle import Swizzle


class Layout:
    """An index map over a tile of fixed shape. Immutable; equal if the maps are equal.

    `Layout((16, 64), lambda i, j: i * 72 + j)` pads each row by 8 elements. The index function gets one
    placeholder per dimension and returns one physical index or a tuple of them, in elements.

    Raises TypeError if the function does not return integer expressions, ValueError if the shape is not positive or
    a physical index is negative.
    """

    def __init__(self, shape: Any, forward: Callable[..., Any], *, swizzle: Swizzle | None = None) -> None:
        extents = as_shape(shape)
        if not callable(forward):
            raise TypeError(
                f"A layout of shape {extents} needs an index function, but {forward!r} was found. "
                "Pass a lambda with one argument per dimension, for example lambda i, j: i * 64 + j."
            )
        result = forward(*placeholders(len(extents)))
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if not outputs:
            raise ValueError("The index function returned no index. Return one index, or a tuple of them.")
        self._set(extents, tuple(as_expr(output) for output in outputs), swizzle)
        self._check_not_negative()

    @classmethod
    def from_exprs(cls, shape: Any, base: Sequence[IndexExpr], swizzle: Swizzle | None = None) -> Layout:
        """A layout from expressions in `placeholders(rank)`; values are not checked (-1 marks a hole)."""
        layout = cls.__new__(cls)
        layout._set(as_shape(shape), tuple(base), swizzle)
        return layout

    def _set(self, shape: tuple[int, ...], base: tuple[IndexExpr, ...], swizzle: Swizzle | None) -> None:
        self._shape = shape
        self._variables = placeholders(len(shape))
        self._extents: Mapping[str, int] = {v.name: n for v, n in zip(self._variables, shape, strict=True)}
        self._base = tuple(simplify(expr, self._extents) for expr in base)
        self._swizzle = swizzle if swizzle and swizzle.bits else None

    def _check_not_negative(self) -> None:
        for expr in self._base:
            known = bounds(expr, self._extents)
            if known is not None and known[0] >= 0:
                continue
            values = over_tile(expr, self._extents)
            if values.min() < 0:
                where = np.unravel_index(int(values.argmin()), self.shape)
                raise ValueError(
                    f"The layout maps {point(where)} to {int(values.min())}, but physical indices start at 0. "
                    "Add an offset to the index function."
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the logical index, in elements."""
        return self._shape

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The same as `shape`."""
        return self._shape

    @property
    def base(self) -> tuple[IndexExpr, ...]:
        """The physical index before the XOR stage."""
        return self._base

    @property
    def swizzle(self) -> Swizzle | None:
        """The XOR stage on the last physical coordinate, if any."""
        return self._swizzle

    @property
    def index(self) -> tuple[IndexExpr, ...]:
        """The physical index, XOR stage included, as expressions in `placeholders(rank)`."""
        if self._swizzle is None:
            return self._base
        return (*self._base[:-1], self._swizzle.apply(self._base[-1]))

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """Extents of the physical index: one more than the largest value of each coordinate over the tile."""
        return tuple(self._largest(n) + 1 for n in range(len(self._base)))

    def _largest(self, output: int) -> int:
        expr = self.index[output]
        # Interval arithmetic is exact for sums of strides: large linear tensors need no evaluation.
        known = bounds(expr, self._extents) if affine_form(expr, list(self._extents)) else None
        return known[1] if known else int(self._values[output].max())

    @property
    def physical_size(self) -> int:
        """Elements of memory that the tile needs, holes included."""
        return math.prod(self.output_shape)

    @property
    def offset(self) -> IndexExpr:
        """The physical index as one number, row-major over `output_shape`, in elements."""
        return simplify(as_expr(linear_index(self.index, self.output_shape)), self._extents)

    @property
    def affine(self) -> tuple[tuple[int, ...], int] | None:
        """`(strides, start)` if the base is one index, a stride per dimension plus a constant; None otherwise."""
        return affine_form(self._base[0], list(self._extents)) if len(self._base) == 1 else None

    @cached_property
    def _values(self) -> tuple[npt.NDArray[np.int64], ...]:
        return tuple(over_tile(expr, self._extents) for expr in self.index)

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """`offset` at every element: a read-only int64 array of the logical shape."""
        offsets = np.array(linear_index(self._values, self.output_shape))
        offsets.flags.writeable = False
        return offsets

    def evaluate(self, *indices: Any) -> tuple[Any, ...]:
        """The physical index of a logical index; ints, numpy arrays and expressions are accepted.

        Values outside the tile are not refused. ValueError if the number of indices is not the layout's rank.
        """
        if len(indices) != len(self.shape):
            raise ValueError(
                f"A layout of shape {self.shape} was called with {len(indices)} indices; "
                f"give {len(self.shape)}, one per dimension."
            )
        values = dict(zip(self._extents, indices, strict=True))
        return tuple(expr.evaluate(values) for expr in self.index)

    def __call__(self, *indices: Any) -> tuple[Any, ...]:
        return self.evaluate(*indices)

    def map_forward_index(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """`evaluate` on a sequence of indices."""
        return self.evaluate(*indices)

    def is_injective(self) -> bool:
        """Whether no two elements share a physical index."""
        return self._steps_nest() or first_collision(self.offsets.ravel()) is None

    def _steps_nest(self) -> bool:
        """Whether the strides alone prove the map one-to-one (cheap; True needs no evaluation)."""
        affine = self.affine
        if affine is None:
            return False
        reach = 0
        for stride, extent in sorted((abs(s), n) for s, n in zip(affine[0], self.shape, strict=True) if n > 1):
            if stride <= reach:
                return False
            reach += stride * (extent - 1)
        return True

    def is_bijective(self) -> bool:
        """Whether every place in `output_shape` holds exactly one element (no padding)."""
        return self.physical_size == math.prod(self.shape) and self.is_injective()

    def inverse(self) -> Layout:
        """The layout from physical to logical index; places that hold no element (padding) map to -1, ..., -1.

        ValueError, with two elements that collide, if the map is not one-to-one.
        """
        flat = self.offsets.ravel()
        clash = first_collision(flat)
        if clash is not None:
            first, second = (np.unravel_index(c, self.shape) for c in clash)
            place = point(v[first] for v in self._values)
            raise ValueError(
                f"The layout of shape {self.shape} has no inverse: {point(first)} and {point(second)} both map to "
                f"{place}. Change the index function so that different elements get different places."
            )
        if self._swizzle is not None:
            base = Layout.from_exprs(self.shape, self._base)
            if base.is_bijective() and base.output_shape == self.output_shape:
                # The XOR stage undoes itself: swizzle the physical index, then invert the base.
                place_of = placeholders(len(self.output_shape))
                return base.inverse()._after(self.output_shape, (*place_of[:-1], self._swizzle.apply(place_of[-1])))
        logical = np.full((len(self.shape), self.physical_size), -1, dtype=np.int64)
        logical[:, flat] = np.indices(self.shape).reshape(len(self.shape), -1)
        variables = placeholders(len(self.output_shape))
        tables = [table.reshape(self.output_shape) for table in logical]
        return Layout.from_exprs(self.output_shape, [expr_of_values(table, variables) for table in tables])

    def _after(self, shape: tuple[int, ...], indices: Sequence[IndexExpr]) -> Layout:
        """The layout over `shape` that first computes `indices`, then this map."""
        named = dict(zip(self._extents, indices, strict=True))
        return Layout.from_exprs(shape, [substitute(expr, named) for expr in self._base], self._swizzle)

    def compose(self, inner: Layout) -> Layout:
        """The layout that applies `inner` first, then this one: `x -> self(*inner(*x))`.

        ValueError unless all that `inner` produces lies inside this layout's shape.
        """
        produced = inner.output_shape
        if len(produced) != len(self.shape) or any(p > n for p, n in zip(produced, self.shape, strict=True)):
            raise ValueError(
                f"Cannot compose: the inner layout produces indices of shape {produced}, but the outer one takes "
                f"{self.shape}. Reshape the outer layout to {produced}."
            )
        if any(values.min() < 0 for values in inner._values):
            raise ValueError(
                "Cannot compose: the inner layout has holes (it maps some places to -1), so the outer one has nothing "
                "to map there. Compose with the inverse of a layout without padding."
            )
        composed = self._after(inner.shape, inner.index)
        if inner._swizzle is None:
            return composed
        # Two XOR stages often cancel, which no local rule sees but the values show.
        formulas = [sum_of_digits(values, inner._variables) for values in composed._values]
        found = [formula for formula in formulas if formula is not None]
        return Layout.from_exprs(inner.shape, found) if len(found) == len(formulas) else composed

    def reshape(self, shape: Any) -> Layout:
        """The same memory under another logical shape of as many elements (row-major renumbering)."""
        new = as_shape(shape)
        return self._after(new, reshaped_indices(new, self.shape))

    def repeat(self, repeats: Any, factor: int | None = None) -> Layout:
        """Tile the layout: `repeats[d]` copies along dimension d, with the copy's number as a new first coordinate.

        `L'(x) = (number of the copy, row-major,) + L(x % shape)`. `repeat(dim, factor)` repeats one dimension.
        """
        if factor is not None:
            counts = [1] * len(self.shape)
            counts[repeats] = factor
            repeats = counts
        times = repeat_counts(repeats, self.shape)
        inside = [v % n for v, n in zip(self._variables, self.shape, strict=True)]
        copy = linear_index([v // n for v, n in zip(self._variables, self.shape, strict=True)], times)
        tiled = self._after(tuple(n * t for n, t in zip(self.shape, times, strict=True)), inside)
        return Layout.from_exprs(tiled.shape, (as_expr(copy), *tiled.base), self._swizzle)

    def vector_width(self, axis: int = -1, limit: int | None = None) -> int:
        """Elements that one aligned vector access along `axis` can carry: a power of two that divides the extent.

        Aligned groups of that many logical neighbours are neighbours in memory and start at a multiple of the width.
        """
        return contiguous_run(self.offsets, axis, limit)

    def bank_conflicts(
        self, lanes: Any, element_bits: int, *, vector: int = 1, banks: int = 32, bank_bytes: int = 4
    ) -> int:
        """Turns that the worst phase of one shared-memory access takes; 1 means no conflict.

        `lanes` has the shape (lanes, rank): the logical index at which each lane starts; each reads `vector`
        physically consecutive elements. Lanes are served in phases of `banks * bank_bytes` bytes (eight lanes at 16
        bytes each; CUDA C++ Programming Guide, "Shared Memory"). Lanes that read the same word share a turn.
        """
        points = np.asarray(lanes, dtype=np.int64)
        values = self.evaluate(*points.T)
        starts = np.broadcast_to(linear_index(values, self.output_shape), points.shape[:1]) * element_bits
        lane_bits = vector * element_bits
        lanes_per_phase = max(1, banks * bank_bytes * 8 // max(lane_bits, bank_bytes * 8))
        worst = 1
        for phase in range(0, len(starts), lanes_per_phase):
            first = starts[phase : phase + lanes_per_phase, None] // (bank_bytes * 8)
            words = np.unique(first + np.arange(max(1, lane_bits // (bank_bytes * 8))))
            worst = max(worst, int(np.bincount(words % banks).max()))
        return worst

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        if self is other:
            return True
        if self.shape != other.shape or len(self._base) != len(other._base):
            return False
        if self._swizzle == other._swizzle and [e.key for e in self._base] == [e.key for e in other._base]:
            return True
        return all(np.array_equal(a, b) for a, b in zip(self._values, other._values, strict=True))

    def __hash__(self) -> int:
        # The corners decide: equal maps agree there, and nothing has to be evaluated over the whole tile.
        corners = itertools.product(*((0, n - 1) for n in self.shape))
        return hash((self.shape, tuple(self.evaluate(*corner) for corner in corners)))

    def to_json(self) -> Json:
        """Plain values that `from_json` reads back."""
        return {
            "kind": "layout",
            "shape": list(self.shape),
            "index": [expr.to_json() for expr in self._base],
            "swizzle": self._swizzle.to_json() if self._swizzle else None,
        }

    @classmethod
    def from_json(cls, data: Json) -> Layout:
        """The layout that `to_json` wrote; ValueError if `data` is something else."""
        try:
            if data["kind"] != "layout":
                raise KeyError
            swizzle = Swizzle(*data["swizzle"]) if data["swizzle"] else None
            return cls.from_exprs(data["shape"], [expr_from_json(e) for e in data["index"]], swizzle)
        except (KeyError, TypeError):
            raise ValueError(
                f"Expected a stored layout, but {data!r} was found. Write it with Layout.to_json()."
            ) from None

    def __repr__(self) -> str:
        names = ", ".join(self._extents)
        outputs = ", ".join(str(expr) for expr in self._base)
        swizzle = f", {self._swizzle}" if self._swizzle else ""
        return f"Layout({self.shape} -> {self.output_shape}, ({names}) -> ({outputs}){swizzle})"


def repeat_counts(repeats: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """`repeats` as one positive count per dimension of `shape`; ValueError otherwise."""
    counts = as_shape(repeats, "list of repeats")
    if len(counts) != len(shape):
        raise ValueError(
            f"The repeats {counts} do not fit a layout of shape {shape}: give one number per dimension, "
            f"for example {(1,) * (len(shape) - 1) + (2,)}."
        )
    return counts


def reshaped_indices(new: tuple[int, ...], old: tuple[int, ...]) -> list[IndexExpr]:
    """The old index of each new index, row-major; ValueError if the numbers of elements differ."""
    if math.prod(new) != math.prod(old):
        raise ValueError(
            f"Cannot reshape a layout of shape {old} to {new}: {math.prod(old)} elements are not {math.prod(new)}. "
            "Give a shape with as many elements."
        )
    number = as_expr(linear_index(placeholders(len(new)), new))
    return [number // math.prod(old[axis + 1 :]) % extent for axis, extent in enumerate(old)]
