"""Which dynamic sizes and which blocks of a grid the checker looks at."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx as tir

from tile_compiler.simt.candidates import (
    COMBINATIONS,
    combinations,
    coordinates,
    next_multiple,
    sizes_of,
    turning_points,
)
from tile_compiler.simt.decisions import Decisions, Table
from tilelang.ir import tile_ir

LIMIT = 24  # walks of one kernel
LONG = 160  # iterations that walks of one kernel have together, if some combinations of decisions are left out anyway
ENOUGH = (
    16  # iterations of all loops, inner ones anew each time, that sizes and coordinates which are drawn should lead to
)


def scenarios(
    func: tir.PrimFunc,
    kernel: tile_ir.Kernel,
    tracked: Collection[Any],
    multiples: Mapping[Any, int],
    bounds: Sequence[Any] = (),
) -> tuple[list[dict[Any, Any]], bool]:
    """(values of dynamic sizes and block coordinates, whether they are all that matter).

    `multiples`: sizes that every call has in multiples of a number. For others the kernel has no predicates: a row that ended
    inside a tile would seem to reach into the next one, and the rest of the tile would not be looked at. `bounds`: conditions
    on sizes that hold in every call.

    Sizes and coordinates decide how often loops run and which branches are taken. Of all their values (small ones, those
    around multiples of the constants that the kernel computes with, those next to which a decision changes, a large one) one
    is kept for each combination of decisions that they lead to, where all trip counts from 0 to twice the number of versions
    count as different, and all larger ones as equal: more iterations repeat what was seen (`repetition.py`). Of loops around
    such ones, as that of blocks that stay, those up to one more than the number of versions: their turns are all walked, and
    many turns begin as few do. Where a condition only adds accesses, those are kept in which it holds.

    Of those with equal decisions it is one with few iterations; and of these, unless they are drawn, that with the largest
    sizes, which cut no tile: what a tile that is cut touches, a whole one touches too.
    """
    decisions = Decisions(func, kernel, tracked, multiples, bounds)
    names = [*decisions.sizes, *decisions.blocks]
    if not names:
        return [decisions.fixed], True
    coordinate = [coordinates(extent, decisions.trips) for extent in decisions.blocks.values()]
    usual = [sizes_of(kernel, decisions.trips, decisions.multiple(size)) for size in decisions.sizes]
    many = math.prod(map(len, [*usual, *coordinate])) > COMBINATIONS
    choices = [_candidates(decisions, size, found, many) for size, found in zip(decisions.sizes, usual)] + coordinate
    table = combinations(choices)
    drawn = len(table) < math.prod(map(len, choices))
    outcomes = decisions.of({v: table[:, n] for n, v in enumerate(names)})
    work, rows = outcomes.work, np.flatnonzero(outcomes.valid & outcomes.bounds.all(axis=1))
    met = len(rows) > 0  # some values are as assumed; if not, none is left out
    rows = rows if met else np.flatnonzero(outcomes.valid)
    rows = rows if len(rows) else np.arange(len(table))  # a grid that has blocks with other sizes
    asked = np.where(work <= ENOUGH, ENOUGH - work, work)[rows] if drawn else work[rows]
    extent = -np.log1p(table[rows, : len(decisions.sizes)]).sum(axis=1)
    # Where values are drawn, work that is not counted, as of loops that a local array bounds, would be as large as can be.
    rows = rows[np.argsort(asked, kind="stable") if drawn else np.lexsort((extent, asked))]
    first = _first(rows, outcomes.ways, outcomes.holds)
    chosen = sorted(first.values()) if len(first) <= LIMIT else _most_different(first, work)
    fixings = [{v: np.asarray([table[row, n]]) for n, v in enumerate(names)} for row in chosen]
    return [decisions.fixed | fixing for fixing in fixings], met and len(first) <= LIMIT


def _candidates(decisions: Decisions, size: Any, usual: list[int], many: bool) -> list[int]:
    """Values of a size: the `usual` ones, and those next to which it decides otherwise, be the other sizes large or small. Of
    `many` combinations some are drawn, and nothing is added that is larger than the usual ones: loops would be long."""
    multiple = decisions.multiple(size)
    others = {
        v: (m if many else next_multiple(decisions.largest[v], m), m)
        for v in decisions.sizes
        if (m := decisions.multiple(v)) and v is not size
    }
    first = dict.fromkeys(decisions.blocks, np.zeros(1, np.int64))

    def levels(values: Table) -> Table:
        both = {v: np.repeat(pair, len(values)) for v, pair in others.items()}
        found = decisions.of({size: np.tile(values, 2), **both, **first}, probing=True).levels
        return np.concatenate([found[: len(values)], found[len(values) :]], axis=1)

    found = {*usual, *turning_points(levels, multiple)}
    largest = next_multiple(decisions.largest[size], multiple)
    if size in decisions.decisive.counting:
        found = {value for value in found if value < largest}
    found = {value for value in found if value <= max(usual)} if many else {*found, largest}
    values = np.asarray(sorted(found))
    kept = values[decisions.within_bounds(size, values)]
    return (kept if len(kept) else values).tolist()


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
                first[way + held] = each[held]
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
