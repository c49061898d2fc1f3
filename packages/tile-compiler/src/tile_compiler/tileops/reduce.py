"""`T.reduce_*`: vector partial results, combined along the tile's rows or columns."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.tileops.combine import Combine, accumulator_type, combine_of, custom_combine
from tile_compiler.tileops.copy import stage_in, stage_out
from tile_compiler.tileops.site import Site, at, cast, element_type, int32, serial, vector
from tilelang.ir import tile_ir
from tilelang.ops import Reduce

# Independent partial vectors in one row: hides the latency of an add (4 cycles, 2 a cycle on Zen 4 and Golden
# Cove) as far as 16 registers of AVX2 allow.
PARTIALS = 4


def lower_reduce(op: Reduce, site: Site) -> Any:
    """`tl.reduce(src, dst)` -> loops over the kept dimensions around partial results in registers.

    Along the last dimension (rows), for each row:
        partial[0:64] = identity
        for c in K // 64: partial[l] = step(partial[l], src[i, c * 64 + l])      four vectors
        partial[0:16] folded to one element;  dst[i] = partial[0]
    Along another one, for each group of columns:
        partial[l] = identity;  for k in K: partial[l] = step(partial[l], src[k, c + l]);  dst[c + l] = partial[l]

    The old content of dst enters once, at the end. Regions that may leave their buffer, and a src that shares
    storage with dst, go through temporaries.
    """
    before: list[Any] = []
    after: list[Any] = []
    src, dst = op.src, op.dst
    if not site.ranges.inside(src):
        loads, src = stage_in(src, site, f"{src.source.name}_tile")
        before.append(loads)
    if not site.ranges.inside(dst) or site.share_storage(op.src, dst):
        target = dst
        loads, dst = stage_in(dst, site, f"{dst.source.name}_tile")
        before += [] if op.clear else [loads]
        after.append(stage_out(dst, target, site))
    reduction = _Reduction(op, src, dst, site)
    return tile_ir.sequence([*before, reduction.loops(), *after])


class _Reduction:
    def __init__(self, op: Reduce, src: Any, dst: Any, site: Site) -> None:
        self.op, self.src, self.dst, self.site = op, src, dst, site
        rank = len(src.region)
        self.dim = op.dim % rank
        self.combine = self._combine()
        self.lanes = max(1, site.ctx.vector_bytes // _itemsize(self.combine.dtype))
        self.kept = [d for d in range(rank) if d != self.dim]
        # dst has src's dimensions without `dim`, or with extent 1 there
        self.dst_dims = self.kept if len(dst.region) == rank else list(range(rank - 1))

    def _combine(self) -> Combine:
        op = self.op
        if op.kind == "custom":
            return custom_combine(op.lhs, op.rhs, op.combined, op.identity)
        result = element_type(op.dst)
        return combine_of(op.kind, accumulator_type(element_type(op.src), result, op.kind), result, op.nan_propagate)

    def loops(self) -> Any:
        last = len(self.src.region) - 1
        if self.dim == last or not self.kept:
            return self._over(self.kept, {}, self._row)
        return self._over([d for d in self.kept if d != last], {}, lambda i: self._columns(i, last))

    def _over(self, dims: list[int], index: dict[int, Any], make: Any) -> Any:
        if not dims:
            return make(index)
        extent = self.src.region[dims[0]].extent
        return serial("ijkl"[min(dims[0], 3)], extent, lambda v: self._over(dims[1:], {**index, dims[0]: v}, make))

    def _element(self, index: dict[int, Any]) -> Any:
        value = cast(tir.BufferLoad(self.src.source, at(self.src, index)), self.combine.dtype)
        return self.combine.prepare(value)

    def _finish(self, index: dict[int, Any], partial: Any) -> Any:
        where = at(self.dst, {to: index[d] for d, to in zip(self.kept, self.dst_dims) if d in index})
        if not self.op.clear:
            partial = self.combine.step(partial, cast(tir.BufferLoad(self.dst.source, where), self.combine.dtype))
        return tir.BufferStore(self.dst.source, cast(partial, element_type(self.dst)), where, span=self.site.span)

    def _row(self, index: dict[int, Any]) -> Any:
        """One row along the last dimension."""
        extent = self.src.region[self.dim].extent
        size = tile_ir.static(extent)
        lanes = self.lanes
        while size is not None and lanes > max(size, 1):
            lanes //= 2
        parts = PARTIALS if size is None or size >= PARTIALS * lanes else max(1, size // lanes)
        acc = _partials(parts * lanes, self.combine.dtype)
        out: list[Any] = [tir.AllocBuffer(acc)]
        out += [_set(acc, p * lanes, lanes, lambda at_: self.combine.identity) for p in range(parts)]

        def update(start: Any, width: int, to: int = 0) -> Any:
            def value(lane: Any) -> Any:
                old = tir.BufferLoad(acc, [_shift(lane, to)])
                return self.combine.step(old, self._element({**index, self.dim: start + lane}))

            return _set(acc, to, width, value)

        block = parts * lanes
        if size is None:
            out.append(serial("c", tir.floordiv(extent, block), lambda c: _all(c * block, parts, lanes, update)))
            rest = extent - tir.floormod(extent, block)
            out.append(serial("t", tir.floormod(extent, block), lambda t: update(rest + t, 1)))
        else:
            out.append(serial("c", size // block, lambda c: _all(c * block, parts, lanes, update)))
            done = size // block * block
            for width in _widths(size - done, lanes):
                out.append(update(int32(done), width))
                done += width
        out += _fold(acc, parts, lanes, self.combine)
        out.append(self._finish(index, tir.BufferLoad(acc, [int32(0)])))
        return tile_ir.sequence(out)

    def _columns(self, index: dict[int, Any], last: int) -> Any:
        """All columns (the last dimension) at one place of the other kept dimensions, a few vectors at a time."""
        extent = self.src.region[last].extent
        size = tile_ir.static(extent)
        out: list[Any] = []
        if size is None:
            lanes = self.lanes
            out.append(
                serial("c", tir.floordiv(extent, lanes), lambda c: self._column_block(index, last, c * lanes, 1, lanes))
            )
            rest = extent - tir.floormod(extent, lanes)
            out.append(
                serial("t", tir.floormod(extent, lanes), lambda t: self._column_block(index, last, rest + t, 1, 1))
            )
            return tile_ir.sequence(out)
        block = PARTIALS * self.lanes
        if size >= block:
            out.append(
                serial("c", size // block, lambda c: self._column_block(index, last, c * block, PARTIALS, self.lanes))
            )
        done = size // block * block
        for width in _widths(size - done, self.lanes):
            out.append(self._column_block(index, last, int32(done), 1, width))
            done += width
        return tile_ir.sequence(out)

    def _column_block(self, index: dict[int, Any], last: int, start: Any, parts: int, lanes: int) -> Any:
        acc = _partials(parts * lanes, self.combine.dtype)
        out: list[Any] = [tir.AllocBuffer(acc)]
        out += [_set(acc, p * lanes, lanes, lambda at_: self.combine.identity) for p in range(parts)]

        def step(k: Any) -> Any:
            def update(first: Any, width: int, to: int) -> Any:
                def value(lane: Any) -> Any:
                    old = tir.BufferLoad(acc, [_shift(lane, to)])
                    return self.combine.step(old, self._element({**index, self.dim: k, last: first + lane}))

                return _set(acc, to, width, value)

            return _all(start, parts, lanes, update)

        out.append(serial("k", self.src.region[self.dim].extent, step))
        for p in range(parts):

            def store(lane: Any, p: int = p) -> Any:
                partial = tir.BufferLoad(acc, [_shift(lane, p * lanes)])
                return self._finish({**index, last: start + p * lanes + lane}, partial)

            out.append(vector("l", lanes, store))
        return tile_ir.sequence(out)


def _partials(size: int, dtype: str) -> Any:
    return tir.decl_buffer((size,), dtype, name="partial", scope="local", layout=None)


def _shift(lane: Any, offset: int) -> Any:
    return lane + offset if offset else lane


def _set(acc: Any, offset: int, lanes: int, value: Any) -> Any:
    """`acc[offset + l] = value(l)` for `lanes` lanes."""
    return vector("l", lanes, lambda lane: tir.BufferStore(acc, value(lane), [_shift(lane, offset)]))


def _all(start: Any, parts: int, lanes: int, update: Any) -> Any:
    return tile_ir.sequence([update(start + p * lanes if p else start, lanes, p * lanes) for p in range(parts)])


def _fold(acc: Any, parts: int, lanes: int, combine: Combine) -> list[Any]:
    """Combine all partial results into element 0: vectors first, then halves of one vector."""
    out, size = [], parts * lanes
    while size > lanes:  # parts need not be a power of two
        size -= lanes
        out.append(_merge(acc, size, lanes, combine))
    while size > 1:
        size //= 2
        out.append(_merge(acc, size, size, combine))
    return out


def _merge(acc: Any, offset: int, lanes: int, combine: Combine) -> Any:
    def value(lane: Any) -> Any:
        return combine.step(tir.BufferLoad(acc, [lane]), tir.BufferLoad(acc, [_shift(lane, offset)]))

    return _set(acc, 0, lanes, value)


def _widths(count: int, lanes: int) -> list[int]:
    """`count` as a sum of powers of two, at most `lanes` each, largest first."""
    out, width = [], lanes
    while count:
        if width <= count:
            out.append(width)
            count -= width
        else:
            width //= 2
    return out


def _itemsize(dtype: str) -> int:
    from tilelang.ir.dtypes import dtype_of

    return dtype_of(dtype).itemsize
