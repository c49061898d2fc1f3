"""Tiles that one statement of a kernel, or of a loop, brings before the pipelined loops that use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import is_tile_operator
from tile_compiler.rewrite import is_call, remake_loop
from tile_compiler.simt.operators.nests import int32, is_global, is_shared, load, run, store
from tile_compiler.simt.pipeline_schedule import touched
from tile_compiler.simt.plan_pipeline import Version
from tile_compiler.simt.plan_shared_memory import shared_bytes
from tile_compiler.simt.roles.channels import Channel
from tile_compiler.simt.roles.products import holds_asynchronous
from tile_compiler.simt.roles.specialize_loop import as_int32, trips, versions_of
from tilelang import ops
from tilelang.ir import tile_ir

if TYPE_CHECKING:
    from tile_compiler.simt.roles.plan_channels import Planner

SCRATCH = 8192  # bytes of a block for barriers and for what warps exchange


class Single:
    """The copies among the statements of a kernel, or of a loop's body, to tiles that nothing else writes.

    before:     for t in T: copy(Q[t], q);  for k in pipelined(K): ... gemm(q, ...);  C(t)
    after:      for t in T:
                    producer: wait(empty[t % 2]);  expect(full[t % 2]);  tma_copy(Q[t], q[t % 2], full[t % 2])
                    wait(full[t % 2]);  for k in K: ... gemm(q[t % 2], ...)
                    wgmma_wait<0>;  arrive(empty[t % 2])
                    C(t)

    So the tile of the next iteration comes while consumers use this one, or, where the block has no room for two of them,
    while they do what follows its last use. In a kernel's own statements, which run once, nobody has to let go of a tile.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner

    def of_kernel(self, body: Any) -> Any:
        """The kernel's own statements."""
        stmts = tile_ir.statements(body)
        found = {n: c for n in range(len(stmts)) if (c := self._channel(stmts, n, once=True))}
        return self._rewritten(stmts, found, int32(0))

    def of_loop(self, loop: tir.For, original: tir.For) -> Any:
        """A loop around pipelined ones, after these were rewritten; `original` is the loop as it stands in the kernel."""
        stmts = tile_ir.statements(loop.body)
        if any(is_call(n, "tirx.break_loop", "tirx.continue_loop") for n in tile_ir.walk(loop.body)):
            return loop  # an iteration could end before the tile is let go of
        found = {}
        for position in range(len(stmts)):
            copy = _brings(stmts[position])
            if copy is not None and self.planner.scheduler.alone(copy.dst.source, original):
                channel = self._channel(stmts, position, once=False, versions=self._versions(copy.dst.source))
                if channel is not None:
                    found[position] = channel
        if not found:
            return loop
        counter = self.planner.counter()
        turn = loop.loop_var if tile_ir.static(loop.min) == 0 else loop.loop_var - loop.min
        number = as_int32(turn) if counter is None else load(counter, 0) + as_int32(turn)
        new = remake_loop(loop, body=self._rewritten(stmts, found, number))
        count = trips(loop) if counter is None else load(counter, 0)
        self.planner.last += [s for channel in found.values() for s in channel.last_waits(count)]
        if counter is None:
            return new
        return tile_ir.sequence([new, store(counter, load(counter, 0) + trips(loop), 0)])

    def _versions(self, tile: Any) -> int:
        """2 for a tile that has room for a second version, which costs no block of those that fit on a multiprocessor."""
        planner = self.planner
        allocated = (n.buffer for n in tile_ir.walk(planner.kernel.body, tir.AllocBuffer) if is_shared(n.buffer))
        taken = SCRATCH + sum(shared_bytes(planner.versions.get(b, b)) for b in allocated)
        alone = 2 * taken > planner.ctx.arch.shared_limit
        return 2 if alone and taken + shared_bytes(tile) <= planner.ctx.arch.shared_limit else 1

    def _channel(self, stmts: Sequence[Any], position: int, *, once: bool, versions: int = 1) -> Channel | None:
        """What brings the tile of the statement at `position`, if that is such a copy."""
        planner, stmt = self.planner, stmts[position]
        copy = _brings(stmt)
        if copy is None or planner.roots.get(copy.src.source, copy.src.source) in planner.scheduler.written:
            return None
        tile = copy.dst.source
        if tile in planner.roots or tile in planner.roots.values() or tile in planner.versions.values():
            return None
        before, after = stmts[:position], stmts[position + 1 :]
        if any(_mentions(s, tile) for s in before) or any(_writes(s, tile) for s in after):
            return None
        if not planner.scheduler.stable(copy.src, set()):
            return None
        span = stmt.value.span or stmt.span
        plan = planner.plan(copy, span, versions)
        if plan is None:
            return None
        if versions > 1:
            planner.versions[tile] = versions_of(tile, versions)
        often = "once" if once else "once in each iteration of the loop around"
        many = f" in each of {versions} versions" if versions > 1 else ""
        size = f"{plan.bytes} bytes{many}"
        planner.ctx.report.note(span, f"T.copy: {tile.name} by TMA from a producer warp, {size}, {often}")
        return Channel.of([tile], versions, plan.bytes, once=once, span=span, blocks=plan.blocks, rank=planner.rank)

    def _rewritten(self, stmts: Sequence[Any], found: dict[int, Channel], number: Any) -> Any:
        """`stmts`, of which those in `found` are the producer's: use `number` of their channels."""
        planner = self.planner
        planner.channels += found.values()
        thread = planner.kernel.threads[0][0]
        out: list[Any] = []
        waiting: dict[Any, Channel] = {}
        used: dict[Any, Channel] = {}
        doubled = {t: planner.versions[t] for c in found.values() for t in c.tiles if c.versions > 1}
        version = Version(doubled, {t: c.slot(number) for c in found.values() for t in c.tiles if t in doubled})
        for position, stmt in enumerate(stmts):
            for tile in [t for t in waiting if _mentions(stmt, t)]:
                used[tile] = waiting.pop(tile)
                out.append(used[tile].wait(number))
            channel = found.get(position)
            if channel is None:
                out += tile_ir.statements(version.body(stmt))
            else:
                copy = ops.parse(version.body(stmt).value)
                assert isinstance(copy, ops.Copy)
                span = stmt.value.span or stmt.span
                out.append(channel.bring([(copy, span, channel.blocks > 1)], number, []))
                waiting[channel.tiles[0]] = channel
            for tile in [t for t in used if not any(_mentions(s, t) for s in stmts[position + 1 :])]:
                last = used.pop(tile)
                if last.empty is None:
                    continue
                if any(holds_asynchronous(s, planner.kernel, planner.ctx) for s in stmts if _mentions(s, tile)):
                    out.append(run("tl::wgmma_wait<0>", span=last.span))
                out += last.release(number, thread)
        for channel in waiting.values():  # nobody uses the tile
            out += [channel.wait(number), *(channel.release(number, thread) if channel.empty is not None else ())]
        return tile_ir.sequence(out)


def _brings(stmt: Any) -> ops.Copy | None:
    """The copy from global to shared memory that a statement is."""
    op = ops.parse(stmt.value) if is_tile_operator(stmt) else None
    fits = isinstance(op, ops.Copy) and is_global(op.src.source) and is_shared(op.dst.source)
    return op if fits and isinstance(op, ops.Copy) else None


def _mentions(stmt: Any, tile: Any) -> bool:
    return any(tile in found for found in touched(stmt))


def _writes(stmt: Any, tile: Any) -> bool:
    return tile in touched(stmt)[1]
