"""Which tiles the tensor memory accelerator can copy, and by which tensor maps and boxes.

A tensor map describes a tensor as dimensions with extents and strides, and a box: the part of it that one instruction
moves. In shared memory the box is dense, its first dimension fastest, and may be swizzled: the number of each 16-byte
piece of an address is XORed with bits above it, as by `tilelang.layout.SwizzleMode`. So a layout can be copied whose
order, with the XOR taken back, is that of boxes. A tile of column panels is one box of one dimension more:

    A (M, K), tile (64, 128) of f16 in panels of 64 columns      map (64, M, K / 64), box (64, 64, 2)

Sources: CUDA driver API, "Tensor Map Object Management"; PTX ISA, "Tensor swizzling modes".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.ranges import Ranges
from tile_compiler.signature import TENSOR_MAP
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import is_global, is_shared, static_shape
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Layout, make_linear_layout, make_wgmma_swizzled_layout
from tilelang.layout.swizzle import SWIZZLE_MODES
from tilelang.ops.copy import Copy

RANK = 5  # dimensions of a map at most
EXTENT = 256  # of a box at most
ALIGNMENT = 16  # bytes, of the tensor's address and strides, and of a box's rows
SHARED_ALIGNMENT = 128  # bytes, of a box in shared memory
REPEAT = {0: SHARED_ALIGNMENT, 32: 256, 64: 512, 128: 1024}  # bytes after which a swizzle's pattern starts again

Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MapFacts:
    """A tensor map of `tensor`, fastest dimension first: `shape` and `strides` (of dimensions 1, 2, ...) in elements. `rounds`:
    its loads round float32 to tf32."""

    tensor: Any
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    box: tuple[int, ...]
    swizzle: int
    rounds: bool = False

    def same_as(self, other: MapFacts) -> bool:
        sizes = zip((*self.shape, *self.strides), (*other.shape, *other.strides))
        return (
            bool(self.tensor.same_as(other.tensor))
            and (self.box, self.swizzle, self.rounds) == (other.box, other.swizzle, other.rounds)
            and len(self.strides) == len(other.strides)
            and all(tvm_ffi.structural_equal(a, b) for a, b in sizes)
        )

    def bound(self, var: Any, span: Any = None) -> tir.Bind:
        """The host's statement that makes the map."""
        data = ir.Call(ir.Op.get("tirx.buffer_data"), [self.tensor], ret_ty="handle")
        attrs = {"box": list(self.box), "swizzle": self.swizzle} | ({"dtype": "tfloat32"} if self.rounds else {})
        return tir.Bind(
            var, tile_ir.call(TENSOR_MAP, [data, *self.shape, *self.strides], attrs, dtype="handle"), span=span
        )


@dataclass(frozen=True)
class Box:
    """One instruction: coordinates in the tensor, fastest first, and the element of the tile where the box begins."""

    coordinates: tuple[Any, ...]
    corner: tuple[Any, ...]


@dataclass(frozen=True)
class Plan:
    """How a tile is copied: one map, and boxes of it. `bytes`: what a load's barrier counts, all boxes together.

    `blocks` > 1: the boxes are one of so many parts, which the blocks of a cluster bring to each other (`multicast`).
    """

    map: MapFacts
    boxes: tuple[Box, ...]
    bytes: int
    loads: bool
    blocks: int = 1

    def describe(self) -> str:
        swizzle = f", swizzled by {self.map.swizzle} bytes" if self.map.swizzle else ""
        swizzle += ", rounded to tf32" if self.map.rounds else ""
        count = "one box" if len(self.boxes) == 1 else f"{len(self.boxes)} boxes"
        shared = f", each block of {self.blocks} its part to all" if self.blocks > 1 else ""
        return f"{count} of {' x '.join(map(str, self.map.box))} elements{swizzle}{shared}"


@dataclass(frozen=True)
class _Shape:
    """The boxes of a tile in a layout: `width` columns of a panel and `extents` of the other axes, outermost first.

    `before`: if the panels are a dimension of the box, the axes that come before it, fastest first.
    """

    swizzle: int
    width: int
    extents: tuple[int, ...]
    count: int
    before: tuple[int, ...] | None = None

    @property
    def folded(self) -> bool:
        return self.before is not None


