"""Decide how a pipelined loop runs: on a CPU, in order."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.errors import PipelineOrderError
from tile_compiler.rewrite import Rewriter, map_kernels, remake_loop
from tilelang.ir import tile_ir

KEYS = (tile_ir.PIPELINED, tile_ir.PIPELINE_ORDER, tile_ir.PIPELINE_STAGE)


def plan_pipeline(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """Make each `T.Pipelined` loop a plain loop: the processor overlaps loads with work by itself.

    before:     for k in T.serial(K, annotations={"tl.pipelined": 3}): ...
    after:      for k in range(K): ...

    `order` and `stage` are checked, so that a kernel that compiles here is well-formed for a GPU too.
    """
    planner = _Plan(ctx)
    return map_kernels(func, planner.kernel)


class _Plan(Rewriter):
    def __init__(self, ctx: CompileContext) -> None:
        self.ctx = ctx

    def kernel(self, kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, self.body(kernel.body), kernel.span)

    def loop(self, node: tir.For) -> Any:
        node = super().loop(node)
        notes = {str(k): v for k, v in (node.annotations or {}).items()}
        if tile_ir.PIPELINED not in notes:
            return node
        check_schedule(
            node, [int(v) for v in tile_ir.plain(notes.get(tile_ir.PIPELINE_ORDER)) or []], "order", self.ctx
        )
        check_schedule(
            node, [int(v) for v in tile_ir.plain(notes.get(tile_ir.PIPELINE_STAGE)) or []], "stage", self.ctx
        )
        self.ctx.report.note(node.span, "pipelined loop runs in order on this target")
        return remake_loop(node, annotations={k: v for k, v in notes.items() if k not in KEYS})


def check_schedule(loop: tir.For, entries: list[int], name: str, ctx: CompileContext) -> None:
    """`order` and `stage` have one entry for each scheduled statement; `order` is a permutation."""
    if not entries:
        return
    body = tile_ir.statements(loop.body)
    scheduled = [s for s in body if not isinstance(s, (tir.Bind, tir.AllocBuffer, tir.DeclBuffer))]
    if len(entries) == len(body) != len(scheduled):
        ctx.report.note(loop.span, f"{name} counts scalar binds too (accepted)")
    elif len(entries) != len(scheduled):
        raise PipelineOrderError(
            f"{name} of T.Pipelined has {len(entries)} entries",
            at=loop.span,
            found=f"{len(scheduled)} scheduled statements in the loop's body",
            expected="one entry for each copy, gemm, store, reduction or loop in the body",
            repair=f"give {name} {len(scheduled)} entries",
        )
    if name == "stage" and min(entries) < 0 and any(e < -1 for e in entries):
        raise PipelineOrderError("stage of T.Pipelined has a negative entry", at=loop.span, expected="stages from 0 on")
    if name == "order":
        used = [e for e in entries if e >= 0]
        if len(set(used)) != len(used):
            raise PipelineOrderError(
                "order of T.Pipelined names one position twice",
                at=loop.span,
                found=str(entries),
                expected="each statement has its own position",
            )
