"""The schedule of a pipelined loop: which statement runs how many iterations ahead, and how many versions tiles need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import PipelineOrderError, where
from tile_compiler.loops.affine import depends
from tile_compiler.passes.lower_tile_ops import is_tile_operator
from tile_compiler.rewrite import is_call, substitute
from tile_compiler.simt.operators.nests import is_global, is_shared
from tilelang import ops
from tilelang.ir import tile_ir


@dataclass(frozen=True, eq=False)
class Piece:
    """One scheduled statement: at step k of the loop it does the work of iteration k + `lead`, as number `place`.

    `conditions` are those of the `if`s that stood around it, outermost first. `copy` is set for a copy from global
    memory into a tile that may have versions.
    """

    stmt: Any
    conditions: tuple[Any, ...]
    place: int
    lead: int = 0
    copy: ops.Copy | None = None

    @property
    def span(self) -> Any:
        value = getattr(self.stmt, "value", None)
        return getattr(value, "span", None) or self.stmt.span


@dataclass(frozen=True)
class Schedule:
    """`pieces` in the order in which a step runs them; `versions` of each tile that is passed between steps.

    `values` are the names bound in the loop that may be evaluated at any step; `declared` the loop's allocations.
    """

    pieces: tuple[Piece, ...]
    versions: dict[Any, int]
    values: dict[Any, Any]
    binds: tuple[Any, ...]
    declared: tuple[Any, ...]

    @property
    def depth(self) -> int:
        """The largest lead: how many steps the prologue has."""
        return max((p.lead for p in self.pieces), default=0)

    def readers(self, tile: Any) -> list[Piece]:
        return [p for p in self.pieces if tile in mentions(p) and not (p.copy and tile.same_as(p.copy.dst.source))]


class Scheduler:
    """Finds the schedule of one loop of a kernel. `roots` maps an alias to the buffer whose storage it shares."""

    def __init__(self, body: Any, roots: dict[Any, Any]) -> None:
        self.roots = roots
        self.everywhere = _counted(body)
        self.written = {self._root(b) for b in touched(body)[1]}

    def automatic(self, loop: tir.For, stages: int) -> Schedule:
        """Copies from global memory run `stages - 1` iterations ahead of the rest, if nothing is in their way."""
        split = _Split(self, loop)
        ahead: list[Piece] = []
        rest: list[Piece] = []
        for piece in split.pieces:
            (ahead if piece.copy is not None and stages > 1 else rest).append(piece)
        ordered = [replace(p, lead=stages - 1) for p in ahead] + rest
        return self._done(split, ordered)

    def explicit(self, loop: tir.For, order: Sequence[int], stage: Sequence[int], stages: int) -> Schedule:
        """Exactly the user's schedule: statement i is number `order[i]` of a step, and `stage[i]` iterations behind.

        An entry of -1 leaves a copy to the compiler: it comes first, and `stages - 1` iterations before its readers.
        PipelineOrderError if a value would be used before it is there, or overwritten before it is used.
        """
        split = _Split(self, loop)
        _refuse_unstable(split, loop)
        numbers = sorted({p.place for p in split.pieces})
        counts_all = len(stage) == len(tile_ir.statements(loop.body))  # scalar binds have entries too
        last = max(stage)
        pieces, free = [], []
        for piece in split.pieces:
            n = piece.place if counts_all else numbers.index(piece.place)
            here = order[n] if order else n
            if min(stage[n], here) < 0:
                free.append(piece)
                continue
            pieces.append(replace(piece, place=here, lead=last - stage[n]))
        pieces.sort(key=lambda p: p.place)
        for piece in free:
            if piece.copy is None:
                raise PipelineOrderError(
                    "order and stage of T.Pipelined leave a statement out",
                    at=piece.span,
                    found="-1 for a statement that is no copy from global to shared memory of its own",
                    expected="-1 only for copies, which the compiler can place itself",
                    repair="give it a position in order and a stage",
                )
        count = max(stages, last + 1)
        first = []
        for piece in free:
            leads = [p.lead for p in pieces if piece.copy is not None and piece.copy.dst.source in mentions(p)]
            first.append(replace(piece, lead=max(leads, default=0) + count - 1))
        return self._done(split, first + pieces, program=[p.stmt for p in split.pieces])

    def _done(self, split: _Split, ordered: list[Piece], program: list[Any] | None = None) -> Schedule:
        pieces = tuple(replace(p, place=n) for n, p in enumerate(ordered))
        made = Schedule(pieces, {}, split.values, tuple(split.binds), tuple(split.declared))
        if program is not None:
            order = {id(stmt): n for n, stmt in enumerate(program)}
            versions = self._dependences(sorted(pieces, key=lambda p: order[id(p.stmt)]), split)
            return replace(made, versions=versions)
        versions = {}
        for piece in pieces:
            if piece.copy is not None:
                versions[piece.copy.dst.source] = piece.lead + 1
        return replace(made, versions=versions)

    def _root(self, buffer: Any) -> Any:
        return self.roots.get(buffer, buffer)

    # -- whether a schedule keeps the meaning -----------------------------------------------------------------

    def _dependences(self, program: list[Piece], split: _Split) -> dict[Any, int]:
        """The versions that each tile needs, of pieces in the order of the program.

        In iteration a, piece p runs at time (a - p.lead, p.place). Where i comes before j in the program and they share
        a buffer that one of them writes, i of an iteration has to run before j of it, and j of it before i of the
        next; the second is not needed if the tile gets versions.
        """
        versions: dict[Any, int] = {}
        pairs = [(a, b) for n, a in enumerate(program) for b in program[n + 1 :]]
        for a, b in pairs:
            for buffer in self._shared_between(a, b):
                if (-a.lead, a.place) > (-b.lead, b.place):
                    raise PipelineOrderError(
                        f"order and stage of T.Pipelined run a use of {buffer.name} before the statement it depends on",
                        at=b.span,
                        found=f"{where(b.span)} runs before {where(a.span)} of the same iteration",
                        expected="a stage that is higher, or the same stage and a later position",
                        repair="raise the stage or the position of the later statement",
                    )
                if (-b.lead, b.place) < (1 - a.lead, a.place):
                    continue
                if not self._private(buffer, a, program, split):
                    raise PipelineOrderError(
                        f"order and stage of T.Pipelined overwrite {buffer.name} before its last use",
                        at=a.span,
                        found=f"{where(a.span)} of the next iteration runs before {where(b.span)}",
                        expected="at most one stage between them, the later statement first, or a shared tile that is "
                        "written as a whole, once, at the beginning of each iteration and used in this loop alone",
                        repair="bring the two statements closer together",
                    )
                needed = a.lead - b.lead + (b.place > a.place)
                versions[buffer] = max(versions.get(buffer, 1), needed)
        return versions

    def _shared_between(self, a: Piece, b: Piece) -> list[Any]:
        """Buffers of which one of the two writes what the other touches."""
        (reads, writes), (also_reads, also_writes) = touched(a.stmt), touched(b.stmt)
        mine, yours = {self._root(x) for x in reads | writes}, {self._root(x) for x in also_reads | also_writes}
        changed = {self._root(x) for x in writes | also_writes}
        if _synchronizes(a.stmt) or _synchronizes(b.stmt):
            return [x for x in mine | yours if is_shared(x)]
        return sorted(mine & yours & changed, key=lambda x: str(x.name))

    def _private(self, tile: Any, first: Piece, program: list[Piece], split: _Split) -> bool:
        """Whether each iteration can have a version of `tile` of its own."""
        users = [p for p in program if tile in mentions(p)]
        if not is_shared(tile) or users[0] is not first or not self.alone(tile, split.loop):
            return False
        reads = touched(first.stmt)[0]
        if tile in reads or any(tile in touched(p.stmt)[1] for p in users[1:]):
            return False
        if any(depends(r, {split.loop.loop_var, *split.values}) for r in _regions_of(first.stmt, tile)):
            return False
        return all(_starts_with(p.conditions, first.conditions) for p in users)

    def alone(self, tile: Any, loop: tir.For) -> bool:
        """Whether `tile` has no alias and is used in this loop alone."""
        if tile in self.roots or tile in self.roots.values():
            return False
        return self.everywhere[tile] == _counted(loop.body)[tile]

    def stable(self, node: Any, moving: set[Any], loop: tir.For | None = None) -> bool:
        """Whether an expression has the same value whenever it is evaluated; `moving` are names that it must not use.

        With `loop`: whenever that is while the loop runs, so that a thread's own variables may change outside of it.
        """
        if depends(node, moving):
            return False
        loads = {self._root(n.source) for n in tile_ir.walk(node, ir.TensorLoad)}
        effects = any(is_call(n, "tirx.call_extern", "tl.atomic_elem") for n in tile_ir.walk(node, ir.Call))
        if loop is not None and any(str(b.scope()) in tile_ir.PRIVATE for b in loads & self.written):
            inside = {self._root(b) for b in touched(loop.body)[1]}
            loads -= {b for b in loads if str(b.scope()) in tile_ir.PRIVATE and b not in inside}
        return not effects and not loads & self.written


class _Split:
    """A loop's body as pieces in program order; statements under an `if` that holds copies become pieces of their own."""

    def __init__(self, scheduler: Scheduler, loop: tir.For) -> None:
        self.scheduler, self.loop = scheduler, loop
        self.values: dict[Any, Any] = {}
        self.binds: list[Any] = []
        self.declared: list[Any] = []
        self.pieces: list[Piece] = []
        self.inner = {n.loop_var for n in tile_ir.walk(loop.body, tir.For)}
        self.inner |= {n.var for n in tile_ir.walk(loop.body, tir.Bind)}
        leaves = any(is_call(n, "tirx.break_loop", "tirx.continue_loop") for n in tile_ir.walk(loop.body, ir.Call))
        for place, stmt in enumerate(tile_ir.statements(loop.body)):
            self._add(stmt, (), place)
        self.pieces = [p if leaves else replace(p, copy=self._free_copy(p)) for p in self.pieces]

    def _stable(self, node: Any) -> bool:
        return self.scheduler.stable(node, self.inner - set(self.values), self.loop)

    def _add(self, stmt: Any, conditions: tuple[Any, ...], place: int) -> None:
        if isinstance(stmt, tir.Bind) and not conditions and self._stable(stmt.value):
            self.values[stmt.var] = inlined(stmt.value, self.values)
            self.binds.append(stmt)
        elif isinstance(stmt, (tir.AllocBuffer, tir.DeclBuffer)) and not conditions:
            self.declared.append(stmt)
        elif isinstance(stmt, tir.IfThenElse) and self._opens(stmt):
            cases = [(stmt.condition, stmt.then_case)]
            if stmt.else_case is not None:
                cases.append((tir.Not(stmt.condition), stmt.else_case))
            for condition, case in cases:
                names: dict[Any, Any] = {}
                for part in tile_ir.statements(case):
                    if isinstance(part, tir.Bind):
                        names[part.var] = inlined(part.value, names)
                    else:
                        self._add(substitute(part, names), (*conditions, condition), place)
        else:
            self.pieces.append(Piece(stmt, conditions, place))

    def _opens(self, stmt: tir.IfThenElse) -> bool:
        """Whether an `if` holds copies that may run ahead, and its condition may be evaluated ahead of time too."""
        cases = [stmt.then_case] + ([] if stmt.else_case is None else [stmt.else_case])
        parts = [part for case in cases for part in tile_ir.statements(case)]
        if any(isinstance(part, (tir.AllocBuffer, tir.DeclBuffer)) for part in parts):
            return False
        names = {part.var for part in parts if isinstance(part, tir.Bind)}
        moving = self.inner - set(self.values) - names
        if not all(self.scheduler.stable(p.value, moving, self.loop) for p in parts if isinstance(p, tir.Bind)):
            return False
        return self._stable(stmt.condition) and any(is_tile_operator(n) and _arrives(n) for n in tile_ir.walk(stmt))

    def _free_copy(self, piece: Piece) -> ops.Copy | None:
        """The copy that a piece is, if it may run before the rest of earlier iterations."""
        copy = _arrives(piece.stmt) if is_tile_operator(piece.stmt) else None
        if copy is None or not self.scheduler.alone(tile := copy.dst.source, self.loop):
            return None
        users = [p for p in self.pieces if tile in mentions(p)]
        if users[0] is not piece or any(tile in touched(p.stmt)[1] for p in users[1:]):
            return None
        if not all(_starts_with(p.conditions, piece.conditions) for p in users):
            return None
        if depends(copy.dst, {self.loop.loop_var, *self.inner}) or not self._stable(copy.src):
            return None
        return None if self.scheduler._root(copy.src.source) in self.scheduler.written else copy


