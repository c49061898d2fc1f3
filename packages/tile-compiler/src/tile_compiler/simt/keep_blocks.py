"""Blocks that stay: as many as multiprocessors, which take the tiles of the grid by turns, where that pays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.passes.bounds import safe_values
from tile_compiler.ranges import Ranges, conjunction, reads_memory, shape_variables
from tile_compiler.rewrite import is_call, map_kernels
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import int32, is_global
from tile_compiler.simt.rasterize_grid import Panels
from tile_compiler.simt.tensor_maps import tma_able
from tile_compiler.simt.tile_order import best_panels, coordinates, is_pipelined
from tilelang import ops
from tilelang.autotuner.model import LAUNCH_SECONDS, estimate
from tilelang.ir import tile_ir
from tilelang.ir.tile_work import LaunchWork, TileWork, tile_work

if TYPE_CHECKING:
    from tilelang.autotuner.machine import Machine

LEAVE = "tl.disable_staying_blocks"
NO_TMA, NO_ROLES = "tl.disable_tma_lower", "tl.disable_warp_specialized"
BEGIN_SECONDS = 1.4e-6  # from a block's end to the next one's first products: 0.9 us, and loads that nothing covers
LEAST_GAIN = 0.01  # of a tile's time; below, nothing was measured, and more code has to be proved
SCRATCH = 8192  # bytes of a block for barriers and for what warps exchange
TYPICAL = 4096  # what dimensions that are not known count as, for the time of a tile and the order of tiles
DECLARATIONS = (ops.AnnotateLayout, ops.Hint, ops.ImportSource)
#: Operators by which the user says how threads and blocks wait for each other, or that show the number of a block.
BY_HAND = (
    ops.AcrossBlocks,
    ops.BarrierOp,
    ops.DependentLaunch,
    ops.DeviceAssert,
    ops.Print,
    ops.SetMaxNreg,
    ops.TmaCopy,
)


def keep_blocks(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """A grid of more tiles than multiprocessors becomes as many blocks, each with a loop over its share of the tiles.

    before:     kernel(grid = (bx: 64, by: 32)): allocations;  for k in pipelined(K): ...;  store(C[by, bx])
    after:      kernel(grid = (block: 132)): allocations
                    for turn in ceildiv(2048 - block, 132):
                        bx, by = coordinates(turn * 132 + block);  for k in pipelined(K): ...;  store(C[by, bx])

    With a producer warp (`roles.plan_channels`) the loads of a block's next tile then come under the end of the present one.
    Where blocks leave, their first loads stand alone, after the time that it takes to begin a block: the shorter a tile, the
    more that is of its time (measured 0 to 13 %, predicted 1 to 13: docs/performance/cuda.md). It pays where one block fills
    a multiprocessor; where several fit, one computes while another begins. Blocks of equal work only: shares are dealt before
    the launch, while a block that leaves makes room for the next whenever it is done. The report says why a kernel's blocks
    stay or leave.

    The order of tiles is the one that `T.use_swizzle` wishes, else the one of `tile_order` with the fewest bytes for the
    tiles that are computed at the same time.

    Where a call decides how many tiles there are, at most 2^31 - 1, as many blocks are launched as there are tiles, up to the
    number of multiprocessors:

    after:      kernel(grid = (block: min(tiles, 132))): allocations
                    for turn in ceildiv(tiles - block, 132):
                        bx, by = coordinates(turn * 132 + block);  assume(bx, by lie in the grid);  ...

    Dimensions that are not known count as 4096 in what is estimated then: the time of a tile, and the order of tiles.
    """
    machine = ctx.machine
    if machine is None or not ctx.arch.has_tma or ctx.options.get(NO_TMA) or ctx.options.get(NO_ROLES):
        return func
    works = tile_work(func, {str(v.name): TYPICAL for v in shape_variables(func)}).launches

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        loops = [n for n in tile_ir.walk(kernel.body, tir.For) if is_pipelined(n)]
        planned = all(tile_ir.PIPELINE_ORDER not in n.annotations for n in loops)
        if not loops or not planned or len(kernel.threads) > 1 or by_hand(kernel):
            return kernel  # no producer warp would bring tiles
        work = works[[k.index for k in tile_ir.kernels(func)].index(kernel.index)]
        reason = _without_producer(func, kernel, ctx) or _reason(kernel, work, machine, ctx)
        if reason:
            ctx.report.note(kernel.span, f"a block for each tile: {reason}")
            return kernel
        return _stay(kernel, work, machine, ctx)

    return map_kernels(func, rule)


def by_hand(kernel: tile_ir.Kernel) -> bool:
    """Whether the user gives threads roles, lets them wait or leave by means of his own, but for a `leading_wait`, or asks for a
    block's number in a way that is not the grid's variable."""
    if any(tile_ir.as_thread_group(n) is not None for n in tile_ir.walk(kernel.body, tir.AttrStmt)):
        return True
    if any(str(n.buffer.scope()) == tile_ir.BARRIER for n in tile_ir.walk(kernel.body, tir.AllocBuffer)):
        return True
    if any(tile_ir.walk(kernel.body, tir.Return)):
        return True
    outside = (n for n in tile_ir.walk(kernel.body, ir.Call) if is_call(n, "tirx.call_extern"))
    if any(not str(n.args[0].value).startswith("tl::") for n in outside):
        return True  # text that may read blockIdx
    wait = leading_wait(kernel)
    calls = (n for n in tile_ir.walk(kernel.body, tir.Evaluate) if wait is None or not n.same_as(wait))
    return any(isinstance(ops.operator_of(n), BY_HAND) for n in calls)


def leading_wait(kernel: tile_ir.Kernel) -> Any | None:
    """The `T.pdl_sync` in front of all else that a kernel does, which stays there whatever becomes of the rest; None without."""
    for stmt in tile_ir.statements(kernel.body):
        op = ops.operator_of(stmt)
        if isinstance(op, ops.DependentLaunch) and not op.trigger:
            return stmt
        declares = isinstance(stmt, (tir.AllocBuffer, tir.Bind)) or isinstance(op, DECLARATIONS)
        if not declares and not (isinstance(stmt, tir.Evaluate) and is_call(stmt.value, "tirx.assume")):
            return None
    return None


def _without_producer(func: tir.PrimFunc, kernel: tile_ir.Kernel, ctx: SimtContext) -> str:
    """Why no copy of a pipelined loop comes by TMA, so that no producer warp would load a next tile; "" if one does."""
    ranges, safe = Ranges.of_kernel(func, kernel), list(safe_values(kernel.body))
    loops = [n for n in tile_ir.walk(kernel.body, tir.For) if is_pipelined(n)]
    found = (ops.operator_of(n) for loop in loops for n in tile_ir.walk(loop.body, tir.Evaluate))
    copies = [op for op in found if isinstance(op, ops.Copy) and is_global(op.src.source)]
    plans = [tma_able(op.src, op.dst, ranges, ctx, safe=safe) for op in copies]
    faults = [plan for plan in plans if isinstance(plan, str)]
    if len(faults) < len(plans):
        return ""
    return f"no copy by TMA, as {faults[0]}" if faults else "no copies from global memory in pipelined loops"


def _reason(kernel: tile_ir.Kernel, work: LaunchWork, machine: Machine, ctx: SimtContext) -> str:
    """Why a block leaves when its tile is done; "" if blocks shall stay."""
    if ctx.options.get(LEAVE):
        return f"{LEAVE} asks for it"
    if kernel.index in ctx.clusters:
        return "clusters keep their grid"
    tiles = _number(kernel)
    if tiles is not None and tiles <= machine.multiprocessors:
        share = 100 * tiles // machine.multiprocessors
        return f"{tiles} tiles, at most one for each of {machine.multiprocessors} multiprocessors ({share}% busy)"
    if any(str(v.ty) != "int32" for v, _ in kernel.grid) or any(tile_ir.walk(kernel.body, tir.While)):
        return "blocks that wait in a loop may wait for others"
    uneven = _uneven(kernel)
    if uneven:
        return f"tiles of unequal work, as {uneven}; who is done takes the next one"
    together = sum(t.bytes for t in work.tiles.values() if t.scope == "shared")
    if together + SCRATCH > machine.shared_per_block:
        return (
            f"{together} bytes of shared tiles have no room beside each other, and a tile's end overlaps the next one"
        )
    fit = machine.occupancy(int(kernel.num_threads or 1), 1, together)["shared memory"]
    if fit > 1:
        return f"shared memory holds {fit} blocks of a multiprocessor, of which one computes while another begins"
    tile = _tile_seconds(work, machine)  # who has symbolic extents may call with small ones, whose tiles take less
    if tile is not None and BEGIN_SECONDS < LEAST_GAIN * tile:
        return f"a tile takes {1e6 * tile:.0f} us, and to begin one {1e6 * BEGIN_SECONDS:.1f} us: less than {LEAST_GAIN:.0%}"
    return ""


def _number(kernel: tile_ir.Kernel) -> int | None:
    """How many tiles there are; None where a call decides."""
    extents = [tile_ir.static(extent) for _, extent in kernel.grid]
    return None if None in extents else math.prod(e or 0 for e in extents)


def _tile_seconds(work: LaunchWork, machine: Machine) -> float | None:
    """About how long a block works at one tile, by the autotuner's model; None where it has no figures."""
    found = estimate(TileWork((work,), None), machine)
    rounds = math.ceil((work.blocks or 1) / machine.multiprocessors)
    return None if found is None else (found.seconds - LAUNCH_SECONDS) / rounds


