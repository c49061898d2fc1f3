"""`T.Kernel`: one launch of a grid of blocks, and what a block knows of itself."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from itertools import accumulate
from operator import mul
from typing import Any

from tilelang.errors import InvalidArgument, InvalidThreads
from tilelang.frontend.builder import Builder, require, require_kernel
from tilelang.frontend.literals import is_literal
from tilelang.frontend.values import AxisVar, Value, as_value, index_node
from tilelang.ir.dtypes import DType

_INT = DType("int32")
LARGEST_CLUSTER = 8  # blocks: what every device with clusters takes


class KernelFrame:
    """The open launch: axis variables as values, extents as given."""

    def __init__(
        self,
        grid: list[Value],
        threads: list[Value],
        extents: list[Any],
        thread_extents: list[int],
        cluster: list[int] | None,
    ) -> None:
        self.grid, self.threads = grid, threads
        self.extents, self.thread_extents = extents, thread_extents
        self.cluster = cluster or []
        self.clustered = cluster is not None  # whether the user has said how many blocks a cluster has


@contextlib.contextmanager
def Kernel(
    *blocks: Any,
    threads: int | tuple[int, ...] | list[int] | None = None,
    prelude: str | None = None,
    cluster_dims: int | tuple[int, ...] | list[int] | None = None,
    is_cpu: bool = False,
) -> Iterator[Any]:
    """`with T.Kernel(grid_x[, grid_y[, grid_z]], threads=128) as (bx, by, bz):` launch a grid of blocks.

    Extents are integers or expressions of dynamic dimensions; 0 launches nothing. `threads` is a number or up to
    three numbers; left out, the target chooses. Yields the block indices (int32): one value for one axis.
    Several kernels in one function run in order.

    `cluster_dims=2` or `(2, 1, 1)`: neighbouring blocks of the grid run as a cluster, which lets the compiler bring a tile
    that all of them read to all of them at once. A hint: it changes no result, and the report says what became of it;
    but a kernel that uses its clusters (`T.cluster_sync`, `T.mbarrier_arrive(cta_id=)`) is refused where it has none.
    """
    builder = require("T.Kernel")
    if builder.kernel is not None:
        raise InvalidArgument(
            "T.Kernel stands inside T.Kernel",
            expected="kernels one after the other",
            repair="close the first `with` before the second",
        )
    if builder.eager is not None:
        builder.eager.shapes_are_complete()
    if not 1 <= len(blocks) <= 3:
        raise InvalidThreads(
            f"T.Kernel with {len(blocks)} grid extents", expected="one to three", repair="T.Kernel(grid_x, grid_y)"
        )
    for extent in blocks:
        if isinstance(extent, float) or not (is_literal(extent) or isinstance(extent, Value) or hasattr(extent, "ty")):
            raise InvalidThreads(
                "a grid extent of T.Kernel is no integer",
                found=f"{extent!r}",
                expected="integers or integer expressions",
                repair="use T.ceildiv(N, block) instead of N / block",
            )
        if is_literal(extent) and int(extent) < 0:
            raise InvalidThreads(
                "a grid extent of T.Kernel is negative",
                found=f"{extent}",
                expected="0 or more (0 launches nothing)",
                repair="T.ceildiv(N, block) for N elements in blocks",
            )
    counts = [] if threads is None else list(threads) if isinstance(threads, (tuple, list)) else [threads]
    for count in counts:
        if isinstance(count, Value) or isinstance(count, float) or int(count) <= 0 or len(counts) > 3:
            raise InvalidThreads(
                "threads= of T.Kernel is impossible",
                found=f"{threads!r}",
                expected="one to three positive integers known at compile time",
                repair="threads=128",
            )
    cluster = _cluster(cluster_dims, len(blocks))
    with _launch(builder, list(blocks), [int(c) for c in counts], prelude, cluster) as grid:
        yield AxisVar(grid[0]._node, grid[0].dtype) if len(grid) == 1 else tuple(grid)


def ClusterKernel(
    *blocks: Any, cluster_dims: int | tuple[int, ...] | list[int], threads: Any = None, prelude: str | None = None
) -> contextlib.AbstractContextManager[Any]:
    """`with T.ClusterKernel(grid_x, cluster_dims=2, threads=128) as bx:` is T.Kernel with `cluster_dims`."""
    return Kernel(*blocks, threads=threads, prelude=prelude, cluster_dims=cluster_dims)


def _cluster(dims: Any, axes: int) -> list[int] | None:
    """`cluster_dims` as one number for each axis of the grid; [] for clusters of one block, None if nothing is said."""
    if dims is None:
        return None
    given = list(dims) if isinstance(dims, (tuple, list)) else [dims]
    whole = all(isinstance(d, int) and not isinstance(d, bool) and d >= 1 for d in given)
    if not whole or len(given) > 3 or any(d > 1 for d in given[axes:]) or math.prod(given) > LARGEST_CLUSTER:
        raise InvalidThreads(
            "cluster_dims= of T.Kernel is impossible",
            found=f"{dims!r} for a grid of {axes} axes",
            expected=f"a positive integer for each axis of the grid, {LARGEST_CLUSTER} blocks at most in all",
            repair="cluster_dims=(2, 1, 1)",
        )
    return [*given, 1, 1][:axes] if math.prod(given) > 1 else []


@contextlib.contextmanager
def _launch(
    builder: Builder, blocks: list[Any], counts: list[int], prelude: str | None, cluster: list[int] | None
) -> Iterator[list[Value]]:
    from tvm import tirx

    from tilelang.ir import tile_ir
    from tilelang.ops.hints import Hint, ImportSource

    span = builder.span()
    names = list(builder.names)
    defaults = ("bx", "by", "bz")
    extents = [index_node(b) for b in blocks]
    grid, axes = [], []
    for i, extent in enumerate(extents):
        var = tirx.Var(builder.unique(names[i] if i < len(names) else defaults[i]), str(extent.ty))
        builder.bind_range(var, 0, extent)
        axes.append((var, extent))
        grid.append(as_value(var))
    thread_axes, threads = [], []
    for i, count in enumerate(counts):
        var = tirx.Var(builder.unique(("tx", "ty", "tz")[i]), "int32")
        builder.bind_range(var, 0, count)
        thread_axes.append((var, tirx.const(count, "int32")))
        threads.append(Value(var, _INT))
    builder.kernel = KernelFrame(grid, threads, blocks, counts, cluster)
    builder.names = []
    try:
        with builder.body() as body:
            if prelude:
                builder.emit(ImportSource(prelude).to_stmt(span))
            if cluster:
                builder.emit(Hint("cluster_dims", json.dumps({"dims": cluster})).to_stmt(span))
            yield grid
            done = tile_ir.sequence(list(body))
    finally:
        builder.kernel = None
    kernel = tile_ir.Kernel(builder.kernel_count, tuple(axes), tuple(thread_axes), done, span)
    builder.kernel_count += 1
    builder.emit(kernel.to_stmt())


def _axis(dim: int, values: list[Value], what: str) -> Any:
    if not 0 <= dim < 3:
        raise InvalidArgument(f"{what} has dimensions 0, 1 and 2", found=f"{dim}", repair="0 is x, 1 is y, 2 is z")
    return values[dim] if dim < len(values) else 0


def get_thread_binding(dim: int = 0) -> Any:
    """The thread's index along a dimension of the block (0 is x), int32; 0 for an axis that was not given."""
    builder = require_kernel("T.get_thread_binding")
    if builder.in_parallel:
        raise InvalidArgument(
            "the thread index is used inside T.Parallel",
            found="T.get_thread_binding in a loop whose iterations the compiler spreads over the threads",
            expected="the loop's own variables",
            repair="use T.serial with the thread index, or drop the thread index",
        )
    return _axis(dim, builder.kernel.threads, "T.get_thread_binding")


