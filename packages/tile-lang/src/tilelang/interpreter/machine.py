"""Statements and tile operators: one `Machine` per block executes the body of a kernel."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tilelang.interpreter import numerics
from tilelang.interpreter.barriers import Barrier
from tilelang.interpreter.companies import Meetings
from tilelang.interpreter.expressions import constant, dtype_of_node
from tilelang.interpreter.lanes import Lanes, RaceTracker
from tilelang.interpreter.memory import Buffer, Storage
from tilelang.interpreter.numerics import Values
from tilelang.interpreter.synchronization import Synchronization
from tilelang.interpreter.teams import Turns
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ops import DeviceAssert, Print, SyncThreads, ThreadOp, TileOp, parse
from tilelang.ops.base import OPERATORS

# Called as hook(operator or parallel loop, block coordinates, {buffer name: live array}) before each of them.
Hook = Callable[[Any, tuple[int, ...], dict[str, Values]], Any]
Emit = Callable[[str], Any]

# A `while` that runs this often in one block waits for something that lockstep execution never delivers.
LONGEST_WHILE = 10_000_000

_NO_EFFECT_ON_TILES = (Print, DeviceAssert)


class _Loop:
    """A running loop: which lanes have left it for good, and whether `break` is legal in it."""

    def __init__(self, count: int, *, parallel: bool = False) -> None:
        self.broken: Values = np.zeros(count, bool)
        self.parallel = parallel


class Machine(Synchronization):
    """One block (or the host), executing statements; also the machine that operators' meanings are written for."""

    def __init__(self, lanes: Lanes, block: tuple[int, ...] | None, hook: Hook | None, output: Emit) -> None:
        super().__init__(lanes, block)
        self.hook, self.output = hook, output
        self._loops: list[_Loop] = []
        self._lane: int | None = None  # the one lane that an operator is executed for

    def launch(self, kernel: tile_ir.Kernel, blocks: frozenset[tuple[int, ...]] | None) -> None:
        """Run a kernel's blocks one after the other, the x coordinate fastest, or only those in `blocks`.

        Blocks that meet at barriers take turns; then `blocks` chooses whole clusters, or all.
        """
        self.span = kernel.span
        grid = [self.integer(extent) for _, extent in kernel.grid]
        threads = [self.integer(extent) for _, extent in kernel.threads]

        def begun(place: tuple[int, ...]) -> Machine:
            block = Machine(Lanes("thread", threads, x_first=True), place, self.hook, self.output)
            block.share(self)
            block.span = self.span
            for (var, _), coordinate in zip(kernel.grid, place, strict=True):
                block.bind(var, constant(coordinate, dtype_of_node(var)))
            for (var, _), coordinates in zip(kernel.threads, block.lanes.coordinates(), strict=True):
                block.bind(var, coordinates.astype(dtype_of_node(var).as_numpy()))
            return block

        meetings = Meetings.of(kernel)
        if any(n % d for n, d in zip(grid, meetings.cluster)):
            raise self.error(f"a grid of {grid} blocks is no multiple of its clusters of {list(meetings.cluster)}")
        for places in meetings.groups(grid):
            if blocks is not None and blocks.isdisjoint(places):
                continue
            members = {place: begun(place) for place in places}
            for place, companies in meetings.companies(members):
                members[place].companies = companies
            if len(members) > 1:
                Turns([functools.partial(block.beside, kernel.body) for block in members.values()]).run()
            else:
                members[places[0]].execute(kernel.body)

    def beside(self, body: Any, turns: Turns) -> None:
        """Execute a kernel's body in turns with the blocks that this one meets."""
        self._beside = turns
        self.execute(body)

    # -- statements -------------------------------------------------------------------------------------------

    def execute(self, stmt: Any) -> None:
        """Execute a statement for the lanes that are active, if any."""
        if not self.lanes.mask.any():
            return
        known = self._statements.get(stmt.__chandle__())
        if known is None:
            known = self._statements[stmt.__chandle__()] = _Statement(stmt)
        if known.span is not None:
            self.span = known.span
        if known.handler is None:
            raise self.error(f"the interpreter knows no statement {type(stmt).__name__}", found=str(stmt))
        known.handler(self, known.parts)

    def _sequence(self, groups: list[list[Any]]) -> None:
        before = set(self.buffers)
        for group in groups:
            if len(group) > 1 and self.turns is None:
                self._together(group)
            else:
                for part in group:
                    self.execute(part)
        for var in self.buffers.keys() - before:
            del self.buffers[var]

    def _together(self, roles: list[Any]) -> None:
        """Groups of threads whose work stands side by side: who waits for another lets it run."""

        def work(stmt: Any) -> Callable[[Turns], None]:
            member = Machine(self.lanes, self.block, self.hook, self.output)
            member.share(self)
            member.safe_values = self.safe_values
            member._barriers, member.span, outer = self._barriers, self.span, self.lanes.mask
            member.companies, member._beside = self.companies, self._beside

            def run(turns: Turns) -> None:
                member.turns, member.lanes.mask = turns, outer
                member.execute(stmt)

            return run

        if not self.lanes.mask.any():
            return
        outer = self.lanes.mask
        Turns([work(stmt) for stmt in roles], self._beside).run()
        self.lanes.mask = outer

    def _bind(self, parts: tuple[Any, Any]) -> None:
        var, value = parts
        self.bind(var, self.value(value))

    def _allocate(self, stmt: Any) -> None:
        buffer, scope = stmt.buffer, str(stmt.buffer.scope())
        if scope == tile_ir.BARRIER:
            self._barriers[buffer] = [Barrier(n) for n in tile_ir.plain(stmt.annotations[tile_ir.ARRIVALS])]
            return
        private = scope in tile_ir.PRIVATE
        if self.races is not None and not private:
            raise self.error(f"{buffer.name} (scope {scope}) is allocated inside a parallel loop")
        dtype, shape = dtype_of(str(buffer.dtype)), [self.integer(n) for n in buffer.ty.shape]
        on_chip = scope not in tile_ir.GLOBAL
        storage = Storage.allocate(
            Buffer.size_of(dtype, shape), tracked=on_chip, fill=1 if dtype.kind == "bool" else 0xFF
        )
        owner = self.lanes if private else None
        self.buffers[self.same(buffer)] = Buffer(str(buffer.name), dtype, shape, scope, storage, owner=owner)

    def _alias(self, stmt: Any) -> None:
        view = stmt.buffer
        base = self.buffer(stmt.data if tile_ir.is_buffer(stmt.data) else stmt.data.args[0])
        if base.storage.strided is not None:
            raise self.error(
                f"{view.name} is a view of {base.name}, whose argument is not contiguous",
                repair="pass a contiguous array (np.ascontiguousarray)",
            )
        dtype, shape = dtype_of(str(view.dtype)), [self.integer(n) for n in view.ty.shape]
        skipped = 0 if view.ty.elem_offset is None else self.integer(view.ty.elem_offset)
        offset = base.offset + skipped * dtype.bits * dtype.lanes // 8
        have, need = Buffer.size_of(base.dtype, base.shape), Buffer.size_of(dtype, shape)
        if offset - base.offset + need > have:
            raise self.error(f"the view {view.name} needs {need} bytes, {base.name} has {have}")
        name, scope = str(view.name), base.scope
        self.buffers[self.same(view)] = Buffer(name, dtype, shape, scope, base.storage, owner=base.owner, offset=offset)

    def _store(self, parts: tuple[Any, list[Any], Any]) -> None:
        buffer, indices, value = parts
        found = self.value(value)
        self.write(self.buffer(buffer), [self.value(i) for i in indices], found)

    def _if(self, parts: tuple[Any, Any, Any]) -> None:
        condition, then_case, else_case = parts
        outer = self.lanes.mask
        holds = self.value(condition)
        self.lanes.mask = outer & holds
        self.execute(then_case)
        left = self.lanes.mask  # without the lanes that left the loop in this branch
        self.lanes.mask = outer & ~holds
        if else_case is not None:
            self.execute(else_case)
        self.lanes.mask = left | self.lanes.mask

    def _for(self, parts: tuple[Any, tile_ir.ParallelNest | None, tuple[Any, ...]]) -> None:
        stmt, nest, (var, start, size, body) = parts
        if nest is not None:
            self._parallel(stmt, nest)
            return
        low, extent = self.value(start), self.value(size)
        longest = int(np.broadcast_to(extent, (self.lanes.count,))[self.lanes.mask].max())

        def rounds() -> Iterator[Values]:
            for step in range(longest):
                self.bind(var, low + np.asarray([step], low.dtype))
                yield extent > step

        self._repeat(body, rounds())

    def _while(self, stmt: Any) -> None:
        def rounds() -> Iterator[Values]:
            for _ in range(LONGEST_WHILE):
                running = self.lanes.mask
                if not running.any():
                    return
                yield running & self.value(stmt.condition)
            raise self.error(f"a `while` loop ran {LONGEST_WHILE} times: does it wait for another block?")

        self._repeat(stmt.body, rounds())

    def _repeat(self, body: Any, rounds: Iterator[Values]) -> None:
        """Run a loop: each round says which lanes take part in it; the lanes that say `break` never come back."""
        entry, loop, span = self.lanes.mask, _Loop(self.lanes.count), self.span
        self._loops.append(loop)
        for takes_part in rounds:
            running = entry & ~loop.broken & takes_part
            if not running.any():
                break
            self.lanes.mask = running
            self.execute(body)
            # What `while` asks next is asked of the lanes that ran this round, whether they said `continue` or not.
            self.lanes.mask = running & ~loop.broken
            self.span = span
        self._loops.pop()
        self.lanes.mask = entry

    def _leave(self, *, for_good: bool) -> None:
        if not self._loops:
            raise self.error("`break` or `continue` outside of a loop")
        loop = self._loops[-1]
        if for_good:
            if loop.parallel:
                raise self.error("`break` inside T.Parallel", repair="use an `if`, or T.serial")
            loop.broken = loop.broken | self.lanes.mask
        self.lanes.mask = np.zeros_like(self.lanes.mask)

    def _attribute(self, stmt: Any) -> None:
        kernel = tile_ir.as_kernel(stmt)
        if kernel is not None:
            raise self.error("a kernel inside a kernel")
        group = tile_ir.as_thread_group(stmt)
        if group is None and stmt.attr_key != tile_ir.LEADER:
            self.execute(stmt.body)  # other attributes mean nothing here
            return
        outer, team, lanes = self.lanes.mask, self._team, np.arange(self.lanes.count)
        if group is None:
            self.lanes.mask = lanes == np.flatnonzero(outer)[0]
        else:
            self._expect_uniform_control("T.ws")
            self._team = (group[0] <= lanes) & (lanes < sum(group))
            self.lanes.mask = outer & self._team
        self.execute(stmt.body)
        self.lanes.mask, self._team = outer, team

    def _evaluate(self, parts: tuple[Any, str, Any]) -> None:
        call, name, span = parts
        if name in OPERATORS:
            self.span = span if span is not None else self.span
            self._operator(parse(call))
        elif name in ("tirx.break_loop", "tirx.continue_loop"):
            self._leave(for_good=name == "tirx.break_loop")
        else:
            self.value(call)

    # -- parallel loops ---------------------------------------------------------------------------------------

    def _parallel(self, stmt: Any, nest: tile_ir.ParallelNest) -> None:
        if self.races is not None:
            raise self.error("T.Parallel inside T.Parallel")
        self._expect_uniform_control("T.Parallel")
        self._call_hook(stmt)
        outer, span = self.lanes, self.span
        lanes = Lanes("iteration", [max(0, self.integer(e)) for e in nest.extents])
        if lanes.count == 0:
            return
        self.lanes, self.races, self.watched = lanes, RaceTracker(lanes), self._stored_in(nest.body)
        self._loops.append(_Loop(lanes.count, parallel=True))
        for var, coordinates in zip(nest.loop_vars, lanes.coordinates(), strict=True):
            self.bind(var, coordinates.astype(dtype_of_node(var).as_numpy()))
        self.execute(nest.body)
        self._loops.pop()
        self.lanes, self.races, self.watched, self.span = outer, None, frozenset(), span

    def _stored_in(self, body: Any) -> frozenset[int]:
        """The storages that a parallel body stores to: only they can be raced on."""
        stored = {n.buffer for n in tile_ir.walk(body) if isinstance(n, tir.BufferStore)}
        return frozenset(self.buffers[b].storage.serial for b in stored if b in self.buffers)

    # -- tile operators ---------------------------------------------------------------------------------------

    def _operator(self, operator: TileOp) -> None:
        if isinstance(operator, _NO_EFFECT_ON_TILES):
            self._operator_by_lane(operator)
            return
        if self.races is not None:
            raise self.error(f"the tile operator {operator.NAME} inside T.Parallel")
        if not (isinstance(operator, ThreadOp) or (isinstance(operator, SyncThreads) and operator.count is not None)):
            self._expect_uniform_control(operator.NAME)
        self._call_hook(operator)
        operator.meaning(self)

    def _operator_by_lane(self, operator: TileOp) -> None:
        """Print and assertions: once for the block, or once per active lane when the operand differs."""
        self._call_hook(operator)
        operand = getattr(operator, operator.OPERANDS[0])
        if hasattr(operand, "region") or len(self.value(operand)) == 1:
            operator.meaning(self)
            return
        mask = self.lanes.mask
        for lane in np.flatnonzero(mask):
            self._lane = int(lane)
            self.lanes.mask = np.arange(self.lanes.count) == lane
            operator.meaning(self)
        self._lane, self.lanes.mask = None, mask

    def _call_hook(self, operator: Any) -> None:
        if self.hook is not None:
            self.hook(operator, self.block or (), self.arrays())

    def arrays(self) -> dict[str, Values]:
        """The buffers in scope as live numpy arrays; a name used twice gets a number. Packed types as bytes."""
        named: dict[str, Values] = {}
        for buffer in self.buffers.values():
            name, array = buffer.name, buffer.array()
            for number in itertools.count(1):
                if name not in named:
                    break
                name = f"{buffer.name}_{number}"
            named[name] = array[0] if len(array) == 1 else array
        return named

    # -- the protocol `tilelang.ops.base.Machine` ---------------------------------------------------------------

    def load(self, region: Any) -> Values:
        buffer, starts, sizes = self._region(region)
        tile = self.read_box(buffer, starts, sizes)
        return _as_elements(tile) if buffer.dtype.lanes > 1 else tile

    def store(self, region: Any, tile: Values) -> None:
        buffer, starts, sizes = self._region(region)
        tile = np.asarray(tile)
        if buffer.dtype.lanes > 1:
            tile = _as_vectors(tile, buffer.dtype.as_numpy())
        if list(tile.shape[: len(sizes)]) != sizes:
            raise self.error(f"a tile of shape {tile.shape} does not fit into {region}")
        self.write_box(buffer, starts, numerics.convert(tile, buffer.dtype))

    def convert(self, values: Values, region: Any) -> Values:
        return numerics.convert(np.asarray(values), dtype_of(str(region.source.dtype)))

    def evaluate(self, expr: Any) -> Any:
        value = self.scalar(expr)
        return _as_elements(value) if getattr(value, "shape", ()) else value

    def fold(self, tiles: Values, lhs: Any, rhs: Any, combined: Any, identity: Any) -> Any:
        dtype = dtype_of_node(lhs)
        start = self.value(identity)
        outer = self.lanes
        self.lanes = Lanes("element", [int(np.prod(tiles.shape[1:]))])
        result = np.broadcast_to(numerics.convert(start, dtype), (self.lanes.count,))
        for part in tiles:
            self.bind(lhs, result)
            self.bind(rhs, numerics.convert(part.reshape(-1), dtype))
            result = np.broadcast_to(numerics.convert(self.value(combined), dtype), (self.lanes.count,))
        self.lanes = outer
        return result.reshape(tiles.shape[1:])

    def set_safe_value(self, buffer: Any, value: Any) -> None:
        self.safe_values[self.buffer(buffer)] = value

    def emit(self, text: str) -> None:
        lane = "" if self._lane is None else f", {self.lanes.name(self._lane)}"
        self.output(f"block {self._block_name()}{lane}: {text}")

    def fail(self, message: str) -> None:
        lane = "" if self._lane is None else f" in {self.lanes.name(self._lane)}"
        raise self.error(f"device assertion failed{lane}" + (f": {message}" if message else ""))

    def _region(self, region: Any) -> tuple[Buffer, list[int], list[int]]:
        starts = [self.integer(r.min) for r in region.region]
        return self.buffer(region.source), starts, [self.integer(r.extent) for r in region.region]


