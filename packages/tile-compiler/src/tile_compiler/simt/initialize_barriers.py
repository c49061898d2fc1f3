"""Make mbarriers ready for use at the kernel's start."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call, map_kernels
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.materialize_threads import linear_thread
from tile_compiler.simt.operators.nests import address, int32, run
from tilelang.ir import tile_ir


def initialize_barriers(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """One thread sets up every barrier; the others, and the asynchronous copies, see it after a barrier of the block.

    before:     full = alloc((2,), arrivals (1, 1)); ...
    after:      full = alloc((2,), arrivals (1, 1))
                if tx == 0: tl::mbarrier_init(&full[0], 1); tl::mbarrier_init(&full[1], 1); tl::fence_mbarrier_init()
                tl::sync_threads(); ...

    Where blocks of a cluster arrive at each other's barriers or copy to each other, the barrier is that of the cluster.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        stmts = tile_ir.statements(kernel.body)
        barriers = [s for s in stmts if isinstance(s, tir.AllocBuffer) and str(s.buffer.scope()) == tile_ir.BARRIER]
        if not barriers:
            return kernel
        calls = [_initialized(node.buffer, n, count) for node in barriers for n, count in enumerate(_arrivals(node))]
        calls.append(run("tl::fence_mbarrier_init"))
        remote = any(uses_others(n) for n in tile_ir.walk(kernel.body, ir.Call))
        made = [
            tir.IfThenElse(linear_thread(kernel) == 0, tile_ir.sequence(calls), None),
            run("tl::cluster_sync" if remote else "tl::sync_threads"),
        ]
        first = next(n for n, s in enumerate(stmts) if not isinstance(s, tir.AllocBuffer))
        body = tile_ir.sequence([*stmts[:first], *made, *stmts[first:]])
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


def uses_others(call: Any) -> bool:
    """Whether a call concerns the shared memory of other blocks of the cluster."""
    return is_call(call, "tirx.call_extern") and any(w in str(call.args[0].value) for w in ("_multicast", "_cluster"))


def _arrivals(node: tir.AllocBuffer) -> list[int]:
    return [int(n) for n in tile_ir.plain(node.annotations[tile_ir.ARRIVALS])]


def _initialized(buffer: Any, number: int, count: int) -> Any:
    return run("tl::mbarrier_init", address(buffer, number), int32(count))