def get_thread_bindings() -> tuple[Any, Any, Any]:
    """All three thread indices."""
    return get_thread_binding(0), get_thread_binding(1), get_thread_binding(2)


def get_block_binding(dim: int = 0) -> Any:
    """The block's index along a dimension of the grid (0 is x), int32."""
    return _axis(dim, require_kernel("T.get_block_binding").kernel.grid, "T.get_block_binding")


def get_block_bindings() -> tuple[Any, Any, Any]:
    """All three block indices."""
    return get_block_binding(0), get_block_binding(1), get_block_binding(2)


def block_rank_in_cluster() -> Any:
    """The block's number in its cluster (`cluster_dims=` of T.Kernel), int32, counted along x first; 0 without clusters.

    It follows from the block's indices, so it is the same on targets that have no clusters.
    """
    frame = require_kernel("T.block_rank_in_cluster").kernel
    rank: Any = 0
    for index, size, step in zip(frame.grid, frame.cluster, (1, *accumulate(frame.cluster, mul))):
        if size > 1:
            rank = rank + index % size * step
    return rank


def blocks_of_cluster(what: str) -> int:
    """How many blocks a cluster of the open kernel has. InvalidArgument for a kernel that says nothing of clusters."""
    frame = require_kernel(what).kernel
    if not frame.clustered:
        raise InvalidArgument(
            f"{what} in a kernel without clusters",
            expected="a kernel that says which blocks run together",
            repair="with T.Kernel(..., cluster_dims=2) or T.ClusterKernel(..., cluster_dims=2)",
        )
    return math.prod(frame.cluster)