def _starts_with(conditions: Sequence[Any], first: Sequence[Any]) -> bool:
    return len(conditions) >= len(first) and all(a.same_as(b) for a, b in zip(conditions, first))


def _refuse_unstable(split: _Split, loop: tir.For) -> None:
    for piece in split.pieces:
        if isinstance(piece.stmt, tir.Bind):
            raise PipelineOrderError(
                f"order and stage of T.Pipelined in a loop that binds {piece.stmt.var.name} to what memory holds",
                at=piece.stmt.span or loop.span,
                found="a value that the loop may change",
                expected="names bound to expressions of the loop's variable and of memory that the kernel only reads",
                repair="write the expression where the value is used",
            )


def _arrives(stmt: Any) -> ops.Copy | None:
    """The copy from global to shared memory that a tile operator is."""
    op = ops.parse(stmt.value)
    fits = isinstance(op, ops.Copy) and is_global(op.src.source) and is_shared(op.dst.source)
    return op if fits and isinstance(op, ops.Copy) else None


def inlined(node: Any, values: dict[Any, Any]) -> Any:
    """`node` with names bound in the loop's body replaced by their values, which name none of the others."""
    return substitute(node, values) if values and depends(node, set(values)) else node


def touched(node: Any) -> tuple[set[Any], set[Any]]:
    """(buffers that a statement may read, buffers that it may write)."""
    reads: set[Any] = set()
    writes: set[Any] = set()
    for n in tile_ir.walk(node, ir.TensorLoad, tir.BufferStore, tir.Evaluate, ir.Call):
        if isinstance(n, ir.TensorLoad):
            reads.add(n.source)
        elif isinstance(n, tir.BufferStore):
            writes.add(n.buffer)
        elif isinstance(n, tir.Evaluate) and is_tile_operator(n):
            op = ops.parse(n.value)
            reads |= {r.source for r in op.reads()}
            writes |= {r.source for r in op.writes()}
        elif is_call(n, "tl.atomic_elem", "tirx.call_extern", "tirx.address_of", "tirx.buffer_data"):
            named = set(named_buffers(n))
            reads |= named
            writes |= named
    return reads, writes


