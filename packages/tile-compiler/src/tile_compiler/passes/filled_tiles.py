"""Tiles that a copy filled up with zeros where they leave a tensor: which part of one is the tensor's."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tvm import ir
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.ranges import Ranges
from tile_compiler.rewrite import is_call
from tilelang import ops
from tilelang.ir import tile_ir

Limits = tuple[Any, ...]
"""For each dimension of a region: from which element on it is outside its tensor, int64, or None where it provably is not."""


def limits(region: Any, ranges: Ranges) -> Limits:
    """Of a tensor's region."""

    def limit(r: Any, size: Any) -> Any:
        if ranges.below(r.min + r.extent - 1, size):
            return None
        left = prim.Cast("int64", size) - prim.Cast("int64", r.min)
        return tir.max(tir.min(left, prim.Cast("int64", r.extent)), tir.const(0, "int64"))

    return tuple(limit(r, size) for r, size in zip(region.region, region.source.ty.shape))


def written_once(body: Any, roots: dict[Any, Any]) -> set[Any]:
    """Buffers that a single statement of a kernel writes, and no alias or address of theirs does."""
    writers: Counter[Any] = Counter()
    aliased = set(roots) | set(roots.values())
    for node in tile_ir.walk(body):
        if isinstance(node, tir.BufferStore):
            writers[node.buffer] += 1
        elif isinstance(node, tir.Evaluate) and (call := tile_ir.tile_call(node)) is not None:
            if str(call.op.name) in ops.OPERATORS:
                writers.update(region.source for region in ops.parse(call).writes())
        elif is_call(node, "tirx.address_of", "tirx.buffer_data", "tvm_access_ptr"):
            named = node.args[0].source if isinstance(node.args[0], ir.TensorLoad) else node.args[0]
            writers[named] += 2  # who has an address may write
    return {buffer for buffer, count in writers.items() if count == 1 and buffer not in aliased}


class FilledTiles:
    """What is known where a statement runs of the tiles that copies before it made, and that nothing else writes."""

    def __init__(self, body: Any, roots: dict[Any, Any], safe: dict[Any, Any]) -> None:
        self._once, self._safe = written_once(body, roots), safe
        self._known: dict[Any, tuple[Any, Limits]] = {}

    def enter(self) -> dict[Any, tuple[Any, Limits]]:
        """A scope begins; give what this returns to `leave` at its end."""
        return dict(self._known)

    def leave(self, entered: dict[Any, tuple[Any, Limits]]) -> None:
        self._known = entered

    def copied(self, op: Any, ranges: Ranges) -> None:
        """A copy runs here, once for each time that its scope does."""
        tensor = str(op.src.source.scope()) in tile_ir.GLOBAL and op.src.source not in self._safe
        if not tensor or op.dst.source not in self._once:
            return
        of_source = limits(op.src, ranges)
        held: list[Any] = [None] * len(op.dst.region)
        for _, source, target in op.tile_axes():
            held[target] = of_source[source]
        self._known[op.dst.source] = (op.dst, tuple(held))

    def limits(self, region: Any) -> Limits:
        """Of a tile on chip: from which element on it holds zeros."""
        known = self._known.get(region.source)
        if known is None or not _same_region(known[0], region):
            return (None,) * len(region.region)
        return known[1]


def _same_region(a: Any, b: Any) -> bool:
    pairs = [(x, y) for r, s in zip(a.region, b.region) for x, y in ((r.min, s.min), (r.extent, s.extent))]
    return all((n := tile_ir.static(x)) is not None and n == tile_ir.static(y) for x, y in pairs)