def get_cluster_id(dim: int = 0) -> Any:
    """The number of the block's cluster along a dimension of the grid (0 is x), int32: its index over the cluster's extent.

    InvalidArgument for a kernel without `cluster_dims`.
    """
    blocks_of_cluster("T.get_cluster_id")
    frame = require_kernel("T.get_cluster_id").kernel
    index = _axis(dim, frame.grid, "T.get_cluster_id")
    return index // frame.cluster[dim] if dim < len(frame.cluster) else index


def get_thread_extents() -> tuple[int, int, int]:
    """Threads of the block along all three dimensions."""
    return get_thread_extent(0), get_thread_extent(1), get_thread_extent(2)


def get_block_extents() -> tuple[Any, Any, Any]:
    """Blocks of the grid along all three dimensions."""
    return get_block_extent(0), get_block_extent(1), get_block_extent(2)


def get_thread_extent(dim: int = 0) -> int:
    """Threads of the block along a dimension; 1 for an axis that was not given."""
    extents = require_kernel("T.get_thread_extent").kernel.thread_extents
    return extents[dim] if dim < len(extents) else 1


def get_block_extent(dim: int = 0) -> Any:
    """Blocks of the grid along a dimension."""
    extents = require_kernel("T.get_block_extent").kernel.extents
    return extents[dim] if dim < len(extents) else 1


class ThreadLoop:
    """`for tx in T.thread_binding(128, "threadIdx.x")`: the loop over threads that TVM writes; here the thread's index."""

    def __init__(self, extent: Any, axis: str) -> None:
        self.extent, self.axis = extent, axis

    def __iter__(self) -> Iterator[Any]:
        kind, _, letter = self.axis.partition(".")
        dim = "xyz".find(letter) if letter else -1
        if kind not in ("threadIdx", "blockIdx") or dim < 0:
            raise InvalidArgument(
                "T.thread_binding names an unknown axis",
                found=f"{self.axis!r}",
                expected="threadIdx.x, .y, .z or blockIdx.x, .y, .z",
                repair='T.thread_binding(128, "threadIdx.x")',
            )
        have = get_thread_extent(dim) if kind == "threadIdx" else get_block_extent(dim)
        if is_literal(have) and is_literal(self.extent) and int(have) != int(self.extent):
            raise InvalidThreads(
                "T.thread_binding differs from the launch",
                found=f"{self.extent} for {self.axis}",
                expected=f"{have}, as T.Kernel says",
                repair="make them equal",
            )
        yield get_thread_binding(dim) if kind == "threadIdx" else get_block_binding(dim)


def thread_binding(*args: Any, thread: str | None = None, annotations: Any = None) -> ThreadLoop:
    """`for tx in T.thread_binding(n, "threadIdx.x")` or `T.thread_binding(0, n, thread="threadIdx.x")`."""
    values = [a for a in args if not isinstance(a, str)]
    axis = thread or next((a for a in args if isinstance(a, str)), "threadIdx.x")
    return ThreadLoop(values[-1], axis)
