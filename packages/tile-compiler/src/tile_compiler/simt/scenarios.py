"""Which dynamic sizes and which blocks of a grid the checker looks at."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import depends
from tile_compiler.ranges import is_integer, shape_variables
from tile_compiler.simt.deciding import deciding
from tile_compiler.simt.thread_values import ThreadValues, Unknown
from tilelang.ir import tile_ir

MANY_TRIPS = 200
LIMIT = 24  # walks of one kernel
LONG = 160  # iterations that walks of one kernel have together, if some combinations of decisions are left out anyway
COMBINATIONS = 20_000  # of sizes and coordinates that are looked at for what they decide
ENOUGH = (
    16  # iterations of all loops, inner ones anew each time, that sizes and coordinates which are drawn should lead to
)


def scenarios(
    func: tir.PrimFunc, kernel: tile_ir.Kernel, tracked: Collection[Any], multiples: Mapping[Any, int]
) -> tuple[list[dict[Any, Any]], bool]:
    """(values of dynamic sizes and block coordinates, whether they are all that matter).

    `multiples`: sizes that every call has in multiples of a number. For others the kernel has no predicates: a row that ended
    inside a tile would seem to reach into the next one, and the rest of the tile would not be looked at.

    Sizes and coordinates decide how often loops run and which branches are taken. Of all their values (small ones,
    those around multiples of the constants that the kernel computes with, a large one) one is kept for each
    combination of decisions that they lead to, where all trip counts from 0 to twice the number of versions count as
    different, and all larger ones as equal: more iterations repeat what was seen (`repetition.py`). Where a condition only adds
    accesses, those are kept in which it holds. Of loops around such
    ones, as that of blocks that stay, those up to one more than the number of versions: their turns are all walked, and
    many turns begin as few do. Where combinations of values are drawn, it is one with few iterations.
    """
    free = _free(func)
    unknown = {v: Unknown(False) for v in free if not is_integer(v)}
    decisive = deciding(kernel, tracked)
    host = [s for s in tile_ir.statements(func.body) if isinstance(s, tir.Bind)]
    needed = _needed([*decisive.ways, *decisive.guards], [*host, *(n for n in tile_ir.walk(kernel.body, tir.Bind))])
    sizes = [v for v in free if v in needed and v not in unknown]
    blocks = [(v, e) for v, e in kernel.grid if v in needed]
    fixed: dict[Any, Any] = {
        v: np.asarray([_next_multiple(MANY_TRIPS, multiples.get(v, 1))]) for v in free if v not in sizes
    }
    fixed |= unknown
    fixed |= {v: np.asarray([0]) for v, _ in kernel.grid if v not in needed}
    if not sizes and not blocks:
        return [fixed], True
    trips = 2 * _versions(kernel) + 2
    choices = [_sizes(kernel, trips, multiples.get(v, 1)) for v in sizes]
    choices += [_coordinates(e, trips) for _, e in blocks]
    table = _combinations(choices)
    drawn = len(table) < math.prod(map(len, choices))
    values = ThreadValues(len(table))
    names = [*sizes, *(v for v, _ in blocks)]
    values.values = {**fixed, **{v: table[:, n] for n, v in enumerate(names)}}
    _bind(values, host)
    valid = np.ones(len(table), bool)
    for var, extent in blocks:
        valid &= np.broadcast_to(values.values[var] < _or(values, extent, MANY_TRIPS), valid.shape)
    _bind(values, list(tile_ir.walk(kernel.body, tir.Bind)))
    around = _extents_of_outer_loops(kernel)
    most = [trips // 2 if d in around else trips for d in decisive.ways]
    ways = _table([np.clip(_or(values, d, 0), -1, m) for d, m in zip(decisive.ways, most)], len(table))
    holds = _table([_or(values, d, 1) != 0 for d in decisive.guards], len(table))
    work = np.broadcast_to(_iterations(kernel.body, values), valid.shape)
    rows = np.flatnonzero(valid)
    if drawn:
        asked = work[rows]
        rows = rows[np.argsort(np.where(asked <= ENOUGH, ENOUGH - asked, asked), kind="stable")]
    first = _first(rows, ways, holds)
    chosen = sorted(first.values()) if len(first) <= LIMIT else _most_different(first, work)
    fixings = [{v: np.asarray([table[row, n]]) for n, v in enumerate(names)} for row in chosen]
    return [fixed | fixing for fixing in fixings], len(first) <= LIMIT


def _combinations(choices: list[list[int]]) -> np.ndarray[Any, Any]:
    """A value of each list in every row: all combinations, or as many as `COMBINATIONS` drawn from them."""
    count = math.prod(map(len, choices))
    if count <= COMBINATIONS:
        return np.stack(np.meshgrid(*choices, indexing="ij"), axis=-1).reshape(count, len(choices))
    drawn = np.random.default_rng(0)  # always the same ones
    return np.stack([drawn.choice(np.asarray(c, np.int64), COMBINATIONS) for c in choices], axis=1)


def _table(columns: list[Any], rows: int) -> np.ndarray[Any, Any]:
    """Columns side by side, of which some have one value for all rows."""
    if not columns:
        return np.zeros((rows, 0), np.int64)
    return np.stack([np.broadcast_to(column, (rows,)) for column in columns], axis=1).astype(np.int64)


def _first(
    rows: np.ndarray[Any, Any], ways: np.ndarray[Any, Any], holds: np.ndarray[Any, Any]
) -> dict[tuple[int, ...], int]:
    """The first row for each combination of ways; several where none has all guards hold that hold in any of them."""
    found: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    for row, way, held in zip(rows.tolist(), map(tuple, ways[rows].tolist()), map(tuple, holds[rows].tolist())):
        found.setdefault(way, {}).setdefault(held, row)
    first: dict[tuple[int, ...], int] = {}
    for way, each in found.items():
        kept: list[tuple[int, ...]] = []
        for held in sorted(each, key=sum, reverse=True):
            if not any(all(a <= b for a, b in zip(held, more)) for more in kept):
                kept.append(held)
                first[(*way, *held)] = each[held]
    return first


def _most_different(first: dict[tuple[int, ...], int], work: Any) -> list[int]:
    """At most `LIMIT` rows, in which every decision goes each of its ways if so many can show it; those that show no new way
    only while all walks together are not `LONG`."""
    rest = dict(first)
    chosen: list[int] = []
    missing = {(column, way) for ways in first for column, way in enumerate(ways)}

    def news(ways: tuple[int, ...]) -> int:
        return sum(pair in missing for pair in enumerate(ways))

    while rest and len(chosen) < LIMIT and (missing or work[chosen].sum() < LONG):
        showing = [ways for ways in rest if news(ways)] or list(rest)
        best = min(showing, key=lambda ways: work[rest[ways]]) if missing else showing[0]
        missing -= set(enumerate(best))
        chosen.append(rest.pop(best))
    return sorted(chosen)


def _free(func: tir.PrimFunc) -> list[Any]:
    """Dynamic dimensions and scalar parameters."""
    found = list(shape_variables(func))
    found += [p for p in func.params if isinstance(p, ir.Var) and not tile_ir.is_buffer(p) and p not in found]
    return found


def _extents_of_outer_loops(kernel: tile_ir.Kernel) -> set[Any]:
    """The trip counts of loops around loops whose trip counts are not known."""

    def counted(node: Any) -> Any:
        return (n for n in tile_ir.walk(node, tir.For) if tile_ir.static(n.extent) is None)

    return {n.extent for n in counted(kernel.body) if any(True for _ in counted(n.body))}


def _needed(expressions: list[Any], binds: list[Any]) -> set[Any]:
    """The variables that expressions depend on, through Binds."""
    values = {b.var: b.value for b in binds}
    found: set[Any] = set()
    work = list(expressions)
    while work:
        for n in tile_ir.walk(work.pop(), ir.Var):
            if n not in found:
                found.add(n)
                if n in values:
                    work.append(values[n])
    return found


def _versions(kernel: tile_ir.Kernel) -> int:
    """The largest number of versions that a pipelined tile can have."""
    serial = [n for n in tile_ir.walk(kernel.body, tir.For) if n.kind == tir.ForKind.SERIAL]
    turns = {n.loop_var for n in serial}
    found = [n for n in tile_ir.walk(kernel.body) if type(n).__name__ == "FloorMod" and isinstance(n.b, tir.IntImm)]
    return max((int(n.b.value) for n in found if 0 < n.b.value <= 8 and depends(n.a, turns)), default=1)


def _sizes(kernel: tile_ir.Kernel, trips: int, multiple: int) -> list[int]:
    """Multiples of `multiple`: those next to whole numbers of the kernel's constants, and the first ones."""
    constants = {int(n.value) for n in tile_ir.walk(kernel.body, tir.IntImm) if 1 < n.value <= 512}
    widest = sorted(c for c in constants if c & (c - 1) == 0)[-4:] or [1]
    found = {0, 1, MANY_TRIPS, *(c * t + e for c in widest for t in range(trips + 1) for e in (0, 1))}
    return sorted({_next_multiple(size, multiple) for size in found} | {t * multiple for t in range(trips + 1)})