def tma_able(
    src: Any,
    dst: Any,
    ranges: Ranges,
    ctx: SimtContext,
    *,
    layout: Layout | None = None,
    safe: Sequence[Any] = (),
) -> Plan | str:
    """How the accelerator copies `src` to `dst`, or why it cannot, in words.

    `layout`: of the tile in shared memory; before it is known, None: then the one that `preferred_layout` gives. `safe`
    are the tensors that read as something else than 0 outside of their bounds.
    """
    if not ctx.arch.has_tma:
        return f"{ctx.arch.name} has no tensor memory accelerator (sm_90a has)"
    loads = is_shared(dst.source)
    tensor, tile = (src, dst) if loads else (dst, src)
    if not (is_global(tensor.source) and is_shared(tile.source)):
        return "it copies between global and shared memory only"
    return _Planner(tensor, tile, loads, ranges, safe).plan(src, dst, layout)


def preferred_layout(tile: Any) -> Layout | None:
    """The layout of the buffer of `tile`, a region, that the accelerator fills and wgmma reads: panels of the widest
    swizzle; vectors, versions of a vector, and versions that are smaller than the swizzle's pattern, follow each other.
    None where no swizzle fits."""
    buffer = tile.source
    shape = static_shape(buffer)
    kind = dtype_of(tile_ir.dtype_name(buffer))
    if shape is None or kind.lanes > 1 or kind.bits not in (8, 16, 32, 64):
        return None
    # A copy ahead of a loop may choose version 0 of several.
    several = [tile_ir.static(part.min) is None or size > 1 for part, size in zip(tile.region, shape)]
    chooses = [many and tile_ir.static(part.extent) == 1 for many, part in zip(several, tile.region)]
    if len(shape) - sum(chooses) < 2:
        return make_linear_layout(shape)
    narrowest = min(mode.row_elements(kind.bits) for mode in SWIZZLE_MODES.values())
    if shape[-1] % narrowest:
        return None
    panels = make_wgmma_swizzled_layout(shape, tile_ir.dtype_name(buffer))
    places = np.asarray(panels.offsets, np.int64).reshape(shape)
    alike = all(_steps(places, dim) is not None for dim, version in enumerate(chooses) if version)
    return panels if alike else make_linear_layout(shape)


def _steps(places: Array, dim: int) -> Array | None:
    """How far the elements of each index of `dim` lie from those of the first; None if they do not move together."""
    versions = np.moveaxis(places, dim, 0).reshape(places.shape[dim], -1)
    steps = versions - versions[:1]
    return None if (steps != steps[:, :1]).any() else steps[:, 0]


class _Reason(Exception):
    """Why there is no plan."""


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise _Reason(reason)


