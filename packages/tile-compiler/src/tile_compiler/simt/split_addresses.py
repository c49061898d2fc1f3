"""Take swizzled addresses apart into what a thread computes once and what the loops of an operator add to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import Rewriter, map_kernels
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.lower_operators import ORIGIN
from tile_compiler.simt.operators.nests import int32, is_shared
from tile_compiler.simt.terms import Ints, from_tir, names
from tilelang.ir import tile_ir
from tilelang.layout import placeholders

LARGEST = 1 << 16  # iterations of loops around one access that are looked at
#: Iterations above which a term that goes beyond the period is taken apart: fewer places are better computed where they are used
#: (tf32 on gfx942 took 214 registers instead of 192), 288 were all computed before the loop around them, and spilled.
MANY = 64


def split_addresses(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Swizzled places in shared memory: the thread's part once, before the operator's loops.

    before:     for ki, j in T.unroll(2, 4):  ldmatrix(s[p ^ (p >> 3 & 24)])      p = stage * 4096 + j * 512 + ki * 16 + row(tx)
    after:      s_place = row(tx); s_at = s_place ^ (s_place >> 3 & 24)
                for ki, j in T.unroll(2, 4):  ldmatrix(s[(s_at ^ ki * 16) + stage * 4096 + j * 512])

    With swizzle(p) = p ^ (p >> shift & mask), which is linear over XOR: swizzle(p + x) = swizzle(p) ^ swizzle(x) where p
    and x have no bit in common, and swizzle(p + h) = swizzle(p) + h where h is a multiple of the period, the power of
    two above all bits that the swizzle reads. Both are checked over all threads and iterations; a place that cannot be
    taken apart so stays as it is. Loops that are not unrolled count too, where their number of iterations is known.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        body = _Split(_thread_values(kernel)).body(kernel.body)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


def _thread_values(kernel: tile_ir.Kernel) -> dict[Any, Ints]:
    """The value of each thread index in each thread, and of what a kernel computes from them alone at its start."""
    extents = [tile_ir.static(extent) or 1 for _, extent in kernel.threads]
    grid = np.indices(extents[::-1])[::-1].reshape(len(extents), -1)
    values: dict[Any, Ints] = {var: column for (var, _), column in zip(kernel.threads, grid)}
    for stmt in tile_ir.statements(kernel.body):
        if not isinstance(stmt, tir.Bind):
            break
        found = _evaluated(stmt.value, values)
        if found is not None:
            values[stmt.var] = found
    return values


def _evaluated(value: Any, values: Mapping[Any, Ints]) -> Ints | None:
    """An integer expression over variables of known values; None if it mentions anything else."""
    symbols = placeholders(len(values))
    expr = from_tir(value, dict(zip(values, symbols)))
    if expr is None:
        return None
    return np.asarray(expr.evaluate(dict(zip(names(len(values)), values.values()))), np.int64)


@dataclass(frozen=True)
class Swizzled:
    """`place ^ (place >> shift & mask)`."""

    place: Any
    shift: int
    mask: int

    @property
    def period(self) -> int:
        """The power of two above all bits that the swizzle reads or changes."""
        return 1 << max(self.mask << self.shift, self.mask).bit_length()

    def of(self, place: Any) -> Any:
        return place ^ ((place >> self.shift) & self.mask)

    @classmethod
    def match(cls, index: Any) -> Swizzled | None:
        if not isinstance(index, ir.prim.BitwiseXor):
            return None
        for place, change in ((index.a, index.b), (index.b, index.a)):
            if not isinstance(change, ir.prim.BitwiseAnd) or not isinstance(change.a, ir.prim.RShift):
                continue
            shift, mask = tile_ir.static(change.a.b), tile_ir.static(change.b)
            if shift is not None and mask is not None and tvm_ffi.structural_equal(change.a.a, place):
                return cls(place, shift, mask)
        return None


@dataclass(frozen=True)
class _Parts:
    """A place as a sum: of the thread, of the loops below the period, multiples of the period."""

    thread: list[Any]
    below: list[Any]
    multiples: list[Any]


class _Split(Rewriter):
    def __init__(self, threads: dict[Any, Ints]) -> None:
        self.threads = threads
        self.iterations: dict[Any, int] = {}
        self.binds: list[tir.Bind] | None = None
        self.known: list[tuple[Swizzled, Any]] = []

    def attribute(self, node: tir.AttrStmt) -> Any:
        if str(node.attr_key) != ORIGIN or self.binds is not None:
            return super().attribute(node)
        self.binds, self.known = [], []
        body = self.body(node.body)
        whole = tile_ir.sequence([*self.binds, *tile_ir.statements(body)])
        self.binds = None
        return tir.AttrStmt(node.node, node.attr_key, node.value, whole, span=node.span)

    def loop(self, node: tir.For) -> Any:
        low, size = tile_ir.static(node.min), tile_ir.static(node.extent)
        if self.binds is None or low != 0 or size is None:
            return super().loop(node)
        self.iterations[node.loop_var] = size
        done = super().loop(node)
        del self.iterations[node.loop_var]
        return done

    def expr(self, node: Any) -> Any:
        return tile_ir.map_nodes(node, (ir.TensorLoad, self._load))

    def _load(self, node: Any) -> Any:
        if self.binds is None or not is_shared(node.source):
            return node
        return tir.BufferLoad(node.source, [self._index(node.source, i) for i in node.indices])

    def store(self, node: tir.BufferStore) -> Any:
        if self.binds is None or not is_shared(node.buffer):
            return super().store(node)
        indices = [self._index(node.buffer, i) for i in node.indices]
        return tir.BufferStore(node.buffer, self.expr(node.value), indices, span=node.span)

    def _index(self, buffer: Any, index: Any) -> Any:
        if isinstance(index, ir.prim.Ramp):
            return tir.Ramp(self._index(buffer, index.base), index.stride, index.lanes)
        found = Swizzled.match(index)
        parts = None if found is None else self._parts(found)
        if found is None or parts is None:
            return index
        own = Swizzled(_sum(parts.thread), found.shift, found.mask)
        at = self._thread_part(buffer, own)
        if parts.below:
            below = _sum(parts.below)
            touches = int(np.bitwise_or.reduce(self._values(below).ravel())) & (found.mask << found.shift)
            at = self._joined(at, own, found.of(below) if touches else below)
        return at + _sum(parts.multiples) if parts.multiples else at

    def _joined(self, at: Any, own: Swizzled, below: Any) -> Any:
        """at ^ below. Bits that no thread has in `at` are added: constants that instructions add to an address."""
        places = _evaluated(own.place, self.threads)
        assert places is not None
        taken = int(np.bitwise_or.reduce(np.atleast_1d(places ^ ((places >> own.shift) & own.mask))))
        bits = int(np.bitwise_or.reduce(self._values(below).ravel()))
        if not bits & taken:
            return at + below
        if not bits & ~taken:
            return at ^ below
        return (at ^ (below & int32(bits & taken))) + (below & int32(bits & ~taken))

    def _parts(self, found: Swizzled) -> _Parts | None:
        """The place taken apart; None if that is not possible, or nothing is gained."""
        parts = _Parts([], [], [])
        for term in _terms(found.place):
            number = tile_ir.static(term)
            if number is not None:
                high = number // found.period * found.period
                parts.multiples.extend([int32(high)] if high else [])
                parts.below.extend([int32(number - high)] if number != high else [])
            elif _evaluated(term, self.threads) is not None:
                parts.thread.append(term)
            elif self._is_multiple(term, found.period):
                parts.multiples.append(term)
            elif _evaluated(term, self._corners()) is not None:
                below, multiple = self._at_period(term, found.period)
                parts.below.append(below)
                parts.multiples.extend([] if multiple is None else [multiple])
            else:
                return None
        if not parts.thread or not (parts.below or parts.multiples) or not self._apart(parts, found.period):
            return None
        return parts

    def _apart(self, parts: _Parts, period: int) -> bool:
        """Whether the thread's part and each part below the period have no bits in common, so that + is XOR."""
        thread = _evaluated(_sum(parts.thread), self.threads)
        assert thread is not None
        taken = int(np.bitwise_or.reduce(np.atleast_1d(thread) & (period - 1)))
        if int(thread.min()) < 0:
            return False
        for term in parts.below:
            values = self._values(term)
            bits = int(np.bitwise_or.reduce(values.ravel()))
            if values.min() < 0 or values.max() >= period or bits & taken:
                return False
            taken |= bits
        return True

    def _at_period(self, term: Any, period: int) -> tuple[Any, Any | None]:
        """A term of the loops as one below the period and, where it goes beyond and they have many iterations, a multiple of
        it."""
        values = self._values(term)
        if values.min() < 0 or values.max() < period or np.prod(list(self.iterations.values())) <= MANY:
            return term, None
        return term & int32(period - 1), term & int32(-period)

    def _is_multiple(self, term: Any, period: int) -> bool:
        if isinstance(term, ir.prim.Mul):
            factor = tile_ir.static(term.b)
            if factor is not None and factor % period == 0:
                return True
        if _evaluated(term, self._corners()) is None:
            return False
        return not (self._values(term) % period).any()

    def _corners(self) -> dict[Any, Ints]:
        return {var: np.zeros(1, np.int64) for var in self.iterations}

    def _values(self, value: Any) -> Ints:
        """An expression of the loops' variables over all of their iterations."""
        used = set(tile_ir.walk(tir.Evaluate(value), ir.Var))
        extents = {var: size for var, size in self.iterations.items() if var in used}
        if np.prod(list(extents.values()), initial=1) > LARGEST:
            return np.array([-1])
        grid = np.indices(list(extents.values())) if extents else np.zeros((0, 1), np.int64)
        found = _evaluated(value, dict(zip(extents, grid)))
        assert found is not None
        return np.atleast_1d(found)

    def _thread_part(self, buffer: Any, found: Swizzled) -> Any:
        """The variable that holds the swizzled place of the thread, computed once for the operator."""
        for other, var in self.known:
            same = (other.shift, other.mask) == (found.shift, found.mask)
            if same and tvm_ffi.structural_equal(other.place, found.place):
                return var
        assert self.binds is not None
        place = found.place
        if not isinstance(place, ir.Var):
            place = tir.Var(f"{buffer.name}_place", "int32")
            self.binds.append(tir.Bind(place, found.place))
        var = tir.Var(f"{buffer.name}_at", "int32")
        self.binds.append(tir.Bind(var, found.of(place)))
        self.known.append((found, var))
        return var


def _terms(value: Any) -> list[Any]:
    """The terms of a sum."""
    if isinstance(value, ir.prim.Add):
        return [*_terms(value.a), *_terms(value.b)]
    return [value]


def _sum(terms: Sequence[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
