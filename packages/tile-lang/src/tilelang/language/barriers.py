"""mbarriers: `T.alloc_barrier`, arrivals, announced bytes and waits, for kernels that say themselves who waits for whom;
and the fence between ordinary stores and asynchronous reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelang.errors import InvalidArgument
from tilelang.frontend.buffers import Buffer, Element, Region
from tilelang.frontend.builder import require_kernel
from tilelang.frontend.values import as_value, convert, index_node
from tilelang.ir.dtypes import DType
from tilelang.language.launch import blocks_of_cluster
from tilelang.ops.barrier import MbarrierArrive, MbarrierExpectTx, MbarrierWait
from tilelang.ops.fence import FenceProxyAsync

MOST_ARRIVALS = 2**20 - 1  # PTX ISA, "mbarrier.init"; announced bytes have the same limit


def alloc_barrier(arrive_count: int | Sequence[int]) -> Buffer:
    """`full = T.alloc_barrier([1, 1])`: barriers in shared memory, one for each number of arrivals that end a phase.

    With a number, a single barrier, which may be used with or without `[0]`. They are ready when the kernel's first
    statement runs. Needs sm_90.
    """
    return _allocated("T.alloc_barrier", arrive_count)


def alloc_cluster_barrier(arrive_count: int | Sequence[int]) -> Buffer:
    """`T.alloc_barrier` in a kernel with clusters: each block has the barriers, and the others may arrive at them too.

    `T.mbarrier_arrive(barrier, cta_id=k)` arrives at that of block k. They are ready in all blocks of the cluster when
    the kernel's first statement runs. InvalidArgument without `cluster_dims`.
    """
    blocks_of_cluster("T.alloc_cluster_barrier")
    return _allocated("T.alloc_cluster_barrier", arrive_count)


def _allocated(what: str, arrive_count: int | Sequence[int]) -> Buffer:
    from tvm import tirx

    from tilelang.ir import tile_ir

    counts = [arrive_count] if isinstance(arrive_count, int) else list(arrive_count)
    if not counts or not all(isinstance(c, int) and 1 <= c <= MOST_ARRIVALS for c in counts):
        raise InvalidArgument(
            f"{what} got an impossible number of arrivals",
            found=f"{arrive_count!r}",
            expected=f"integers from 1 to {MOST_ARRIVALS}, known at compile time",
            repair=f"{what}(128): a phase ends when 128 threads have arrived",
        )
    builder = require_kernel(what)
    if builder.in_parallel:
        raise InvalidArgument(
            f"{what} stands inside T.Parallel",
            expected="barriers of the block allocated outside of the loop",
            repair="move it before the loop",
        )
    node = tirx.decl_buffer(
        [len(counts)], "uint64", name=builder.name("barrier"), scope=tile_ir.BARRIER, data_alignment=8, layout=None
    )
    builder.emit(tirx.AllocBuffer(node, {tile_ir.ARRIVALS: counts}, span=builder.span()))
    return Buffer(node, DType("uint64"), (len(counts),))


def barrier_region(what: str, barrier: Any) -> Any:
    """One barrier as a region: `full[stage]`, or a buffer of one barrier."""
    from tilelang.ir import tile_ir

    place = barrier
    if isinstance(place, Buffer) and len(place) == 1:
        place = place[0]
    elif isinstance(place, Region) and place.extents == [1]:
        place = place.buffer[place.ranges[0][0]]
    if not isinstance(place, Element) or place.buffer.scope != tile_ir.BARRIER:
        raise InvalidArgument(
            f"{what}: this is no barrier",
            found=f"{barrier!r}",
            expected="one element of what T.alloc_barrier gave",
            repair="full = T.alloc_barrier([1, 1]), then full[stage]",
        )
    return tile_ir.region(place.buffer.node, [(index_node(place.indices[0]), 1)])


def thread_level(what: str) -> Any:
    builder = require_kernel(what)
    if builder.in_parallel:
        raise InvalidArgument(
            f"{what} stands inside T.Parallel",
            expected="barriers used outside of the loop",
            repair="end the loop first",
        )
    return builder


def _emit(builder: Any, op: Any) -> None:
    builder.emit(op.to_stmt(builder.span()))


def mbarrier_arrive(mbarrier: Any, cta_id: Any = None) -> None:
    """`T.mbarrier_arrive(full[0])`: every thread that comes by arrives, and releases what it wrote to those who wait.

    `cta_id`: at the barrier of that block of the cluster, which is in the same place there (`T.alloc_cluster_barrier`).
    """
    _arrive("T.mbarrier_arrive", mbarrier, cta_id)


def barrier_arrive(barrier: Any, cta_id: Any = None) -> None:
    """Same as `mbarrier_arrive`."""
    _arrive("T.barrier_arrive", barrier, cta_id)


def _arrive(what: str, barrier: Any, cta_id: Any) -> None:
    builder = thread_level(what)
    region = barrier_region(what, barrier)
    if cta_id is None:
        _emit(builder, MbarrierArrive(region))
        return
    blocks = blocks_of_cluster(f"{what}(cta_id=)")
    if isinstance(cta_id, int) and not 0 <= cta_id < blocks:
        raise InvalidArgument(
            f"{what}: the cluster has no such block",
            found=f"cta_id={cta_id} in clusters of {blocks}",
            expected=f"0 to {blocks - 1}",
            repair="T.block_rank_in_cluster() ^ 1 is the other block of two",
        )
    rank = None if blocks == 1 else convert(as_value(cta_id), DType("int32")).node
    _emit(builder, MbarrierArrive(region, rank))


def cp_async_barrier_noinc(barrier: Any) -> None:
    """`T.cp_async_barrier_noinc(full)`: arrive when what this thread copies by `T.async_copy` and `T.copy` has landed.

    One of the arrivals that the barrier expects. What a thread has copied has landed before any arrival of it.
    """
    _arrive("T.cp_async_barrier_noinc", barrier, None)


def _bytes(what: str, tx: Any) -> Any:
    if isinstance(tx, int) and not 0 <= tx <= MOST_ARRIVALS:
        raise InvalidArgument(
            f"{what}: a barrier cannot count so many bytes",
            found=f"{tx}",
            expected=f"0 to {MOST_ARRIVALS}",
            repair="split the copy over several barriers",
        )
    return convert(as_value(tx), DType("int32")).node


def mbarrier_expect_tx(mbarrier: Any, tx: Any) -> None:
    """`T.mbarrier_expect_tx(full[0], bytes)`: the phase ends only after so many more bytes have been copied."""
    builder = thread_level("T.mbarrier_expect_tx")
    region = barrier_region("T.mbarrier_expect_tx", mbarrier)
    _emit(builder, MbarrierExpectTx(region, _bytes("T.mbarrier_expect_tx", tx)))


def mbarrier_arrive_expect_tx(mbarrier: Any, tx: Any) -> None:
    """`T.mbarrier_expect_tx`, then one arrival of each thread that comes by."""
    builder = thread_level("T.mbarrier_arrive_expect_tx")
    region = barrier_region("T.mbarrier_arrive_expect_tx", mbarrier)
    _emit(builder, MbarrierExpectTx(region, _bytes("T.mbarrier_arrive_expect_tx", tx), arrive=True))


def mbarrier_wait_parity(mbarrier: Any, parity: Any) -> None:
    """`T.mbarrier_wait_parity(full[stage], parity)`: wait until the phase of that parity (0, 1, 0, ...) has ended.

    Parity 1 of a fresh barrier counts as ended: a producer's first wait for an empty stage falls through.
    """
    builder = thread_level("T.mbarrier_wait_parity")
    region = barrier_region("T.mbarrier_wait_parity", mbarrier)
    _emit(builder, MbarrierWait(region, convert(as_value(parity), DType("int32")).node))


def barrier_wait(barrier: Any, parity: Any) -> None:
    """Same as `mbarrier_wait_parity`."""
    builder = thread_level("T.barrier_wait")
    region = barrier_region("T.barrier_wait", barrier)
    _emit(builder, MbarrierWait(region, convert(as_value(parity), DType("int32")).node))


def fence_proxy_async() -> None:
    """What the thread has stored to shared memory is seen by T.tma_copy and wgmma, once a barrier has followed.

    Each thread that has written calls it. T.copy and T.gemm place it themselves.
    """
    _emit(thread_level("T.fence_proxy_async"), FenceProxyAsync())