@dataclass
class _Planner:
    tensor: Any
    tile: Any
    loads: bool
    ranges: Ranges
    safe: Sequence[Any]

    def plan(self, src: Any, dst: Any, layout: Layout | None) -> Plan | str:
        try:
            self._check_elements()
            axes = [(e, *((s, d) if self.loads else (d, s))) for e, s, d in Copy(src, dst).tile_axes()]
            self._check_tensor(axes)
            found = layout or preferred_layout(self.tile)
            _need(found is not None, f"rows of {self.tile.source.name} are no multiple of 32 bytes")
            assert found is not None
            extents = [int(e) for e, _, _ in axes]
            return self._made(axes, extents, self._shape(self._places(found, axes), extents, axes))
        except _Reason as reason:
            return str(reason)

    # -- the tensor ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return str(self.tensor.source.name)

    def _check_elements(self) -> None:
        kinds = [tile_ir.dtype_name(r.source) for r in (self.tensor, self.tile)]
        _need(kinds[0] == kinds[1], f"it converts {kinds[0]} and {kinds[1]}")
        self.kind = dtype_of(kinds[0])
        _need(self.kind.lanes == 1 and self.kind.bits in (8, 16, 32, 64), f"elements of type {kinds[0]}")
        self.size = self.kind.bits // 8
        self.versions = 0  # a number of bytes that all distances between versions of the tile are multiples of

    def _check_tensor(self, axes: list[tuple[Any, int, int]]) -> None:
        tensor, rank = self.tensor.source, len(self.tensor.region)
        _need(tensor in self.ranges.parameters, f"{self.name} is no parameter of the kernel")
        _need(tensor not in self.ranges.any_address, f"any address and any row length of {self.name} are allowed for")
        _need(not (self.loads and any(tensor.same_as(s) for s in self.safe)), f"{self.name} has a safe value")
        _need(1 <= rank <= RANK, f"{self.name} has {rank} dimensions, a tensor map at most {RANK}")
        _need(all(tile_ir.static(n) != 0 for n in tensor.ty.shape), f"{self.name} has no elements")
        _need(all(tile_ir.static(e) is not None for e, _, _ in axes), "the tile's extents are not constant")
        _need(bool(axes), "it is a single element")
        _need(axes[-1][1] == rank - 1, f"it takes one element of each row of {self.name}")
        first = self.tensor.region[-1].min
        _need(self._multiple(first * self.size, ALIGNMENT), f"it may begin in {self.name} at no multiple of 16 bytes")
        within = self.loads or all(self.ranges.proves(part.min >= 0) for part in self.tensor.region)
        _need(within, f"it may begin before {self.name}, which a load may and a store may not")
        self.strides = _strides(tensor)
        _need(self._equal(self.strides[-1], 1), f"elements of a row of {self.name} do not follow each other")
        for stride in self.strides[:-1]:
            step = self.ranges.simplify(stride * self.size)
            _need(self._multiple(step, ALIGNMENT), f"{step} bytes from row to row of {self.name}, no multiple of 16")

    def _equal(self, value: Any, number: int) -> bool:
        known = tile_ir.static(value)
        return known == number if known is not None else self.ranges.proves(value == number)

    def _multiple(self, value: Any, number: int) -> bool:
        known = tile_ir.static(value)
        return known % number == 0 if known is not None else self.ranges.proves(tir.floormod(value, number) == 0)

    # -- the tile -----------------------------------------------------------------------------------------------------

    def _places(self, layout: Layout, axes: list[tuple[Any, int, int]]) -> Array:
        """The byte offset of each element of the region in the tile's memory, one axis of the copy after another."""
        name, shape = self.tile.source.name, layout.shape
        table = np.asarray(layout.offsets, np.int64).reshape(shape) * self.size
        chosen: list[Any] = []
        moving = [dim for _, _, dim in axes]
        for dim, part in enumerate(self.tile.region):
            low, extent = tile_ir.static(part.min), tile_ir.static(part.extent)
            if low is not None and extent is not None:
                _need(0 <= low and low + extent <= shape[dim], f"it reaches outside of {name}")
                chosen.append(slice(low, low + extent) if dim in moving else low)
                continue
            _need(extent == 1, f"where in {name} it begins is not constant")
            _need(self.ranges.inside(self.tile), f"it may reach outside of {name}")
            steps = _steps(table, dim)
            _need(steps is not None, f"versions of {name} have different layouts")
            assert steps is not None
            self.versions = math.gcd(self.versions, *(int(s) for s in steps))
            chosen.append(0)
        return np.transpose(table[tuple(chosen)], np.argsort(np.argsort(moving)))

    def _shape(self, places: Array, extents: list[int], axes: list[tuple[Any, int, int]]) -> _Shape:
        """The fewest boxes of one kind that make up the tile."""
        found = [s for swizzle in REPEAT for s in self._with_swizzle(places, extents, axes, swizzle)]
        _need(bool(found), f"the layout of {self.tile.source.name} is no order of boxes")
        return min(found, key=lambda s: s.count)

    def _with_swizzle(
        self, places: Array, extents: list[int], axes: list[tuple[Any, int, int]], swizzle: int
    ) -> Iterator[_Shape]:
        plain = places ^ ((places >> 3) & (swizzle - 16)) if swizzle else places
        widths = _divisors(_run(plain, self.size))
        width = max(w for w in widths if w <= EXTENT and (w == 1 or w * self.size <= (swizzle or math.inf)))
        if width * self.size % ALIGNMENT or self.versions % REPEAT[swizzle]:
            return
        panels = extents[-1] // width
        folds = panels > 1 and self._folds(width, panels)
        # Rows and panels in the order of their distance in memory: the box takes them in as long as it stays dense.
        table = plain[..., ::width]
        steps = [abs(int(np.diff(table, axis=a).flat[0])) if table.shape[a] > 1 else 0 for a in range(table.ndim)]
        pitch, dense, taken, slowest = width * self.size, True, [1] * table.ndim, table.ndim
        order = [a for a in sorted(range(table.ndim), key=lambda a: steps[a]) if table.shape[a] > 1]
        for axis in order:
            row = axis < table.ndim - 1
            if not dense or not (row or folds) or (row and axis > slowest):
                break  # the map has rows in the tensor's order
            slowest = axis if row else slowest
            run = _run(np.moveaxis(table, axis, -1), pitch)
            taken[axis] = max(d for d in _divisors(run) if d <= EXTENT)
            dense = taken[axis] == table.shape[axis]
            pitch *= taken[axis]
        folded = taken[-1] > 1
        if folded and taken[-1] != panels:
            return
        after = sum(1 for a in order[: order.index(table.ndim - 1)] if taken[a] > 1) if folded else 0
        count = math.prod(n // t for n, t in zip(table.shape, taken))
        corners = table[tuple(slice(None, None, t) for t in taken)]
        if not (corners % REPEAT[swizzle]).any():
            yield _Shape(swizzle, width, tuple(taken[:-1]), count, tuple(order[:after]) if folded else None)

    def _folds(self, width: int, panels: int) -> bool:
        """Whether panels can be a dimension of the map: all of the tensor's, from the tile's first one on."""
        fits = len(self.tensor.region) < RANK and panels <= EXTENT
        sizes = self.tensor.source.ty.shape[-1], self.tensor.region[-1].min
        return fits and all(self._multiple(size, width) for size in sizes)

    # -- the result ---------------------------------------------------------------------------------------------------

    def _made(self, axes: list[tuple[Any, int, int]], extents: list[int], shape: _Shape) -> Plan:
        tensor, rank = self.tensor.source, len(self.tensor.region)
        box = [1] * rank
        box[rank - 1] = shape.width
        for (_, dim, _), extent in zip(axes[:-1], shape.extents):
            box[dim] = extent
        sizes, strides, dims = list(tensor.ty.shape)[::-1], self.strides[::-1], box[::-1]
        if shape.folded:
            columns = sizes[0]
            at = self._panel_dimension(axes, shape)
            sizes = [_like(columns, shape.width), *sizes[1:]]
            sizes.insert(at, tir.floordiv(columns, _like(columns, shape.width)))
            strides.insert(at, _like(columns, shape.width))
            dims.insert(at, extents[-1] // shape.width)
        known = [self.ranges.simplify(s) for s in (*sizes, *strides[1:])]
        facts = MapFacts(tensor, tuple(known[: len(sizes)]), tuple(known[len(sizes) :]), tuple(dims), shape.swizzle)
        boxes = tuple(self._box(offset, axes, shape) for offset in self._offsets(extents, shape))
        return Plan(facts, boxes, math.prod(extents) * self.size, self.loads)

    def _panel_dimension(self, axes: list[tuple[Any, int, int]], shape: _Shape) -> int:
        """The number of the panels' dimension, counted from the fastest: after the slowest axis that comes before."""
        rank = len(self.tensor.region)
        return 1 + max((rank - 1 - axes[a][1] for a in shape.before or ()), default=0)

    @staticmethod
    def _offsets(extents: list[int], shape: _Shape) -> Iterator[tuple[int, ...]]:
        """Where the boxes begin, in the axes of the copy."""
        steps = (*shape.extents, extents[-1] if shape.folded else shape.width)
        counts = [n // s for n, s in zip(extents, steps)]
        for index in np.ndindex(*counts):
            yield tuple(i * s for i, s in zip(index, steps))

    def _box(self, offset: tuple[int, ...], axes: list[tuple[Any, int, int]], shape: _Shape) -> Box:
        at = [part.min for part in self.tensor.region]
        corner = [part.min for part in self.tile.region]
        for (_, dim, tile_dim), start in zip(axes, offset):
            at[dim] = at[dim] + _like(at[dim], start) if start else at[dim]
            corner[tile_dim] = corner[tile_dim] + _like(corner[tile_dim], start) if start else corner[tile_dim]
        coordinates = at[::-1]
        if shape.folded:
            column = coordinates[0]
            coordinates[0] = tir.const(0, "int32")
            coordinates.insert(self._panel_dimension(axes, shape), tir.floordiv(column, _like(column, shape.width)))
        return Box(tuple(_int32(self.ranges.simplify(c)) for c in coordinates), tuple(corner))


def _strides(tensor: Any) -> list[Any]:
    """Elements from one index to the next in each dimension."""
    if tensor.ty.strides:
        return list(tensor.ty.strides)
    shape = list(tensor.ty.shape)
    strides: list[Any] = [_like(shape[-1], 1)]
    for extent in reversed(shape[1:]):
        strides.insert(0, extent if tile_ir.static(strides[0]) == 1 else strides[0] * extent)
    return strides


def _run(table: Array, pitch: int) -> int:
    """The largest divisor of the last axis such that everywhere so many neighbours are `pitch` bytes apart."""
    count = table.shape[-1]
    follows = (np.diff(table, axis=-1) == pitch).reshape(-1, count - 1).all(axis=0)
    return max(run for run in _divisors(count) if all(follows[c] for c in range(count - 1) if (c + 1) % run))


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _like(value: Any, number: int) -> Any:
    return tir.const(number, str(value.ty)) if hasattr(value, "ty") else tir.const(number, "int32")


def _int32(value: Any) -> Any:
    return value if str(value.ty) == "int32" else tir.Cast("int32", value)
