"""Barriers between blocks: `T.cluster_sync` and its halves for the blocks of a cluster, `T.sync_grid` for all of them; and
between launches: `T.pdl_sync`, `T.pdl_trigger`."""

from __future__ import annotations

from tilelang.errors import InvalidArgument
from tilelang.frontend.builder import require_kernel
from tilelang.language.launch import blocks_of_cluster
from tilelang.ops.across import ClusterSync, GridSync
from tilelang.ops.dependent import DependentLaunch
from tilelang.ops.sync import SyncThreads


def _cluster(name: str, half: str) -> None:
    what = f"T.{name}"
    blocks = blocks_of_cluster(what)
    builder = require_kernel(what)
    _outside_of_parallel(what, builder.in_parallel)
    op = ClusterSync(half) if blocks > 1 else SyncThreads()
    builder.emit(op.to_stmt(builder.span()))


def _outside_of_parallel(what: str, inside: bool) -> None:
    if inside:
        raise InvalidArgument(
            f"{what} stands inside T.Parallel", expected="a barrier between loops", repair="end the loop first"
        )


def cluster_sync() -> None:
    """`T.cluster_sync()`: all threads of the cluster's blocks meet; each sees what the others wrote before.

    For kernels with `cluster_dims`; needs sm_90a, and a grid of whole clusters. Stands where all threads come by.
    """
    _cluster("cluster_sync", "")


def cluster_arrive() -> None:
    """The first half of `T.cluster_sync`: this block has come, and its writes may be seen. A `T.cluster_wait` follows."""
    _cluster("cluster_arrive", "arrive")


def cluster_arrive_relaxed() -> None:
    """`T.cluster_arrive` that says nothing of the block's writes: others need not see them after their wait."""
    _cluster("cluster_arrive_relaxed", "arrive_relaxed")


def cluster_wait() -> None:
    """The second half of `T.cluster_sync`: wait until all blocks of the cluster have arrived. Follows a `T.cluster_arrive`."""
    _cluster("cluster_wait", "wait")


def sync_grid() -> None:
    """`T.sync_grid()`: all threads of the grid meet; each sees what the others wrote to global memory before.

    The blocks must all run at the same time: on CUDA the launch is cooperative, and an error if they do not fit on the
    device. On other targets the kernel is cut in two there, which needs a place outside of loops and conditions where
    nothing on chip is alive. Stands where all threads come by.
    """
    builder = require_kernel("T.sync_grid")
    _outside_of_parallel("T.sync_grid", builder.in_parallel)
    builder.emit(GridSync().to_stmt(builder.span()))


def pdl_sync() -> None:
    """`T.pdl_sync()`: wait until the launches before this one have ended and what they wrote is there.

    A kernel that has it may begin before they have (programmatic dependent launch, on sm_90a): what stands in front of it
    must not touch what they write, nor write what they read. Elsewhere launches run one by one. All threads come by.
    """
    _dependent("T.pdl_sync", trigger=False)


def pdl_trigger() -> None:
    """`T.pdl_trigger()`: the next launch may begin once all blocks have come by, if it has a `T.pdl_sync`."""
    _dependent("T.pdl_trigger", trigger=True)


def _dependent(what: str, trigger: bool) -> None:
    builder = require_kernel(what)
    _outside_of_parallel(what, builder.in_parallel)
    builder.emit(DependentLaunch(trigger).to_stmt(builder.span()))
