"""Remove statements that only advise a scheduler."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.rewrite import Rewriter, is_call, map_kernels

HINTS = {"tl.hint": "a hint", "tl.annotate_layout": "T.annotate_layout"}


def drop_hints(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """Take out `tl.hint` and `tl.annotate_layout`, which a target without a use for them ignores.

    before:     T.tl.hint(); T.tl.copy(A[0:128], f[0:128])
    after:      T.tl.copy(A[0:128], f[0:128])
    """
    dropper = _Drop(ctx)
    return map_kernels(func, dropper.kernel)


class _Drop(Rewriter):
    def __init__(self, ctx: CompileContext) -> None:
        self.ctx = ctx

    def kernel(self, kernel: Any) -> Any:
        return type(kernel)(kernel.index, kernel.grid, kernel.threads, self.body(kernel.body), kernel.span)

    def evaluate(self, node: tir.Evaluate) -> Any:
        if not is_call(node.value, *HINTS):
            return node
        self.ctx.report.note(node.span, f"{HINTS[node.value.op.name]} has no effect on this target")
        return None
