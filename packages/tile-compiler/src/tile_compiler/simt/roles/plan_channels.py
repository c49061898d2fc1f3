"""Hand the copies of pipelined loops to a producer, and overlap what the tensor cores do with the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx as tir

from tile_compiler.passes.bounds import safe_values
from tile_compiler.passes.lower_tile_ops import alias_roots
from tile_compiler.passes.plan_pipeline import KEYS
from tile_compiler.ranges import RangeRewriter, Ranges
from tile_compiler.rewrite import map_kernels, remake_loop
from tile_compiler.simt.annotations import settled
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.layout.equations import Unknown
from tile_compiler.simt.multicast import in_parts
from tile_compiler.simt.operators.nests import int32, is_shared, static_shape, store
from tile_compiler.simt.pipeline_schedule import Piece, Schedule, Scheduler, inlined, mentions
from tile_compiler.simt.plan_clusters import Cluster
from tile_compiler.simt.plan_pipeline import Rename
from tile_compiler.simt.roles.channels import Channel
from tile_compiler.simt.roles.independence import Alike, Independence
from tile_compiler.simt.roles.single import Single
from tile_compiler.simt.roles.specialize_loop import SpecializedLoop, versions_of
from tile_compiler.simt.tensor_maps import Plan, tma_able
from tilelang import ops
from tilelang.ir import tile_ir

NO_TMA, NO_ROLES = "tl.disable_tma_lower", "tl.disable_warp_specialized"


def plan_channels(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Copies of pipelined loops that the tensor memory accelerator can do become channels (`roles.channels`).

    before:     for k in pipelined(K, 3): copy(A[k], s); gemm(s, ...)
    after:      for k in K:
                    producer: wait(empty[k % 3]); expect(full[k % 3]); tma_copy(A[k], s[k % 3], full[k % 3])
                    wait(full[k % 3])
                    gemm(s[k % 3], ...)
                    if k > 0: wgmma_wait<1>; arrive(empty[(k - 1) % 3])
                wgmma_wait<0>; arrive(empty[(K - 1) % 3])

    The statements stay in the order of one program, whose meaning is the loop's; `split_roles` gives the producer's to
    warps of their own, which then run up to as many uses ahead as there are versions.

    Products are asynchronous, so their operands are let go of as late as a product's result is next touched; if that
    is in the next iteration, one batch of products stays under way across the loop's back edge. Where a product needs
    the result of an earlier one of its iteration, as in attention, the first product of the next iteration goes before
    it (`roles.order`), and what lies between them runs while the tensor cores are busy.

    Where the loop, or what it brings, hangs on what the block computes, a producer could not know how often to bring
    what (`roles.independence`): the loop stays for `plan_pipeline`, and the report says why.

    Of the tiles of a kernel that runs in clusters, those that are the same in all blocks of a cluster come once for all of
    them, in parts (`multicast`).

    `T.pdl_sync` stays where it is in both programs: what stands behind it is not loaded before. `T.pdl_trigger` is the
    consumers' alone.

    In a kernel that has channels, tiles that are brought once from global memory before they are used come by them too;
    so do those that are brought once in each iteration of a loop around a pipelined one (`roles.single`).
    """
    if not ctx.arch.has_tma or ctx.options.get(NO_TMA) or ctx.options.get(NO_ROLES):
        return func

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        if any(tile_ir.as_thread_group(n) is not None for n in tile_ir.walk(kernel.body)):
            return kernel  # the user has given the roles
        meeting = _meets_others(kernel)
        if meeting:
            ctx.report.note(kernel.span, f"no producer warp: all threads come to {meeting}")
            return kernel
        planner = Planner(func, kernel, ctx)
        body = planner.body(kernel.body)
        if not planner.channels:
            return kernel
        planner.uneven = ""
        body = Single(planner).of_kernel(body)
        body = Rename(planner.versions).body(body)
        consumers = int(kernel.num_threads or 1)
        barriers = [b for channel in planner.channels for b in channel.barriers(consumers)]
        whole = tile_ir.sequence([*barriers, *planner.counters(), *tile_ir.statements(body), *planner.last])
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, whole, kernel.span)

    return map_kernels(func, rule)


