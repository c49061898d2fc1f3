"""The order in which blocks that stay take the tiles of a grid; the bytes that neighbours ask of the L2 cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.simt.operators.nests import int32, is_global
from tile_compiler.simt.rasterize_grid import Panels, rasterized
from tile_compiler.simt.thread_values import ThreadValues, Unknown
from tilelang import ops
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ir.tile_work import value_of

PANELS = (8, 16)  # rows of a panel that are tried beside the grid's own order
WORTH = 0.9  # an order is taken if it asks for at most this share of the bytes


def coordinates(number: Any, extents: Sequence[Any], panels: Panels | None) -> list[Any]:
    """The block, x first, that tile `number` of a grid is: x runs fastest, or panel by panel (`rasterize_grid`).

    The last coordinate is kept inside of the grid by a minimum that no number of a tile needs: with it, accesses are proven
    in bounds as those of the grid's own blocks are.
    """
    found = []
    for extent in extents[:-1]:
        found.append(tir.floormod(number, extent))
        number = tir.floordiv(number, extent)
    found.append(tir.min(number, extents[-1] - 1))
    if panels is not None and len(extents) > 1:
        found[:2] = rasterized(found[0], found[1], extents[0], extents[1], panels)
    return found


def best_panels(kernel: tile_ir.Kernel, flying: int, typical: int) -> tuple[Panels | None, dict[int, int]]:
    """The order with the fewest bytes for `flying` tiles that are computed at the same time, and those bytes by the rows of
    its panels (0: the grid's own order). None and nothing where they cannot be told. What is not known of a grid's extents
    counts as `typical`."""
    extents = [_typical(extent, typical) for _, extent in kernel.grid]
    if len(extents) < 2:
        return None, {}
    wanted = {0: None, **{n: Panels(n, "row") for n in PANELS if n < extents[1]}}
    try:
        asked = {rows: bytes_asked(kernel, extents, flying, panels) for rows, panels in wanted.items()}
    except Unknown:
        return None, {}
    best = min(asked, key=lambda rows: (asked[rows], rows))
    return (wanted[best] if asked[best] <= WORTH * asked[0] else None), asked


def bytes_asked(kernel: tile_ir.Kernel, extents: Sequence[int], flying: int, panels: Panels | None) -> int:
    """The bytes of the different tiles that the first steps of `flying` neighbours in the middle of the order copy.

    Raises Unknown where memory decides which tiles these are.
    """
    first = (math.prod(extents) - flying) // 2 // flying * flying
    values, number = ThreadValues(flying), tir.Var("number", "int32")
    values.values[number] = first + np.arange(flying)
    for (var, _), value in zip(kernel.grid, coordinates(number, [int32(e) for e in extents], panels)):
        values.values[var] = values.value(value)
    return _different_bytes(kernel, values)


def _typical(extent: Any, size: int) -> int:
    """An extent of a grid where variables have that size; 1 where that says nothing."""
    return value_of(extent, dict.fromkeys(tile_ir.walk(extent, ir.Var), size)) or 1


def bytes_shared(kernel: tile_ir.Kernel, axis: int) -> tuple[int, int]:
    """(bytes that a block's first step copies, how many of them its neighbour along an axis of the grid copies too).

    Raises Unknown where sizes that are not known, or memory, decide which tiles these are.
    """
    alone, both = ThreadValues(1), ThreadValues(2)
    for n, (var, _) in enumerate(kernel.grid):
        alone.values[var] = np.zeros(1, np.int64)
        both.values[var] = np.arange(2) if n == axis else np.zeros(1, np.int64)
    one = _different_bytes(kernel, alone)
    return one, 2 * one - _different_bytes(kernel, both)


def _different_bytes(kernel: tile_ir.Kernel, values: ThreadValues) -> int:
    """The bytes that the first steps of pipelined loops copy, those of equal tiles once."""
    total = 0
    for copy in _copies(kernel.body, values):
        places = [np.broadcast_to(values.value(low), (values.threads,)) for low in tile_ir.mins(copy.src)]
        different = len(np.unique(np.stack(places), axis=1).T)
        elements = math.prod(tile_ir.static(e) or 1 for e in tile_ir.extents(copy.src))
        total += different * elements * dtype_of(tile_ir.dtype_name(copy.src.source)).bits // 8
    return total


def _copies(node: Any, values: ThreadValues, inside: bool = False) -> Iterator[ops.Copy]:
    """The copies from global memory in pipelined loops; on the way values and first iterations are noted in `values`."""
    for stmt in tile_ir.statements(node):
        if isinstance(stmt, tir.Bind):
            try:
                values.values[stmt.var] = values.value(stmt.value)
            except Unknown as unknown:
                values.values[stmt.var] = unknown
        elif isinstance(stmt, tir.For):
            values.values[stmt.loop_var] = np.asarray([0])
            yield from _copies(stmt.body, values, inside or is_pipelined(stmt))
        elif isinstance(stmt, tir.IfThenElse):
            yield from _copies(stmt.then_case, values, inside)
        elif isinstance(stmt, tir.AttrStmt):
            yield from _copies(stmt.body, values, inside)
        elif inside:
            op = ops.operator_of(stmt)
            if isinstance(op, ops.Copy) and is_global(op.src.source):
                yield op


def is_pipelined(node: Any) -> bool:
    """Whether a statement is a loop of `T.Pipelined` with stages."""
    notes = node.annotations or {} if isinstance(node, tir.For) else {}
    return bool(tile_ir.PIPELINED in notes and int(tile_ir.plain(notes[tile_ir.PIPELINED])))