def _uneven(kernel: tile_ir.Kernel) -> str:
    """Why tiles may differ in work: how often a loop runs, or whether a pipelined one does, hangs on the block or on memory."""
    place = {var for var, _ in kernel.grid}
    for node in tile_ir.walk(kernel.body, tir.Bind):  # in order: a value before those made of it
        if not place.isdisjoint(tile_ir.walk(node.value, ir.Var)):
            place.add(node.var)
    for node in tile_ir.walk(kernel.body, tir.For, tir.IfThenElse):
        if isinstance(node, tir.IfThenElse):
            if not any(is_pipelined(n) for n in tile_ir.walk(node, tir.For)):
                continue
            asked, what = node.condition, "a condition around a pipelined loop"
        else:
            asked, what = node.extent, f"the loop over {node.loop_var.name}"
        if reads_memory(asked):
            return f"{what} hangs on memory"
        if not place.isdisjoint(tile_ir.walk(asked, ir.Var)):
            return f"{what} hangs on the block"
    return ""


def _stay(kernel: tile_ir.Kernel, work: LaunchWork, machine: Machine, ctx: SimtContext) -> tile_ir.Kernel:
    count, tiles = machine.multiprocessors, _number(kernel)
    panels, why = _order(kernel, count)
    tile = _tile_seconds(work, machine)
    gain = "" if tile is None else f" ({1e6 * BEGIN_SECONDS:.1f} of {1e6 * tile:.0f} us)"
    block, turn = tir.Var("block", "int32"), tir.Var("turn", "int32")
    extents = [extent for _, extent in kernel.grid]
    places = coordinates(turn * int32(count) + block, extents, panels)
    binds: list[Any] = [tir.Bind(var, place, span=kernel.span) for (var, _), place in zip(kernel.grid, places)]
    declared: list[Any] = []
    rest: list[Any] = []
    wait = leading_wait(kernel)
    for stmt in tile_ir.statements(kernel.body):
        op = ops.operator_of(stmt)
        if isinstance(op, ops.Hint) and op.kind == "use_swizzle":
            continue
        once = (
            isinstance(stmt, tir.AllocBuffer)
            or isinstance(op, DECLARATIONS)
            or (wait is not None and stmt.same_as(wait))
        )
        (declared if once else rest).append(stmt)
    if tiles is None:
        total = math.prod(extents[1:], start=extents[0])
        launched, turns = tir.min(total, int32(count)), tir.floordiv(total - 1 - block, int32(count)) + 1
        binds.append(_inside(kernel))
        number, most = (
            "the tiles of a call",
            f"as many blocks as there are tiles if these are fewer; sizes unknown count as {TYPICAL}",
        )
    else:
        launched, turns = int32(count), int32(tiles // count)
        if tiles % count:
            turns = tir.floordiv(int32(tiles - 1) - block, int32(count)) + 1
        number, most = f"{tiles} tiles", f"{-(-tiles // count)} at most"
    body = tile_ir.sequence([*binds, *rest])
    notes = {tile_ir.INDEPENDENT: 1}
    loop = tir.For(turn, int32(0), turns, tir.ForKind.SERIAL, body, annotations=notes, span=kernel.span)
    ctx.report.note(
        kernel.span,
        f"blocks stay: {count}, one for each multiprocessor of {machine.name}, take {number} by turns, {most}; "
        f"what the next tile loads comes under the end of the last{gain}{why}",
    )
    whole = tile_ir.sequence([*declared, loop])
    return tile_ir.Kernel(kernel.index, ((block, launched),), kernel.threads, whole, kernel.span)


def _inside(kernel: tile_ir.Kernel) -> tir.Evaluate:
    """`T.assume(0 <= bx < extent and ...)`: what no analysis finds of a remainder by an extent that is not known."""
    bounds = [part for var, extent in kernel.grid for part in (var >= 0, var < extent)]
    return tir.Evaluate(ir.Call(ir.Op.get("tirx.assume"), [conjunction(bounds)], ret_ty="bool"))


def _order(kernel: tile_ir.Kernel, flying: int) -> tuple[Panels | None, str]:
    """The order of tiles, and what the report says of it."""
    wished = (ops.operator_of(n) for n in tile_ir.walk(kernel.body, tir.Evaluate))
    hints = [op for op in wished if isinstance(op, ops.Hint) and op.kind == "use_swizzle"]
    if hints:
        panels = Panels.of(hints[-1])
        return (
            panels,
            "" if panels is None else f"; panels of {panels.size}, by {panels.order}, as T.use_swizzle wishes",
        )
    panels, asked = best_panels(kernel, flying, TYPICAL)
    each = ", ".join(
        f"{size / 2**20:.1f} MB {f'in panels of {n}' if n else 'in the order of the grid'}" for n, size in asked.items()
    )
    taken = "in the order of the grid" if panels is None else f"in panels of {panels.size}"
    return panels, f"; {taken}: a step of {flying} tiles asks the L2 cache for {each}" if asked else ""
