"""The place where a tile operator is lowered: what is known there, and how to make loops and temporaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx as tir

from tile_compiler.context import Ahead, CompileContext
from tile_compiler.loops.conditions import same
from tile_compiler.passes.bounds import Guard
from tile_compiler.passes.filled_tiles import FilledTiles, Limits, limits
from tile_compiler.passes.staying_tiles import Stays
from tile_compiler.ranges import Ranges
from tilelang.ir import tile_ir


@dataclass
class Site:
    """One tile operator's surroundings. `roots` maps an alias to the buffer whose storage it shares, `ahead` an on-chip
    buffer to what the next round of the loop around will copy into it; `filled` knows which tiles end in zeros; `stays`: where a
    product's right operand stays for all rounds of the loop around."""

    ranges: Ranges
    ctx: CompileContext
    kernel: tile_ir.Kernel
    safe: dict[Any, Any]
    roots: dict[Any, Any]
    filled: FilledTiles
    ahead: dict[Any, Ahead] = field(default_factory=dict)
    stays: Stays | None = None
    span: Any = None
    temporaries: list[Any] = field(default_factory=list)

    def temporary(self, shape: Sequence[Any], dtype: str, name: str, scope: str = "local.fragment") -> Any:
        """A new on-chip buffer, allocated before the operator."""
        buffer = tir.decl_buffer(list(shape), dtype, name=name, scope=scope, layout=None)
        self.temporaries.append(tir.AllocBuffer(buffer))
        return buffer

    def nest(self, extents: Sequence[Any], names: str, make: Callable[[list[Any]], Any]) -> Any:
        """A parallel nest over `extents`; `make` gives its body from the loop variables. Accesses are guarded."""
        loop_vars = tuple(tir.Var(n, _dtype(e)) for n, e in zip(_names(names, len(extents)), extents))
        body = make(list(loop_vars))
        if not loop_vars:
            return self.guarded(body)
        sizes = tuple(tir.const(e, "int32") if isinstance(e, int) else e for e in extents)
        return self.guarded(tile_ir.ParallelNest(loop_vars, sizes, body, {}, self.span).to_stmt())

    def guarded(self, stmt: Any) -> Any:
        return Guard(self.ranges, self.safe).body(stmt)

    def root(self, buffer: Any) -> Any:
        return self.roots.get(buffer, buffer)

    def share_storage(self, a: Any, b: Any) -> bool:
        """Whether two regions lie in one buffer's storage."""
        return bool(self.root(a.source).same_as(self.root(b.source)))

    def same_region(self, a: Any, b: Any) -> bool:
        if not a.source.same_as(b.source):
            return False
        return all(same(x.min, y.min) and same(x.extent, y.extent) for x, y in zip(a.region, b.region))

    def limits(self, region: Any) -> Limits:
        """From which element on a region reads as zeros, for each dimension, or None."""
        if self.on_chip(region):
            return self.filled.limits(region)
        return (None,) * len(region.region) if region.source in self.safe else limits(region, self.ranges)

    def on_chip(self, region: Any) -> bool:
        return str(region.source.scope()) not in tile_ir.GLOBAL


def at(region: Any, moving: dict[int, Any]) -> list[Any]:
    """The indices of an element of a region: `moving` gives the offset inside some dimensions, the rest is 0."""
    return [plus(r.min, moving[d]) if d in moving else r.min for d, r in enumerate(region.region)]


def plus(a: Any, b: Any) -> Any:
    if tile_ir.static(a) == 0:
        return b
    return a if tile_ir.static(b) == 0 else a + b


def cast(value: Any, dtype: str) -> Any:
    """`value` converted to `dtype`."""
    return value if str(value.ty) == dtype else tir.Cast(dtype, value)


def element_type(region: Any) -> str:
    return tile_ir.dtype_name(region.source)


def int32(value: int) -> Any:
    return tir.const(value, "int32")


def serial(name: str, extent: Any, make: Callable[[Any], Any], span: Any = None) -> Any:
    """`for name in extent: make(name)`; for one iteration the body alone."""
    if tile_ir.static(extent) == 1:
        return make(int32(0))
    var = tir.Var(name, _dtype(extent))
    body = make(var)
    low = tir.const(0, _dtype(extent))
    return tir.For(var, low, int32(extent) if isinstance(extent, int) else extent, tir.ForKind.SERIAL, body, span=span)


def vector(name: str, lanes: int, make: Callable[[Any], Any], span: Any = None) -> Any:
    """`for name in vectorized(lanes): make(name)`; for one lane the body alone."""
    if lanes == 1:
        return make(int32(0))
    var = tir.Var(name, "int32")
    return tir.For(var, int32(0), int32(lanes), tir.ForKind.VECTORIZED, make(var), span=span)


def _dtype(extent: Any) -> str:
    return "int32" if isinstance(extent, int) else str(extent.ty)


def _names(names: str, count: int) -> list[str]:
    return list(names[:count]) if count <= len(names) else [f"{names[0]}{d}" for d in range(count)]
