"""`T.sync_threads`: a barrier that the user asks for."""

from __future__ import annotations

from typing import Any

from tvm import ir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.rewrite import is_call
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.barrier import releasing
from tile_compiler.simt.operators.nests import run
from tilelang.ir import tile_ir
from tilelang.ops import SyncThreads, TmaCopy


def lower_sync(op: SyncThreads, low: Lowering) -> Any:
    """`tl.sync_threads()` -> `tl::sync_threads()`, or `tl::sync_threads<barrier, count>()` for a part of the block."""
    if op.count is not None and low.ctx.arch.barriers == 1:
        raise UnsupportedOnTarget(
            f"{low.ctx.arch.name} has no barrier for a part of a block",
            at=low.span,
            found=f"barrier {op.barrier} for {op.count} threads",
            expected="barriers that all threads of the block reach",
            repair="T.sync_threads() without arguments, where all threads come by",
        )
    name = "tl::sync_threads" if op.count is None else f"tl::sync_threads<{op.barrier}, {op.count}>"
    call = run(name, span=low.span)
    # Ordinary stores find their own waits; a copy that one thread starts afterwards does not.
    by_tma = any(is_call(n, TmaCopy.NAME) for n in tile_ir.walk(low.kernel.body, ir.Call))
    return releasing(call) if by_tma else call
