"""Prove the absence of races within a block by enumerating its threads over the final form.

Shares nothing with `insert_barriers`: addresses are evaluated with numpy for every thread, statement by statement.
"""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.signature import TENSOR_MAP
from tile_compiler.simt.block_memory import is_role
from tile_compiler.simt.checker.granularity import TooCoarse
from tile_compiler.simt.checker.lanes import companies
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.enumeration import Block
from tile_compiler.simt.errors import BarrierMismatch, ProductUnderWay, SharedMemoryRace
from tile_compiler.simt.scenarios import scenarios
from tile_compiler.simt.side_by_side import NotFollowed, SideBySide, has_programs
from tile_compiler.simt.written_again import read_and_written, written_again
from tilelang.ir import tile_ir

REFUTED = (SharedMemoryRace, BarrierMismatch, ProductUnderWay)


def check_synchronization(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Raise `SharedMemoryRace`, naming both lines, where two threads can meet without a barrier between them.

    before, after: the same function.

    Looked at is the block's shared memory, byte for byte, and global memory that one kernel reads and writes, or writes on
    several lines. Loops are walked until their state repeats (`repetition.py`), dynamic sizes and blocks are chosen so that every
    trip count occurs (`scenarios.py`), conditions that memory decides are taken both ways; warpgroups with programs of their own
    are walked beside each other (`side_by_side.py`). Three verdicts. *Refuted* is an error. *Unknown*: an address that
    cannot be evaluated counts as all of its buffer, so it passes only behind a barrier, which `insert_barriers` has
    placed where control is uniform. *Assumed* stands in report and manifest: barriers of a part of the block, functions
    of the user, tensors that bulk stores write and the block uses otherwise too, threads that write where memory says
    (in one statement, or on several lines of what is not read), what a limit left out.
    """
    host = [s for s in tile_ir.statements(func.body) if isinstance(s, tir.Bind)]
    for kernel in tile_ir.kernels(func):
        tracked = read_and_written(kernel)
        again = written_again(kernel)
        for loop in tile_ir.walk(kernel.body, tir.For):
            if str(loop.annotations.get(tile_ir.INDEPENDENT, "")) == tile_ir.PROMISED:
                ctx.report.assume(loop.span, "iterations of this loop write different elements: independent=True")
        for how, found in (("several lines write", again.tensors), ("a loop writes", again.in_loops - again.tensors)):
            for tensor in again.unknown(found - tracked):
                text = f"{how} {tensor.name} where memory says: different elements, or by the same threads"
                ctx.report.assume(kernel.span, text)
        more = (again.tensors | again.in_loops | again.in_one_statement | again.in_independent) - tracked
        believed = {s: again.by_memory[s] for t in more for s in again.stores[t] if s in again.by_memory}
        once = more - again.tensors - again.in_loops
        believed |= {s: False for t in once for s in again.stores[t] if s not in believed}
        tracked |= more
        if not tracked and not _shares(kernel):
            continue
        multiples, bounds = ctx.multiples.get(kernel.index, {}), ctx.bounds.get(kernel.index, [])
        chosen, complete = scenarios(func, kernel, tracked, multiples, bounds)
        if not complete:
            ctx.report.assume(
                kernel.span, f"other sizes and blocks synchronize like the {len(chosen)} that were checked"
            )
        for name in _stored_in_bulk(host, kernel):
            ctx.report.assume(
                kernel.span, f"what bulk stores write of {name} is not what the block reads or writes otherwise"
            )
        check = _check_programs if has_programs(kernel) else _check
        try:
            check(kernel, ctx, tracked, believed, chosen, host, False)
        except TooCoarse:
            check(kernel, ctx, tracked, believed, chosen, host, True)
    return func


def _check(
    kernel: tile_ir.Kernel,
    ctx: SimtContext,
    tracked: set[Any],
    believed: dict[Any, bool],
    chosen: list[dict[Any, Any]],
    host: list[Any],
    finely: bool,
) -> None:
    """A kernel all of whose threads run the same text."""
    produces = any(is_role(n) for n in tile_ir.walk(kernel.body, tir.AttrStmt))
    together = companies(kernel, produces, ctx)
    if len(together) > 1:
        walked = ", ".join(map(str, sorted({rank for ranks in together for rank in ranks or ()})))
        ctx.report.assume(kernel.span, f"the blocks of a cluster do to each other what those numbered {walked} do")
    for ranks in together:
        block = Block(kernel, ctx, tracked, finely, ranks=ranks)
        for values in chosen:
            try:
                block.run(values, host, believed)
            except REFUTED:
                if not block.either:
                    raise
                # Perhaps because both ways of conditions that never meet were taken.
                block = Block(kernel, ctx, tracked, finely, exactly=True, ranks=ranks)
                block.run(values, host, believed)


def _check_programs(
    kernel: tile_ir.Kernel,
    ctx: SimtContext,
    tracked: set[Any],
    believed: dict[Any, bool],
    chosen: list[dict[Any, Any]],
    host: list[Any],
    finely: bool,
) -> None:
    """A kernel whose warpgroups have programs of their own.

    Any order in which they can run proves it. Of several threads that touch a place the checker keeps the last moment
    alone, so that who reads before others may seem to read with them: what one order refutes, another may prove.
    """
    for values in chosen:
        refuted: Exception | None = None
        for backwards, wholly in ((True, False), (False, False), (True, True)):
            block = None
            try:
                block = SideBySide(kernel, ctx, tracked, finely, wholly, backwards)
                block.run(values, host, believed)
                break
            except NotFollowed:
                if refuted is None:
                    ctx.report.assume(kernel.span, "the warpgroups of T.ws wait for each other where they have to")
                    break
            except REFUTED as error:
                refuted = refuted or error
                if not backwards and (block is None or not block.skipped):
                    raise refuted from None  # no iterations were left out, which may not do as others
        else:
            assert refuted is not None
            raise refuted


def _shares(kernel: tile_ir.Kernel) -> bool:
    """Whether a kernel has shared memory or barriers."""
    return any(
        (isinstance(n, tir.AllocBuffer) and str(n.buffer.scope()) in tile_ir.SHARED)
        or (is_call(n, "tirx.call_extern") and "sync_threads" in str(n.args[0].value))
        for n in tile_ir.walk(kernel.body, tir.AllocBuffer, ir.Call)
    )


def _stored_in_bulk(host: list[Any], kernel: tile_ir.Kernel) -> list[str]:
    """The tensors that a kernel writes by bulk stores and uses in another way too: their places are not followed."""
    maps = {s.var: s.value.args[0].args[0] for s in host if is_call(s.value, TENSOR_MAP)}
    stored: set[Any] = set()
    used: set[Any] = set()
    for node in tile_ir.walk(kernel.body, ir.TensorLoad, tir.BufferStore, ir.Call):
        if isinstance(node, ir.TensorLoad):
            used.add(node.source)
        elif isinstance(node, tir.BufferStore):
            used.add(node.buffer)
        elif is_call(node, "tirx.call_extern"):
            name = str(node.args[0].value)
            named = {maps[a] for a in node.args[1:] if isinstance(a, ir.Var) and a in maps}
            if name.startswith(("tl::tma_store", "tl::tma_reduce")):
                stored |= named
            elif name.startswith("tl::tma_load"):
                used |= named
    return sorted(str(b.name) for b in stored & used)
