"""Parts of a sum over k in the blocks of a cluster, where the grid leaves most of the chip idle."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any

from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import alias_roots
from tile_compiler.rewrite import map_kernels, remake_loop
from tile_compiler.simt.carried_state import Carried, carried_state
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.keep_blocks import DECLARATIONS, by_hand
from tile_compiler.simt.operators.cluster_sum import ClusterSum, tiles_read
from tile_compiler.simt.operators.nests import int32, is_global
from tile_compiler.simt.pipeline_schedule import touched
from tile_compiler.simt.plan_clusters import WISH, wished
from tile_compiler.simt.roles.plan_channels import NO_ROLES, NO_TMA
from tile_compiler.simt.tile_order import is_pipelined
from tilelang import ops
from tilelang.autotuner.model import L2_BYTES_PER_CLOCK, blocks_per_multiprocessor, estimate
from tilelang.ir import tile_ir
from tilelang.ir.tile_work import LaunchWork, TileWork, tile_work, value_of

if TYPE_CHECKING:
    from tilelang.autotuner.machine import Machine

WHOLE = "tl.disable_split_sums"
# Blocks of a portable cluster (CUDA programming guide, "Thread Block Clusters"), and how many such clusters run at once where a
# block fills a multiprocessor (measured, H200: one more takes a second wave). A cluster lies in one GPC.
SIZES = {2: 66, 4: 30, 8: 15}
LEAST_GAIN = 0.15  # of a call's time
LEAST_STEPS = 4  # of a block's share: fewer do not fill the pipeline
LEAST_STEP = 0.05  # that a larger cluster must gain over a smaller one
# Measured on the H200, as the figures of `docs/performance/cuda.md` fit: what begins and ends a call beside the model's launch,
# what parts cost beside bytes, and once more for each doubling of the blocks.
ENDS_SECONDS, EXCHANGE_SECONDS, DOUBLING_SECONDS = 3e-6, 1.4e-6, 0.6e-6
REMOTE_BYTES_PER_CLOCK = 32  # that a multiprocessor reads of others' shared memory: 57 GB/s measured
# What one multiprocessor gets of L2 while few ask, and all of them together of tensors that come from memory meanwhile: 103 GB/s
# and 5.5 TB/s measured.
ALONE_BYTES_PER_CLOCK, TOGETHER_BYTES_PER_CLOCK = 59, 3130


@dataclasses.dataclass(frozen=True)
class _Site:
    """A kernel whose sums can be split: what stands before its loop and behind it, and how often the loop runs."""

    kernel: tile_ir.Kernel
    work: LaunchWork
    tiles: int
    before: list[Any]
    loop: tir.For
    behind: list[Any]
    sums: tuple[Any, ...]
    steps: int

    @property
    def bytes(self) -> int:
        """Of a block's sums."""
        return sum(self.work.tiles[str(t.name)].bytes for t in self.sums)


