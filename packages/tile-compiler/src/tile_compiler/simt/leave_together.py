"""Blocks of a cluster that use each other's shared memory leave the kernel together."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call, map_kernels
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import run
from tilelang.ir import tile_ir


def leave_together(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """No block leaves while another one of its cluster may still arrive at its barriers or copy to its memory.

    before:     ...
    after:      ...; tl::sync_warp(); tl::cluster_sync()

    The warp meets first, as the cluster's barrier asks for whole warps, and a producer is one of its lanes.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        if not uses_others(kernel.body):
            return kernel
        end = [run(name, span=kernel.span) for name in ("tl::sync_warp", "tl::cluster_sync")]
        body = tile_ir.sequence([*tile_ir.statements(kernel.body), *end])
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


def uses_others(body: Any) -> bool:
    """Whether a block uses the shared memory of other blocks of its cluster."""
    calls = (n for n in tile_ir.walk(body, ir.Call) if is_call(n, "tirx.call_extern"))
    return any(part in str(n.args[0].value) for n in calls for part in ("_multicast", "_cluster"))