def mentions(piece: Piece) -> set[Any]:
    """The buffers that a piece names."""
    return set(named_buffers(piece.stmt))


def named_buffers(node: Any) -> Iterator[Any]:
    """Each buffer as often as a statement names it."""
    for n in tile_ir.walk(node, ir.Var, tir.BufferStore, tir.AllocBuffer):
        if isinstance(n, ir.Var) and tile_ir.is_buffer(n):
            yield n
        elif isinstance(n, (tir.BufferStore, tir.AllocBuffer)):
            yield n.buffer


def _counted(node: Any) -> Counter[Any]:
    """How often each buffer is used: loads, stores, regions, addresses; not its allocation or a layout for it."""
    count: Counter[Any] = Counter()
    hidden: Counter[Any] = Counter()
    for n in tile_ir.walk(node):
        if isinstance(n, (ir.TensorLoad, ir.TensorRegion)):
            count[n.source] += 1
        elif isinstance(n, tir.BufferStore):
            count[n.buffer] += 1
        elif is_call(n, "tirx.buffer_data", "tirx.address_of") and tile_ir.is_buffer(n.args[0]):
            count[n.args[0]] += 1
        elif is_call(n, "tl.annotate_layout"):
            hidden[n.args[0].source] += 1
    return count - hidden


def _regions_of(stmt: Any, tile: Any) -> list[Any]:
    """What a statement writes of a tile, as far as a loop variable can move it."""
    if is_tile_operator(stmt):
        return [r for r in ops.parse(stmt.value).writes() if r.source.same_as(tile)]
    stores = [n for n in tile_ir.walk(stmt, tir.BufferStore) if n.buffer.same_as(tile)]
    return [tir.Evaluate(i) for s in stores for i in s.indices]


def _synchronizes(stmt: Any) -> bool:
    return any(is_call(n, "tl.sync_threads", "tirx.call_extern") for n in tile_ir.walk(stmt, ir.Call))