def _meets_others(kernel: tile_ir.Kernel) -> str:
    """Where all threads of several blocks meet, or wait for earlier launches, while a producer may still have work and would
    not come by; "" if nowhere. A barrier of a cluster does not wait for threads that have ended (PTX ISA,
    `barrier.cluster`), so that one behind the last tile is for the consumers alone; a wait for earlier launches is a
    producer's too, if it is a statement of the kernel's own."""
    met = False
    for stmt in tile_ir.statements(kernel.body):
        found = [ops.operator_of(n) for n in tile_ir.walk(stmt, tir.Evaluate)]
        if any(isinstance(op, ops.GridSync) for op in found):
            return "T.sync_grid"
        if any(isinstance(op, ops.DependentLaunch) for op in found) and not isinstance(stmt, tir.Evaluate):
            return "T.pdl_sync or T.pdl_trigger in another statement"
        met = met or any(isinstance(op, ops.AcrossBlocks) for op in found)
        if met and any(isinstance(op, ops.Copy) and is_shared(op.dst.source) for op in found):
            return "T.cluster_sync before the last tile is there"
    return ""


class Planner(RangeRewriter):
    def __init__(self, func: tir.PrimFunc, kernel: tile_ir.Kernel, ctx: SimtContext) -> None:
        super().__init__(Ranges.of_kernel(func, kernel))
        self.kernel, self.ctx = kernel, ctx
        self.roots = alias_roots(func.body)
        self.safe = safe_values(kernel.body)
        self.scheduler = Scheduler(kernel.body, self.roots)
        self.versions: dict[Any, Any] = {}
        self.channels: list[Channel] = []
        self.counts: list[Any] = []
        self.last: list[Any] = []  # statements for the kernel's end
        self.independence = Independence(kernel, self.scheduler.written, self.roots)
        self.around: list[Any] = []  # loops and conditions around the statement at hand
        self.cluster = _along_one_axis(kernel, ctx)
        self.rank = None if self.cluster is None else self.cluster.rank(kernel)
        self.alike = None
        if self.cluster is not None:
            (number, _) = kernel.grid[self.cluster.axis or 0]
            self.alike = Alike(kernel, self.scheduler.written, self.roots, number, self.cluster.size)
        self.uneven = ""  # why the blocks of a cluster may run the loop at hand unequally often

    def counters(self) -> list[Any]:
        """The allocations of what counts uses, set to 0."""
        return [s for c in self.counts for s in (tir.AllocBuffer(c), store(c, int32(0), 0))]

    def branch(self, node: tir.IfThenElse) -> Any:
        self.around.append(node)
        new = super().branch(node)
        self.around.pop()
        return new

    def while_loop(self, node: tir.While) -> Any:
        self.around.append(node)
        new = super().while_loop(node)
        self.around.pop()
        return new

    def loop(self, node: tir.For) -> Any:
        self.around.append(node)
        unknown = next((w for n in self.around if (w := self.independence.fault_of(n))), "")
        uneven = next((w for n in self.around if self.alike and (w := self.alike.fault_of(n))), "")
        original, channels = node, len(self.channels)
        node = super().loop(node)
        self.around.pop()
        self.uneven = uneven
        notes = {str(k): tile_ir.plain(v) for k, v in (node.annotations or {}).items()}
        count = int(notes.get(tile_ir.PIPELINED) or 0)
        if not count or notes.get(tile_ir.PIPELINE_ORDER) or notes.get(tile_ir.PIPELINE_STAGE):
            around = len(self.channels) > channels and not unknown
            return Single(self).of_loop(node, original) if around else node
        if unknown:
            self.ctx.report.note(node.span, f"no warp roles: how often the loop runs hangs on {unknown}")
            return node
        plain = remake_loop(node, annotations={k: v for k, v in notes.items() if k not in KEYS})
        schedule = self.scheduler.automatic(plain, max(count, 2))
        able: dict[int, Plan] = {}
        for piece in schedule.pieces:
            if piece.copy is None or not self._is_used(piece, schedule):
                continue
            conditions = [inlined(c, schedule.values) for c in piece.conditions]
            plan = self.plan(piece.copy, piece.span, count, conditions)
            if plan is not None:
                able[piece.place] = plan
        if not able:
            return node
        counter = self.counter()
        made = SpecializedLoop(plain, schedule, able, count, counter, self.rank, self.kernel, self.ctx, self.roots)
        self.channels += made.channels
        self.last += made.last_waits()
        self.versions |= made.versioned
        return made.statement()

    def _is_used(self, piece: Piece, schedule: Schedule) -> bool:
        return piece.copy is not None and any(
            p is not piece and piece.copy.dst.source in mentions(p) for p in schedule.pieces
        )

    def plan(self, copy: ops.Copy, span: Any, versions: int = 1, conditions: Sequence[Any] = ()) -> Plan | None:
        """How a producer brings a copy's tile, which gets so many versions."""
        if len(self.kernel.threads) > 1 or copy.disable_tma:
            return None
        unknown = next((w for n in (copy.src, *conditions) if (w := self.independence.fault(n))), "")
        if unknown:
            self.ctx.report.note(span, f"T.copy: {copy.dst.source.name} not by a producer, as it hangs on {unknown}")
            return None
        dst, layout = self._versioned(copy.dst, versions)
        found = tma_able(copy.src, dst, self.ranges, self.ctx, layout=layout, safe=list(self.safe))
        if isinstance(found, str):
            self.ctx.report.note(span, f"T.copy: {copy.dst.source.name} not by TMA, as {found}")
            return None
        return self._in_parts(copy, dst, layout, span, conditions) or found

    def _in_parts(self, copy: ops.Copy, dst: Any, layout: Any, span: Any, conditions: Sequence[Any]) -> Plan | None:
        """How the blocks of a cluster bring a tile to each other, if it is the same in all of them."""
        if self.cluster is None or self.alike is None:
            return None
        size, name = self.cluster.size, copy.dst.source.name
        own = self.uneven or next((w for n in (copy.src, *conditions) if (w := self.alike.fault(n))), "")
        if own:
            self.ctx.report.note(span, f"{name}: each block of a cluster brings its own, as it hangs on {own}")
            return None
        found = in_parts(copy.src, dst, self.rank, size, self.ranges, self.ctx, layout=layout, safe=list(self.safe))
        how = "cannot be cut into equal parts" if found is None else f"comes once for all {size} blocks of a cluster"
        self.ctx.report.note(span, f"{name}: {how}")
        return found

    def _versioned(self, tile: Any, count: int) -> tuple[Any, Any]:
        """(the part of a buffer of `count` versions that is one of `tile`'s, the layout if that is settled already)."""
        made, region = tile.source, tile
        if count > 1:
            made = versions_of(tile.source, count)
            slot = tir.floormod(tir.Var("use", "int32"), int32(count))
            region = tile_ir.region(made, [(slot, int32(1)), *((r.min, r.extent) for r in tile.region)])
        unknown = Unknown(str(made.name), tuple(static_shape(made) or ()), made)
        views = {*self.roots, *self.roots.values()}
        known = settled(self.kernel, {tile.source: unknown}, int(self.kernel.num_threads or 1), views)
        return region, known.values.get(unknown)

    def counter(self) -> Any | None:
        """What holds the number of uses before the present loop begins, if the loop itself is repeated."""
        if not self.around:
            return None
        made = tir.decl_buffer((1,), "int32", name="uses", scope="local", layout=None)
        self.counts.append(made)
        return made


def _along_one_axis(kernel: tile_ir.Kernel, ctx: SimtContext) -> Cluster | None:
    """The cluster of a kernel, if its blocks lie along one axis: those of others bring tiles for themselves."""
    cluster = ctx.clusters.get(kernel.index)
    return None if cluster is None or cluster.axis is None else cluster
