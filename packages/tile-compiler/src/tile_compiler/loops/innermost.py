"""The innermost loop of independent iterations: conditions split off, whole vectors, then a tail."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import pattern
from tile_compiler.loops.conditions import Softener, as_type, bound_in, resolve, split_of, window
from tile_compiler.loops.lanes import (
    can_end_in_lanes,
    can_run_in_lanes,
    hoist_invariants,
    in_lanes,
    materialise_binds,
    private_buffers,
    stored_buffers,
    widest_itemsize,
)
from tile_compiler.ranges import Ranges, conjunction
from tile_compiler.rewrite import renewed, substitute
from tilelang.ir import tile_ir

#: Bytes of an element that masks tell apart, at least, by bytes of a vector: those of AVX-512 any, those of AVX2
#: (`vmaskmovps`) words.
MASKED = {64: 1, 32: 4}


def lower_innermost(var: Any, extent: Any, body: Any, ranges: Ranges, vector_bytes: int, span: Any = None) -> Any:
    """`for var in extent: body`, iterations independent, as vector loops where the body allows it.

    before:     for j in 128: S[i, j] = if_then_else(i < m and j < n, A[i, j], 0)
    after:      high = if_then_else(i < m, max(min(128, n), 0), 0)
                for c in high // 16: for j in vectorized(16): S[i, c * 16 + j] = A[i, c * 16 + j]
                for t in high % 16: S[i, high // 16 * 16 + t] = A[i, high // 16 * 16 + t]
                ... the same for 0 in high .. 128

    Where vectors have masks, what is left of a length that is not known is one vector more, of which some lanes are there.

    With conditions that do not share one group, the iterations outside the window run one by one, as written. Conditions
    that are the same in all iterations stay around the loops.
    """
    dtype = str(var.ty)
    ranges.iterate(var, 0, extent)
    flat = materialise_binds(body, var)
    if flat is None or not can_run_in_lanes(flat, var) or not mostly_contiguous(flat, var):
        return serial(var, extent, body, span)
    softener = Softener(var, ranges)
    soft = softener.body(flat)
    groups = softener.groups
    lanes = lane_count(extent, vector_bytes // widest_itemsize(flat))
    if lanes < 2:
        return serial(var, extent, body, span)
    least = MASKED.get(vector_bytes)
    emit = _Emitter(var, lanes, ranges, span, least is not None and can_end_in_lanes(flat, var, least))
    if not groups:
        return emit.sweep(soft, tir.const(0, dtype), as_type(extent, dtype))
    split = split_of(groups, var, stored_buffers(flat) | set(private_buffers(flat)), bound_in(flat))
    if split is None:
        return serial(var, extent, body, span)
    end = as_type(extent, dtype)
    single = len(groups) == 1
    within = resolve(soft, groups, True)
    without = resolve(soft, groups, False) if single else body
    outside = emit.sweep if single else emit.one_by_one
    if not (split.low or split.high):  # the same in all iterations: no window, and a static extent stays one
        zero = tir.const(0, dtype)
        other = outside(without, zero, end) if tile_ir.statements(without) else None
        return tir.IfThenElse(conjunction(split.uniform), emit.sweep(within, zero, end), other, span=span)
    low, high = window(split, extent, dtype)
    low, high = ranges.simplify(low), ranges.simplify(high)
    stmts: list[Any] = []
    low, high = _held(low, f"{var.name}_low", stmts), _held(high, f"{var.name}_high", stmts)
    if tile_ir.static(low) != 0:
        stmts.append(outside(without, tir.const(0, dtype), low))
    stmts.append(emit.sweep(within, low, high))
    if tile_ir.statements(without):
        stmts.append(outside(without, high, end))
    return tile_ir.sequence([s for part in stmts for s in tile_ir.statements(part)], span)


def mostly_contiguous(body: Any, var: Any) -> bool:
    """Whether vectors along `var` move mostly neighbouring elements."""
    contiguous, strided, strided_stores = access_counts(body, var)
    return strided_stores == 0 and contiguous > 0 and contiguous >= strided


def access_counts(body: Any, var: Any) -> tuple[int, int, int]:
    """(contiguous accesses, other moving accesses, stores among the latter) as `var` grows."""
    private = set(private_buffers(body))
    contiguous = strided = strided_stores = 0
    for node in tile_ir.walk(body):
        is_store = isinstance(node, tir.BufferStore)
        if not is_store and type(node).__name__ != "TensorLoad":
            continue
        buffer = node.buffer if is_store else node.source
        if buffer in private:
            continue
        kind = pattern(buffer, list(node.indices), var)
        contiguous += kind == "contiguous"
        strided += kind == "strided"
        strided_stores += kind == "strided" and is_store
    return contiguous, strided, strided_stores


def lane_count(extent: Any, widest: int) -> int:
    """The number of lanes: a power of two, at most `widest` and at most a static extent."""
    size = tile_ir.static(extent)
    lanes = widest
    while size is not None and lanes > max(size, 1):
        lanes //= 2
    return lanes


def serial(var: Any, extent: Any, body: Any, span: Any = None) -> Any:
    """A plain loop; a loop of one iteration is its body."""
    zero = tir.const(0, str(var.ty))
    if tile_ir.static(extent) == 1:
        return substitute(body, {var: zero})
    return tir.For(var, zero, as_type(extent, str(var.ty)), tir.ForKind.SERIAL, body, span=span)


def _held(value: Any, name: str, stmts: list[Any]) -> Any:
    """`value` in a variable, unless it is a constant or a variable already."""
    if tile_ir.static(value) is not None or isinstance(value, ir.Var):
        return value
    var = tir.Var(name, value.ty)
    stmts.append(tir.Bind(var, value))
    return var


class _Emitter:
    """Emits a body for a range of iterations."""

    def __init__(self, var: Any, lanes: int, ranges: Ranges, span: Any, masked: bool) -> None:
        self.var, self.lanes, self.ranges, self.span, self.masked = var, lanes, ranges, span, masked

    def _const(self, value: int) -> Any:
        return tir.const(value, str(self.var.ty))

    def sweep(self, body: Any, begin: Any, end: Any) -> Any:
        """Whole vectors from `begin`, then what is left one by one (narrower vectors when the count is static)."""
        if not tile_ir.statements(body):
            return tile_ir.sequence([])
        binds, body = hoist_invariants(body, self.var, self.ranges)
        first, last = tile_ir.static(begin), tile_ir.static(end)
        if first is not None and last is not None:
            loops = self._static(body, first, last)
        else:
            loops = self._dynamic(body, begin, end)
        if not loops:
            return tile_ir.sequence([])
        if binds:
            names = {b.var: tir.Var(b.var.name, b.var.ty) for b in binds}  # each sweep binds its own
            binds = [tir.Bind(names[b.var], b.value) for b in binds]
            loops = [substitute(s, names) for s in loops]
        return tile_ir.sequence([*binds, *loops])

    def _static(self, body: Any, first: int, last: int) -> list[Any]:
        out = []
        whole = (last - first) // self.lanes
        if whole == 1:
            out.append(in_lanes(body, self.var, self._const(first), self.lanes))
        elif whole:
            chunk = tir.Var(f"{self.var.name}_chunk", self.var.ty)
            inner = in_lanes(body, self.var, chunk * self._const(self.lanes) + first, self.lanes)
            out.append(tir.For(chunk, self._const(0), self._const(whole), tir.ForKind.SERIAL, inner, span=self.span))
        at, width = first + whole * self.lanes, self.lanes // 2
        while at < last:
            if width == 1:
                out.append(substitute(body, {self.var: self._const(at)}))
                at += 1
            elif at + width <= last:
                out.append(in_lanes(body, self.var, self._const(at), width))
                at += width
            else:
                width //= 2
        return out

    def _dynamic(self, body: Any, begin: Any, end: Any) -> list[Any]:
        """`count // lanes` vectors, then `count % lanes` single iterations, or lanes of one vector."""
        out: list[Any] = []
        lanes, done = self._const(self.lanes), begin
        count = self.ranges.simplify(end - begin)
        if not self.ranges.proves(count < lanes):
            count = _held(count, f"{self.var.name}_count", out)
            chunk = tir.Var(f"{self.var.name}_chunk", self.var.ty)
            inner = in_lanes(body, self.var, _plus(begin, chunk * lanes), self.lanes)
            vectors = tir.floordiv(count, lanes)
            out.append(tir.For(chunk, self._const(0), vectors, tir.ForKind.SERIAL, inner, span=self.span))
            done = _held(_plus(begin, vectors * lanes), f"{self.var.name}_done", out)
        if not self.masked:
            return [*out, self.one_by_one(body, done, end)]
        left = _held(self.ranges.simplify(end - done), f"{self.var.name}_left", out)
        last = in_lanes(body, self.var, done, self.lanes, left)
        return [*out, tir.IfThenElse(left > self._const(0), last, None, span=self.span)]

    def one_by_one(self, body: Any, begin: Any, end: Any) -> Any:
        step = tir.Var(self.var.name, self.var.ty)
        begin, end = as_type(begin, str(self.var.ty)), as_type(end, str(self.var.ty))
        count = self.ranges.simplify(end - begin)
        body = renewed(substitute(body, {self.var: _plus(begin, step)}))
        return tir.For(step, self._const(0), count, tir.ForKind.SERIAL, body, span=self.span)


def _plus(base: Any, offset: Any) -> Any:
    return offset if tile_ir.static(base) == 0 else base + offset
