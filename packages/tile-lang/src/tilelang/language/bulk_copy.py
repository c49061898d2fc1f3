"""`T.tma_copy`: tiles that the tensor memory accelerator moves while the threads do something else."""

from __future__ import annotations

from typing import Any

from tilelang.errors import CopyShapeMismatch, InvalidArgument
from tilelang.frontend.buffers import Region
from tilelang.frontend.builder import tile_operator
from tilelang.language.barriers import barrier_region, thread_level
from tilelang.language.tile import matched
from tilelang.ops.barrier import MbarrierExpectTx
from tilelang.ops.bulk_group import BulkCommit, BulkWait
from tilelang.ops.tma_copy import TmaCopy

EVICTION_POLICIES = (None, "evict_normal", "evict_first", "evict_last")


def tma_copy(
    src: Any,
    dst: Any,
    *,
    barrier: Any = None,
    eviction_policy: str | None = None,
    expect_tx: bool = True,
) -> None:
    """`T.tma_copy(A[m, k], A_shared, barrier=full[stage])`: start a copy; one of the threads that come by does it.

    From global to shared memory the copy's bytes are announced at `barrier` (unless `expect_tx` is False: then by
    T.mbarrier_expect_tx) and counted there when they land; who reads the tile waits for the barrier's phase, which
    also needs its arrivals. From shared to global memory there is no barrier: T.tma_store_wait waits until the tile
    has been read; who wrote it calls T.fence_proxy_async, and a barrier follows, before the copy. What lies outside
    the tensor reads as 0 and is not written.

    Both sides have one element type and the extents of T.copy. Raises UnsupportedOnTarget for what the hardware
    cannot copy, with the reason. Needs sm_90a.
    """
    builder = tile_operator("T.tma_copy")
    source, target = matched("T.tma_copy", src, dst)
    load = target.buffer.scope.startswith("shared")
    _check(source, target, barrier, load, eviction_policy)
    policy = None if eviction_policy == "evict_normal" else eviction_policy
    region = None if barrier is None else barrier_region("T.tma_copy", barrier)
    copy = TmaCopy(source.node(), target.node(), region, policy)
    span = builder.span()
    ops: list[Any] = [copy] if load else [copy, BulkCommit()]
    if load and expect_tx:
        ops = [MbarrierExpectTx(region, copy.bytes()), copy]
    parts = [op.to_stmt(span) for op in ops]
    from tvm import tirx

    from tilelang.ir import tile_ir

    one = tirx.const(1, "int32")
    builder.emit(tirx.AttrStmt(one, tile_ir.LEADER, one, tile_ir.sequence(parts), span=span))


def tma_store_arrive() -> None:
    """Close the thread's group of stores. T.tma_copy to global memory has done so."""
    builder = thread_level("T.tma_store_arrive")
    builder.emit(BulkCommit().to_stmt(builder.span()))


def tma_store_wait(count: int = 0) -> None:
    """Until all but the `count` newest stores of the thread have read their tiles, which may be written again then.

    The thread that started them waits; others learn of it by a barrier, as by T.sync_threads.
    """
    builder = thread_level("T.tma_store_wait")
    if not isinstance(count, int) or count < 0:
        raise InvalidArgument(
            "T.tma_store_wait: impossible number of stores",
            found=f"{count!r}",
            expected="0 or more, known at compile time",
            repair="T.tma_store_wait()",
        )
    builder.emit(BulkWait(count, read=True).to_stmt(builder.span()))


def _check(source: Region, target: Region, barrier: Any, load: bool, policy: Any) -> None:
    what = f"T.tma_copy of {source.buffer.name} to {target.buffer.name}"
    scopes = [("global" if b.scope in ("", "global") else b.scope) for b in (source.buffer, target.buffer)]
    if sorted(s.split(".")[0] for s in scopes) != ["global", "shared"]:
        raise InvalidArgument(
            f"{what}: it moves tiles between global and shared memory",
            found=f"memory of scope {scopes[0]} and {scopes[1]}",
            expected="one side in global, the other in shared memory",
            repair="T.copy moves tiles between any two scopes",
        )
    if source.stepped or target.stepped:
        raise InvalidArgument(f"{what}: a slice has a step", expected="slices without steps", repair="use T.copy")
    if source.buffer.dtype != target.buffer.dtype:
        raise InvalidArgument(
            f"{what}: the element types differ",
            found=f"{source.buffer.dtype} and {target.buffer.dtype}",
            expected="one element type",
            repair="T.copy converts; or convert after the copy",
        )
    if any(not isinstance(e, int) for e in target.extents):
        raise CopyShapeMismatch(
            f"{what}: the tile's extents are known only when the kernel runs",
            expected="integers known at compile time",
            repair="copy a whole tile: what lies outside the tensor reads as 0",
        )
    if load != (barrier is not None):
        raise InvalidArgument(
            f"{what}: {'a load ends' if load else 'a store does not end'} at a barrier",
            found="no barrier" if load else "a barrier",
            expected="barrier= one element of T.alloc_barrier" if load else "no barrier",
            repair="T.tma_copy(A[m, k], A_shared, barrier=full[0])" if load else "T.tma_store_arrive, T.tma_store_wait",
        )
    if policy not in EVICTION_POLICIES:
        raise InvalidArgument(
            f"{what}: unknown eviction policy",
            found=f"{policy!r}",
            expected=", ".join(map(repr, EVICTION_POLICIES)),
            repair='eviction_policy="evict_first" for what is read once',
        )