def _next_multiple(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _coordinates(extent: Any, trips: int) -> list[int]:
    size = tile_ir.static(extent)
    if size is None:
        return [*range(trips + 1), MANY_TRIPS - 1]
    return sorted({*range(min(size, trips + 1)), size - 1} - {-1})


def _iterations(node: Any, values: ThreadValues) -> Any:
    """How many iterations of loops whose trip counts sizes decide a walk has, where inner loops run as in their first one."""
    if isinstance(node, tir.SeqStmt):
        return sum((_iterations(part, values) for part in node.seq), np.zeros(1, np.int64))
    if isinstance(node, tir.IfThenElse):
        return sum(_iterations(part, values) for part in (node.then_case, node.else_case) if part is not None)
    if isinstance(node, (tir.AttrStmt, tir.While)):
        return _iterations(node.body, values)
    if not isinstance(node, tir.For):
        return np.zeros(1, np.int64)
    values.values[node.loop_var] = np.zeros(1, np.int64)
    _bind(values, [stmt for stmt in tile_ir.statements(node.body) if isinstance(stmt, tir.Bind)])
    inner = _iterations(node.body, values)
    return (
        inner if tile_ir.static(node.extent) is not None else np.maximum(_or(values, node.extent, 1), 0) * (inner + 1)
    )


def _bind(values: ThreadValues, binds: list[Any]) -> None:
    for stmt in binds:
        try:
            values.values[stmt.var] = values.value(stmt.value)
        except Unknown as unknown:
            values.values[stmt.var] = unknown


def _or(values: ThreadValues, node: Any, otherwise: int) -> Any:
    try:
        return values.value(node)
    except Unknown:
        return np.asarray([otherwise])
