"""mbarriers: what one thread does to one of them."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.rewrite import RELEASE
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import run
from tilelang.ir import tile_ir
from tilelang.ops import MbarrierArrive, MbarrierExpectTx, MbarrierWait, TileOp, operator_of


def barrier_address(region: Any) -> Any:
    """The address of the barrier that a region of one element names."""
    return tir.address_of(tir.BufferLoad(region.source, [region.region[0].min]))


def need_barriers(op: TileOp, low: Lowering) -> None:
    """Raises UnsupportedOnTarget where the hardware has no mbarriers."""
    if not low.ctx.arch.has_tma:
        raise UnsupportedOnTarget(
            f"{op.NAME.replace('tl.', 'T.')} on {low.ctx.arch.name}",
            at=low.span,
            expected="a target with mbarriers and bulk copies: cuda -arch=sm_90a",
            repair="T.copy and T.sync_threads, which every target has",
        )


def releasing(stmt: Any) -> Any:
    """A statement that evaluates a call, marked: the threads let go of what they have used so far.

    T.gemm is synchronous: what of it is still under way ends before such a call (`place_wgmma_waits`).
    """
    call = stmt.value
    return tir.Evaluate(ir.Call(call.op, list(call.args), attrs={RELEASE: 1}, ret_ty=call.ty), span=stmt.span)


def lower_arrive(op: MbarrierArrive, low: Lowering) -> Any:
    """`tl.mbarrier_arrive(b)` -> `tl::mbarrier_arrive(&b)`, or `tl::mbarrier_arrive_cluster(&b, rank)`"""
    need_barriers(op, low)
    count = () if op.count == 1 else (tir.const(op.count, "int32"),)
    name, rank = ("tl::mbarrier_arrive", ()) if op.rank is None else ("tl::mbarrier_arrive_cluster", (op.rank,))
    return releasing(run(name, barrier_address(op.barrier), *rank, *count, span=low.span))


def lower_expect(op: MbarrierExpectTx, low: Lowering) -> Any:
    """`tl.mbarrier_expect_tx(b, n)` -> `tl::mbarrier_expect_tx(&b, n)`, or the call that also arrives"""
    need_barriers(op, low)
    name = "tl::mbarrier_arrive_expect_tx" if op.arrive else "tl::mbarrier_expect_tx"
    call = run(name, barrier_address(op.barrier), op.bytes, span=low.span)
    return releasing(call) if op.arrive else call


def lower_wait(op: MbarrierWait, low: Lowering) -> Any:
    """`tl.mbarrier_wait(b, parity)` -> `tl::mbarrier_wait(&b, parity)`, or `tl::mbarrier_wait_others`"""
    need_barriers(op, low)
    arrivals = (operator_of(n) for n in tile_ir.walk(low.kernel.body, tir.Evaluate))
    others = any(
        isinstance(a, MbarrierArrive) and a.rank is not None and a.barrier.source.same_as(op.barrier.source)
        for a in arrivals
    )
    name = "tl::mbarrier_wait_others" if others else "tl::mbarrier_wait"
    return run(name, barrier_address(op.barrier), op.parity, span=low.span)
