"""The statements that take the place of a pipelined loop whose tiles a producer brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx as tir

from tile_compiler.rewrite import remake_loop, renewed, substitute
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import int32, is_shared, load, run, store
from tile_compiler.simt.pipeline_schedule import Piece, Schedule, inlined, mentions, touched
from tile_compiler.simt.plan_pipeline import Version, merged
from tile_compiler.simt.roles.channels import Channel
from tile_compiler.simt.roles.order import Step, in_turn, overlap
from tile_compiler.simt.roles.products import (
    head_and_rest,
    holds_asynchronous,
    is_asynchronous,
    registers_of,
    result_of,
)
from tile_compiler.simt.roles.turns import Turns
from tile_compiler.simt.tensor_maps import Plan
from tilelang import ops
from tilelang.ir import tile_ir

Guarded = tuple[list[Any], Any]  # conditions, statement


@dataclass(frozen=True, eq=False)
class Use:
    """A channel in one loop: the copies that it takes the place of, and the pieces that use its tiles, in order."""

    channel: Channel
    copies: tuple[Piece, ...]
    users: tuple[Piece, ...]


@dataclass(frozen=True, eq=False)
class _Release:
    """A channel is let go of after a step, when at most the `pending` newest products are under way (None: no matter).

    `at_end`: only the end of the steps asks for it; nothing there had to wait for its product.
    """

    use: Use
    after: int
    pending: int | None = None
    at_end: bool = False


class SpecializedLoop:
    """One loop: `channels` and `versioned` (the buffer of all versions, by tile) for the pass, `statement()`.

    `counter` holds the uses before the loop began, if the loop is repeated; `rank` is the block's number in its cluster, if
    there are clusters. `able`: how the copies that become
    channels are made, by their place in the schedule.
    """

    def __init__(
        self,
        loop: tir.For,
        schedule: Schedule,
        able: dict[int, Plan],
        versions: int,
        counter: Any | None,
        rank: Any | None,
        kernel: tile_ir.Kernel,
        ctx: SimtContext,
        roots: dict[Any, Any],
    ) -> None:
        self.loop, self.schedule, self.counter, self.rank = loop, schedule, counter, rank
        self.shared = {place for place, plan in able.items() if plan.blocks > 1}
        self.kernel, self.ctx, self.roots = kernel, ctx, roots
        self.thread = kernel.threads[0][0]
        self.turn = loop.loop_var if tile_ir.static(loop.min) == 0 else loop.loop_var - loop.min
        brought = [p for p in schedule.pieces if p.place in able]
        self.rest = [replace(p, lead=0) for p in schedule.pieces if p.place not in able]
        self.tiles = {p.copy.dst.source: versions for p in brought if p.copy is not None}
        self.versioned = {t: versions_of(t, versions) for t in self.tiles} if versions > 1 else {}
        self.uses = [self._use(group, able, versions) for group in self._groups(brought)]
        self.busy = {p.place for p in self.rest if holds_asynchronous(p.stmt, kernel, ctx)}
        self.products = {p.place for p in self.rest if not p.conditions and is_asynchronous(p.stmt, kernel, ctx)}
        self.carried: list[Use] = []
        self.turns = Turns.of(int(kernel.num_threads or 1), self.thread, ctx)

    def last_waits(self) -> list[Any]:
        """What the producer waits for at the kernel's end."""
        count = trips(self.loop) if self.counter is None else load(self.counter, 0)
        return [s for u in self.uses for s in u.channel.last_waits(count)]

    @property
    def channels(self) -> list[Channel]:
        return [u.channel for u in self.uses]

    def _users(self, piece: Piece) -> list[Piece]:
        assert piece.copy is not None
        return [p for p in self.rest if piece.copy.dst.source in mentions(p)]

    def _groups(self, brought: Sequence[Piece]) -> list[list[Piece]]:
        """Copies under one condition that the same statements use first and last share their barriers."""

        def key(piece: Piece) -> tuple[Any, ...]:
            users = self._users(piece)
            return (*piece.conditions, users[0].place, users[-1].place)

        groups: list[list[Piece]] = []
        for piece in brought:
            if groups and _same(key(groups[-1][0]), key(piece)):
                groups[-1].append(piece)
            else:
                groups.append([piece])
        return groups

    def _use(self, group: list[Piece], able: dict[int, Plan], versions: int) -> Use:
        size = sum(able[p.place].bytes for p in group)
        tiles = [p.copy.dst.source for p in group if p.copy is not None]
        names = ", ".join(str(t.name) for t in tiles)
        many = f" in each of {versions} versions" if versions > 1 else ""
        self.ctx.report.note(group[0].span, f"T.copy: {names} by TMA from a producer warp, {size} bytes{many}")
        blocks = max(able[p.place].blocks for p in group)
        channel = Channel.of(tiles, versions, size, span=group[0].span, blocks=blocks, rank=self.rank)
        users = tuple(p for p in self.rest if any(t in mentions(p) for t in tiles))
        return Use(channel, tuple(group), users)

    # -- the whole --------------------------------------------------------------------------------------------

    def statement(self) -> Any:
        loop, schedule = self.loop, self.schedule
        order = overlap(self.rest, self.products, self.tiles, self.roots)
        if order is None:
            kept = in_turn(self.rest, self.products, self.roots)
            body = [*schedule.declared, *schedule.binds, *self._emit([Step(p, 0) for p in kept], carry=True)]
            out = [remake_loop(loop, body=tile_ir.sequence(body)), *self._let_go()]
        else:
            names = ", ".join(dict.fromkeys(str(result_of(p).name) for p in order.ahead if p.place in self.products))
            self.ctx.report.note(
                loop.span, f"products overlap: {names} of the next iteration is computed beside the rest of this one"
            )
            zero, last = loop.min, loop.min + loop.extent - 1
            first = self._emit([Step(p, 0) for p in order.first], at=zero)
            turns = self.turns if self._apart(order.steady) else None
            steady = [*schedule.binds, *self._emit(order.steady, turns=turns)]
            final = self._emit([Step(p, 0) for p in order.last], at=last)
            some = loop.extent > 0
            out = [
                *schedule.declared,
                *(turns.begin(loop.extent > 1) if turns else []),
                _under(some, first, loop.span),
                remake_loop(loop, extent=loop.extent - 1, body=tile_ir.sequence(steady)),
                _under(some, final, loop.span),
            ]
        if self.counter is not None:
            out.append(store(self.counter, load(self.counter, 0) + trips(loop), 0))
        return tile_ir.sequence([s for o in out for s in tile_ir.statements(o)])

    def _number(self, iteration: Any) -> Any:
        """Of the use that `iteration` makes of each channel."""
        turn = as_int32(substitute(self.turn, {self.loop.loop_var: iteration}))
        return turn if self.counter is None else load(self.counter, 0) + turn

    def _let_go(self) -> list[Any]:
        """After the loop: what its last iteration still used.

        The wait stands under no condition: registers of products that meet another way to the
        same place before they were waited for make ptxas put products one after the other (its remark C7514).
        """
        if not self.carried:
            return []
        number = self._number(self.loop.min + self.loop.extent - 1)
        releases = [s for use in self.carried for s in use.channel.release(number, self.thread)]
        wait = run("tl::wgmma_wait<0>", span=self.loop.span)
        return [wait, _under(self.loop.extent > 0, releases, self.loop.span)]

    def _apart(self, steps: Sequence[Step]) -> bool:
        """Whether warpgroups need nothing of each other from the first product of `steps` to the last: who waits at a
        barrier for the other one cannot wait for its turn as well."""
        issued = [n for n, s in enumerate(steps) if s.piece.place in self.products]
        written = {b for p in self.rest for b in touched(p.stmt)[1] if is_shared(b)}
        inside = [s.piece for s in steps[issued[0] : issued[-1] + 1]]
        return not any(mentions(p) & written for p in inside)

    # -- one list of steps ------------------------------------------------------------------------------------

    def _emit(
        self, steps: Sequence[Step], at: Any | None = None, *, carry: bool = False, turns: Turns | None = None
    ) -> list[Any]:
        """Statements of `steps` for the loop's iteration, or for iteration `at` outside of it.

        Before the first use of a tile it is brought and waited for; after the last one it is let go of. With `carry`,
        tiles of products that are under way when the iteration ends are let go of one iteration later. With `turns`,
        warpgroups issue the iteration's products one after the other.
        """
        here = self.loop.loop_var if at is None else at
        iterations = [here + s.ahead if s.ahead else here for s in steps]
        releases = self._releases(steps)
        out: list[Guarded] = []
        late = [r.use for r in releases if carry and r.at_end and r.use.channel.versions > 1]
        issued = [n for n, s in enumerate(steps) if s.piece.place in self.products]
        for position, (step, iteration) in enumerate(zip(steps, iterations)):
            for use in self.uses:
                if use.users[0] is step.piece:
                    out.append(([], self._bring(use, iteration)))
                    out.append(([], use.channel.wait(self._number(iteration))))
            if turns is not None and position == issued[0]:
                out.append(([], turns.take()))
            stmts = [step.piece.stmt]
            if late and position == issued[0]:
                stmts = head_and_rest(step.piece.stmt)
            for part, stmt in enumerate(stmts):
                out.append(self._stated(stmt, step.piece, iteration, copied=at is not None))
                if late and position == issued[0] and not part:
                    out += self._later(late)
            if turns is not None and position == issued[-1]:
                out.append(([], turns.pass_on(self.turn + 2 < self.loop.extent)))
            for release in [r for r in releases if r.after == position and r.use not in late]:
                use = release.use
                if release.pending is not None:
                    out.append(([], run(f"tl::wgmma_wait<{release.pending}>", span=self.loop.span)))
                last = next(n for n, s in enumerate(steps) if s.piece is use.users[-1])
                out += [([], s) for s in use.channel.release(self._number(iterations[last]), self.thread)]
        return merged(out)

    def _later(self, late: list[Use]) -> list[Guarded]:
        """When an iteration has issued the first instructions of its first product: let go of what the iteration before
        it used. Not behind a long product, whose instructions are issued as the tensor cores take them.

        The wait stands under the arrivals' condition only if other statements of the loop touch the results as well: so it
        is that ptxas (13) keeps products beside each other. The other way round it puts them one after the other, with its
        remarks C7512 (gradients of attention) and C7514 (an output that is scaled in each iteration).
        """
        self.carried = late
        number = self._number(self.loop.loop_var - 1)
        before = [self.turn > 0]
        results = {result_of(use.users[-1]) for use in late}
        others = [p for p in self.rest if p.place not in self.products]
        shared = any(mentions(p) & results for p in others)
        out: list[Guarded] = [(before if shared else [], run("tl::wgmma_wait<1>", span=self.loop.span))]
        for use in late:
            out += [(before, s) for s in use.channel.release(number, self.thread)]
        return out

    def _releases(self, steps: Sequence[Step]) -> list[_Release]:
        """The channels whose last use is in `steps`, and where they are let go of."""
        found = []
        hidden = any(s.piece.place in self.busy - self.products for s in steps)
        under_way = [s.piece.place in self.products for s in steps]
        for use in self.uses:
            last = next((n for n, s in enumerate(steps) if s.piece is use.users[-1]), None)
            if last is None:
                continue
            if not any(p.place in self.busy for p in use.users):
                found.append(_Release(use, last))
                continue
            if hidden or not under_way[last]:
                mine = max((n for n in range(last + 1) if under_way[n] and steps[n].piece in use.users), default=-1)
                found.append(_Release(use, last, 0 if hidden else sum(under_way[mine + 1 : last + 1])))
                continue
            busy = set(registers_of(steps[last].piece))
            touching = (n for n in range(last + 1, len(steps)) if mentions(steps[n].piece) & busy)
            stop = next(touching, len(steps))
            found.append(_Release(use, stop - 1, sum(under_way[last + 1 : stop]), at_end=stop == len(steps)))
        return found

    def _bring(self, use: Use, iteration: Any) -> Any:
        """The producer's statements for the use that `iteration` makes of a channel."""
        number = self._number(iteration)
        version = Version(self.versioned, {t: use.channel.slot(number) for t in self.versioned})
        moves: list[tuple[ops.Copy, Any, bool]] = []
        for piece in use.copies:
            stmt = version.body(self._moved(piece.stmt, iteration))
            copy = ops.parse(stmt.value)
            assert isinstance(copy, ops.Copy)
            moves.append((copy, piece.span, piece.place in self.shared))
        conditions = [self._moved(c, iteration) for c in use.copies[0].conditions]
        return use.channel.bring(moves, number, conditions)

    def _moved(self, node: Any, iteration: Any) -> Any:
        """An expression or statement of the loop, for another iteration."""
        if iteration is self.loop.loop_var:
            return node
        return substitute(inlined(node, self.schedule.values), {self.loop.loop_var: iteration})

    def _stated(self, stmt: Any, piece: Piece, iteration: Any, *, copied: bool) -> Guarded:
        """`stmt`, which is `piece` or a part of it, and its conditions, for an iteration."""
        stmt = self._moved(stmt, iteration)
        if copied:
            stmt = renewed(stmt)
        number = self._number(iteration)
        slots = {t: u.channel.slot(number) for u in self.uses for t in u.channel.tiles if t in self.versioned}
        conditions = [self._moved(c, iteration) for c in piece.conditions]
        return conditions, Version(self.versioned, slots).body(stmt)


def versions_of(tile: Any, count: int) -> Any:
    """The buffer of `count` versions of a tile."""
    shape, dtype = [count, *tile.ty.shape], tile_ir.dtype_name(tile)
    return tir.decl_buffer(shape, dtype, name=tile.name, scope=tile.scope(), layout=None)


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two keys of numbers and expressions agree."""
    return len(a) == len(b) and all(x == y if isinstance(x, int) else x.same_as(y) for x, y in zip(a, b))


def trips(loop: tir.For) -> Any:
    """How often a loop runs: not at all if its extent is negative."""
    extent = as_int32(loop.extent)
    return extent if tile_ir.static(extent) is not None else tir.Max(extent, int32(0))


def as_int32(value: Any) -> Any:
    return value if str(value.ty) == "int32" else tir.Cast("int32", value)


def _under(condition: Any, stmts: list[Any], span: Any) -> Any:
    known = tile_ir.static(condition) if not isinstance(condition, bool) else int(condition)
    if known is not None:
        return tile_ir.sequence(stmts if known else [])
    return tir.IfThenElse(condition, tile_ir.sequence(stmts), None, span=span)