def split_sums(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """A few tiles with long sums: S blocks of a cluster compute the parts of a tile's sum, and the first adds them.

    before:     kernel(grid = (bx: 4, by: 2)): fill(c, 0);  for k in pipelined(256): ... gemm(a, b, c);  store(c, C[by, bx])
    after:      kernel(grid = (block: 16, by: 2), clusters of 4): bx = block / 4;  rank = block % 4;  fill(c, 0)
                    for k in pipelined(64): ... of rank * 64 + k ... gemm(a, b, c)
                    cluster_sum(c, rank);  if rank == 0: store(c, C[by, bx])

    The parts are added over distributed shared memory, in order of ranks: no scratch in global memory, one launch, the same
    result in every run. It differs from one block's as sums in another order do; sums of integers are the same.

    For grids that are known and leave at least half of the multiprocessors idle, and kernels of one pipelined loop that hands
    on nothing but sums (`carried_state`). How many blocks, if any: the fewest predicted seconds by the autotuner's model, from
    a gain of 15 % on. The report gives the figures, or says why a sum stays whole.
    """
    machine = ctx.machine
    if machine is None or not ctx.arch.has_tma or ctx.options.get(NO_TMA) or ctx.options.get(NO_ROLES):
        return func
    works, roots = tile_work(func).launches, alias_roots(func.body)

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        work = works[[k.index for k in tile_ir.kernels(func)].index(kernel.index)]
        if not any(is_pipelined(n) for n in tile_ir.walk(kernel.body, tir.For)) or not work.products:
            return kernel
        found = _site(kernel, work, machine, roots, ctx)
        if isinstance(found, str):
            ctx.report.note(kernel.span, f"sums in one block: {found}")
            return kernel
        seconds = {blocks: _seconds(found, blocks, machine) for blocks in (1, *_sizes(found, machine))}
        known = {blocks: s for blocks, s in seconds.items() if s is not None}
        best = _best(known)
        figures = ", ".join(f"{1e6 * s:.1f} us with {blocks}" for blocks, s in known.items())
        if best == 1 or known[best] > (1 - LEAST_GAIN) * known[1]:
            ctx.report.note(kernel.span, f"sums in one block: no gain of {LEAST_GAIN:.0%} predicted ({figures or '?'})")
            return kernel
        ctx.report.note(
            kernel.span,
            f"sums in parts: {best} blocks of a cluster share the {found.steps} steps of each of {work.blocks} tiles, the first "
            f"adds {', '.join(str(t.name) for t in found.sums)} in order (predicted {figures})",
        )
        return _split(found, best)

    return map_kernels(func, rule)


def _site(
    kernel: tile_ir.Kernel, work: LaunchWork, machine: Machine, roots: dict[Any, Any], ctx: SimtContext
) -> _Site | str:
    """What there is to split, or why there is nothing."""
    if ctx.options.get(WHOLE):
        return f"{WHOLE} asks for it"
    if work.blocks is None:
        return "how many tiles there are is known at the call alone"
    if not work.blocks:
        return "there are no tiles"
    if 2 * work.blocks > machine.multiprocessors:
        return _last_wave(work.blocks, machine)
    if wished(kernel) is not None:
        return "clusters are those that the user asks for"
    if len(kernel.threads) > 1 or by_hand(kernel):
        return "threads or blocks wait for each other by means of the user's"
    stmts = tile_ir.statements(kernel.body)
    loops = [n for n in tile_ir.walk(kernel.body, tir.For) if is_pipelined(n)]
    place = next((n for n, s in enumerate(stmts) if s.same_as(loops[0])), None)
    if len(loops) > 1 or place is None:
        return "not one pipelined loop alone, between what comes before and behind it"
    if tile_ir.PIPELINE_ORDER in loops[0].annotations:
        return "the loop's stages are the user's"
    before, loop, behind = stmts[:place], loops[0], stmts[place + 1 :]
    steps = value_of(loop.extent, {})
    if steps is None:
        return "how many steps there are is known at the call alone"
    if any(is_global(roots.get(b, b)) for s in before for b in touched(s)[1]):
        return "global memory is written before the loop"
    found: Carried = carried_state(before, loop, behind, roots)
    return found.fault or _Site(kernel, work, work.blocks, before, loop, behind, found.sums, steps)


def _last_wave(blocks: int, machine: Machine) -> str:
    count = machine.multiprocessors
    waves = -(-blocks // count)
    idle = 100 * (waves * count - blocks) // (waves * count)
    return (
        f"{blocks} tiles for {count} multiprocessors, {idle}% of them idle over {waves} wave{'s' * (waves > 1)}; parts of single "
        "tiles elsewhere (stream-K) would wait for each other through global memory"
    )


def _sizes(site: _Site, machine: Machine) -> list[int]:
    """The clusters that the chip has room for at once, with enough steps for each block."""
    resident = max(1, blocks_per_multiprocessor(site.work, machine))
    room = {s: min(resident * count, machine.multiprocessors // s) for s, count in SIZES.items()}
    return [s for s, count in room.items() if site.tiles <= count and s * LEAST_STEPS <= site.steps]


def _seconds(site: _Site, blocks: int, machine: Machine) -> float | None:
    """The predicted time of a call with so many blocks for each sum; None where the model has no figures."""
    work = site.work
    share = math.ceil(site.steps / blocks) / site.steps
    part = dataclasses.replace(
        work,
        blocks=site.tiles * blocks,
        products=[dataclasses.replace(p, times=max(1, math.ceil(p.times * share))) for p in work.products],
        steps=math.ceil(work.steps * share),
        read_bytes=math.ceil(work.read_bytes * share),
    )
    asking = min(site.tiles * blocks, machine.multiprocessors)
    rate = min(ALONE_BYTES_PER_CLOCK, TOGETHER_BYTES_PER_CLOCK / asking)
    more = part.read_bytes * (L2_BYTES_PER_CLOCK / rate - 1)  # the model's rate is that of all multiprocessors
    part = dataclasses.replace(part, written_bytes=part.written_bytes + round(more))
    found = estimate(TileWork((part,), None), machine)
    if found is None:
        return None
    seconds = found.seconds + ENDS_SECONDS
    if blocks == 1:
        return seconds
    exchanged = tiles_read(blocks) * site.bytes / (REMOTE_BYTES_PER_CLOCK * machine.clock)
    return seconds + len(site.sums) * (EXCHANGE_SECONDS + DOUBLING_SECONDS * math.log2(blocks)) + exchanged


def _best(seconds: dict[int, float]) -> int:
    """The number of blocks with the fewest seconds, or a smaller one that takes hardly more."""
    best = 1
    for blocks, s in seconds.items():
        if s < (1 - LEAST_STEP) * seconds[best]:
            best = blocks
    return best


def _split(site: _Site, blocks: int) -> tile_ir.Kernel:
    kernel, loop, span = site.kernel, site.loop, site.kernel.span
    (bx, extent), *others = kernel.grid
    block, rank, first = (tir.Var(name, "int32") for name in ("block", "rank", "first"))
    each, more = divmod(site.steps, blocks)
    start, count = rank * int32(each), int32(each)
    if more:
        start, count = (
            start + tir.min(rank, int32(more)),
            tir.floordiv(int32(site.steps + blocks - 1) - rank, int32(blocks)),
        )
    k = tir.Var(loop.loop_var.name, str(loop.loop_var.ty))
    here = tile_ir.substitute(loop.body, {loop.loop_var: loop.min + (first + k).astype(str(k.ty))})
    shared = remake_loop(loop, loop_var=k, min=tir.const(0, str(k.ty)), extent=count.astype(str(k.ty)), body=here)
    outside = [s for s in site.behind if _declares(s)]
    rest = [s for s in site.behind if not _declares(s)]
    hint = ops.Hint(WISH, json.dumps({"dims": [blocks] + [1] * len(others)}))
    body = [
        hint.to_stmt(span),
        tir.Bind(bx, tir.floordiv(block, int32(blocks)).astype(str(bx.ty)), span=span),
        tir.Bind(rank, tir.floormod(block, int32(blocks)), span=span),
        tir.Bind(first, start, span=span),
        *site.before,
        *outside,
        shared,
        *(ClusterSum(tile_ir.whole(t), rank, blocks).to_stmt(loop.span) for t in site.sums),
        tir.IfThenElse(tir.EQ(rank, int32(0)), tile_ir.sequence(rest), None, span=span),
    ]
    grid = ((block, int32((value_of(extent, {}) or 1) * blocks)), *others)
    return tile_ir.Kernel(kernel.index, grid, kernel.threads, tile_ir.sequence(body), span)


def _declares(stmt: Any) -> bool:
    return isinstance(stmt, (tir.AllocBuffer, tir.DeclBuffer)) or isinstance(ops.operator_of(stmt), DECLARATIONS)