def _as_elements(tile: Values) -> Values:
    """Vectors (a trailing axis of lanes) as opaque elements, so that operators see one per index."""
    tile = np.ascontiguousarray(tile)
    return tile.view(np.dtype((np.void, tile.itemsize * tile.shape[-1])))[..., 0]


def _as_vectors(tile: Values, dtype: np.dtype[Any]) -> Values:
    return np.ascontiguousarray(tile)[..., None].view(dtype)


class _Statement:
    """A statement as the machine executes it: its span, its handler, and what the handler gets of it, read once."""

    def __init__(self, stmt: Any) -> None:
        self.node = stmt  # stays alive, so that its address remains its own
        self.span = stmt.span
        self.handler = _STATEMENTS.get(type(stmt))
        read = _PARTS.get(type(stmt))
        self.parts = stmt if read is None else read(stmt)


def _groups(stmt: Any) -> list[list[Any]]:
    """The statements of a sequence: one by one, but work of groups of threads that stands side by side together."""
    groups: list[list[Any]] = []
    for part in tile_ir.statements(stmt):
        beside = tile_ir.as_thread_group(part) is not None and groups and tile_ir.as_thread_group(groups[-1][-1])
        if beside:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _evaluated(stmt: Any) -> tuple[Any, str, Any]:
    """The expression of a statement; the name and the span of a call."""
    value = stmt.value
    return (value, str(getattr(value.op, "name", "")), value.span) if isinstance(value, ir.Call) else (value, "", None)


_PARTS: dict[type, Callable[[Any], Any]] = {
    tir.SeqStmt: _groups,
    tir.Bind: lambda stmt: (stmt.var, stmt.value),
    tir.BufferStore: lambda stmt: (stmt.buffer, list(stmt.indices), stmt.value),
    tir.IfThenElse: lambda stmt: (stmt.condition, stmt.then_case, stmt.else_case),
    tir.For: lambda stmt: (stmt, tile_ir.as_parallel(stmt), (stmt.loop_var, stmt.min, stmt.extent, stmt.body)),
    tir.Evaluate: _evaluated,
}

_STATEMENTS: dict[type, Callable[[Machine, Any], None]] = {
    tir.SeqStmt: Machine._sequence,
    tir.Bind: Machine._bind,
    tir.AllocBuffer: Machine._allocate,
    tir.DeclBuffer: Machine._alias,
    tir.BufferStore: Machine._store,
    tir.IfThenElse: Machine._if,
    tir.For: Machine._for,
    tir.While: Machine._while,
    tir.AttrStmt: Machine._attribute,
    tir.Evaluate: Machine._evaluate,
}
