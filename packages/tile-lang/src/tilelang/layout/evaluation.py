"""Questions about index maps, answered by evaluating them over the whole tile with numpy."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.layout.expr import IndexExpr


def as_shape(shape: Any, what: str = "shape") -> tuple[int, ...]:
    """`shape` as a tuple of positive ints; TypeError or ValueError that names `what` otherwise."""
    if isinstance(shape, (str, bytes)) or not hasattr(shape, "__iter__"):
        shape = (shape,)
    shape = tuple(shape)
    extents = []
    for extent in shape:
        try:
            # Compilers have integer constants of their own that only answer to int().
            value = int(extent) if hasattr(extent, "value") else operator.index(extent)
        except (TypeError, ValueError):
            raise TypeError(
                f"The {what} {shape} holds {extent!r} of type {type(extent).__name__}, but a layout needs "
                "constant integer extents. Give the tile's extents as ints."
            ) from None
        if value < 1:
            raise ValueError(
                f"The {what} {shape} holds {value}, but every number in it must be at least 1. Give 1 or more."
            )
        extents.append(value)
    if not extents:
        raise ValueError(f"The {what} is empty, but at least one dimension is needed. Use (1,) for a single element.")
    return tuple(extents)


def over_tile(expr: IndexExpr, extents: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """`expr` at every point of the tile, one axis per name in the order of `extents`; a read-only broadcast."""
    shape = tuple(extents.values())
    rank = len(shape)
    axes = {
        name: np.arange(extent, dtype=np.int64).reshape([-1 if axis == n else 1 for axis in range(rank)])
        for n, (name, extent) in enumerate(extents.items())
    }
    return np.broadcast_to(np.asarray(expr.evaluate(axes), dtype=np.int64), shape)


def linear_index(indices: Sequence[Any], shape: Sequence[int]) -> Any:
    """The row-major number of an index tuple in a box of that shape; works on ints, arrays and expressions."""
    total: Any = 0
    for index, extent in zip(indices, shape, strict=True):
        total = total * extent + index
    return total


def point(coordinates: Any) -> str:
    """An index tuple as Python writes it, without numpy's type names."""
    return str(tuple(int(c) for c in coordinates))


def first_collision(slots: npt.NDArray[np.int64]) -> tuple[int, int] | None:
    """Two positions of the flat array that hold the same number, or None if all differ.

    Of all such pairs the one whose second position comes first, so that messages name small indices.
    """
    order = np.argsort(slots, kind="stable")
    equal = np.flatnonzero(slots[order[1:]] == slots[order[:-1]])
    if not len(equal):
        return None
    pick = equal[np.argmin(order[equal + 1])]
    return int(order[pick]), int(order[pick + 1])


def contiguous_run(offsets: npt.NDArray[np.int64], axis: int, limit: int | None) -> int:
    """The largest power of two v such that aligned groups of v along `axis` are consecutive, aligned numbers.

    `offsets[group * v + n] == offsets[group * v] + n` and `offsets[group * v] % v == 0` for every group; v divides
    the extent of the axis, and is at most `limit`.
    """
    lines = np.moveaxis(offsets, axis, -1)
    extent = lines.shape[-1]
    width = 1
    while extent % (2 * width) == 0 and (limit is None or 2 * width <= limit):
        groups = lines.reshape(*lines.shape[:-1], -1, 2 * width)
        starts = groups[..., :1]
        if np.any(groups - starts != np.arange(2 * width)) or np.any(starts % (2 * width)):
            break
        width *= 2
    return width
