"""What values of sizes and block coordinates decide, for many of them at once."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import depends
from tile_compiler.ranges import is_integer, shape_variables
from tile_compiler.simt.candidates import LARGE, MANY_TRIPS, next_multiple
from tile_compiler.simt.deciding import deciding
from tile_compiler.simt.thread_values import ThreadValues, Unknown
from tilelang.ir import tile_ir

Table = npt.NDArray[Any]


@dataclass(frozen=True)
class Outcomes:
    """Of each row of values: the `ways` that they lead to, which guards hold, the extents of the grid, whether the block lies in
    it, which assumed bounds they keep, and how many iterations a walk has."""

    ways: Table
    holds: Table
    grid: Table
    valid: Table
    bounds: Table
    work: Table

    @property
    def levels(self) -> Table:
        """All that is decided, in small integers."""
        return np.concatenate([self.ways, self.holds, self.grid, self.bounds], axis=1)


class Decisions:
    """Which `sizes` and coordinates of `blocks` (with their extents) a kernel's walk depends on; what it takes for the others is
    `fixed`. All trip counts from `trips` on count as equal."""

    def __init__(
        self,
        func: tir.PrimFunc,
        kernel: tile_ir.Kernel,
        tracked: Collection[Any],
        multiples: Mapping[Any, int],
        bounds: Sequence[Any],
    ) -> None:
        self.kernel, self.multiples = kernel, multiples
        free = _free(func)
        # Only tensors have ends that cut tiles; what the caller passes beside them may be how often something is done.
        large = dict.fromkeys(free, MANY_TRIPS) | dict.fromkeys(shape_variables(func), _large(func))
        host = [s for s in tile_ir.statements(func.body) if isinstance(s, tir.Bind)]
        known: dict[Any, Any] = {
            v: np.asarray([next_multiple(large[v], self.multiple(v))]) if is_integer(v) else Unknown(False)
            for v in free
        }
        first = {v: np.asarray([0]) for v, _ in kernel.grid}
        self.decisive = deciding(kernel, tracked, known | first, host)
        binds = [*host, *tile_ir.walk(kernel.body, tir.Bind)]
        threads = math.prod(int(extent) for _, extent in kernel.threads)
        beside = [v for v in free if v in self.decisive.beside - _needed(self.decisive.ways, binds)]
        self.decisive.ways += [v < tir.const(threads, str(v.ty)) for v in beside]
        self.trips = 2 * _versions(kernel) + 2
        around = _extents_of_outer_loops(kernel)
        self.most = [self.trips // 2 if d in around else self.trips for d in self.decisive.ways]
        self.binds = binds
        needed = _needed([*self.decisive.ways, *self.decisive.guards], self.binds) | self.decisive.counting
        self.values = ThreadValues(1)
        self.values.values = dict(known)
        named = [(bound, _needed([bound], [])) for bound in bounds]
        said = [(bound, of) for bound, of in named if of & needed or not np.all(_or(self.values, bound, 0))]
        self.bounds = [bound for bound, _ in said]
        self.single = [(of, bound) for bound, of in said if len(of) == 1]
        needed = needed.union(*(of for _, of in said))
        self.blocks = {v: e for v, e in kernel.grid if v in needed}
        of_grid = _needed(list(self.blocks.values()), host)
        needed |= of_grid
        repeating = self.decisive.counting | self.decisive.repeating | of_grid
        self.largest = {
            v: MANY_TRIPS if v in repeating else large[v] for v in free
        }  # loops shall not be longer than need be
        self.needed_binds = [s for s in self.binds if s.var in needed]
        self.sizes = [v for v in free if v in needed and is_integer(v)]
        self.fixed = {v: value for v, value in known.items() if v not in self.sizes}
        self.fixed |= {v: value for v, value in first.items() if v not in self.blocks}

    def multiple(self, size: Any) -> int:
        return self.multiples.get(size, 1)

    def within_bounds(self, size: Any, values: Table) -> Table:
        """Which values of a size keep what is assumed of it alone."""
        self.values.values = {size: values}
        kept = np.ones(len(values), bool)
        for of, bound in self.single:
            if size in of:
                kept &= np.broadcast_to(_or(self.values, bound, 1) != 0, kept.shape)
        return kept

    def of(self, chosen: Mapping[Any, Table], probing: bool = False) -> Outcomes:
        """What columns of values lead to; of the trip counts of loops nothing where the question is a `probing` one."""
        rows = max(len(column) for column in chosen.values())
        # Trip counts that threads disagree on are counted as those of the first one.
        self.values.values = {**self.fixed, **chosen, **{v: np.zeros(1, np.int64) for v, _ in self.kernel.threads}}
        _bind(self.values, self.needed_binds if probing else self.binds)
        extents = [_or(self.values, extent, MANY_TRIPS) for extent in self.blocks.values()]
        valid = np.ones(rows, bool)
        for var, extent in zip(self.blocks, extents):
            valid &= np.broadcast_to(chosen[var] < extent, (rows,))
        ways = [np.clip(_or(self.values, d, 0), -1, m) for d, m in zip(self.decisive.ways, self.most)]
        holds = [_or(self.values, d, 1) != 0 for d in self.decisive.guards]
        grid = [np.clip(extent, 0, self.trips) for extent in extents]
        bounds = [_or(self.values, bound, 1) != 0 for bound in self.bounds]
        work = np.zeros(rows) if probing else np.broadcast_to(_iterations(self.kernel.body, self.values), (rows,))
        return Outcomes(
            _table(ways, rows), _table(holds, rows), _table(grid, rows), valid, _table(bounds, rows) != 0, work
        )


def _table(columns: list[Any], rows: int) -> np.ndarray[Any, Any]:
    """Columns side by side, of which some have one value for all rows."""
    if not columns:
        return np.zeros((rows, 0), np.int64)
    return np.stack([np.broadcast_to(column, (rows,)) for column in columns], axis=1).astype(np.int64)


def _free(func: tir.PrimFunc) -> list[Any]:
    """Dynamic dimensions and scalar parameters."""
    found = list(shape_variables(func))
    found += [p for p in func.params if isinstance(p, ir.Var) and not tile_ir.is_buffer(p) and p not in found]
    return found


def _large(func: tir.PrimFunc) -> int:
    """A size of which no tile reaches the end, if it may be: what each tensor has then can be counted in 62 bits."""
    fits = [LARGE]
    for param in func.params:
        if tile_ir.is_buffer(param):
            known = [tile_ir.static(size) for size in param.ty.shape]
            bits = 62 - sum(size.bit_length() for size in known if size is not None)
            fits.append(1 << max(0, bits // max(1, known.count(None))))
    return max(MANY_TRIPS, min(fits))


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
