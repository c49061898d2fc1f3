"""Whose threads are walked: those of one block, or of the blocks of a cluster that use each other's memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import ir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.checker.knowledge import WARP
from tile_compiler.simt.checker.remote import REMOTE_SUM, is_remote
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.thread_values import Array
from tilelang.ir import tile_ir

LARGEST_SET = 64  # engines that a set in a word can tell apart


class Lanes:
    """`blocks` of `count` threads each, one after the other; where they `produce`, each block's producer is a lane behind
    them, in a warp of its own. They are the blocks of a cluster, or those with the given `ranks`.

    `number[lane]` is the thread's number in its block, `block[lane]` says which block that is; lanes that only fill a warp
    are `nobody`.
    """

    def __init__(
        self, count: int, produces: bool, dims: tuple[int, ...] = (1,), ranks: tuple[int, ...] | None = None
    ) -> None:
        self.count, self.produces, self.dims = count, produces, dims
        self.ranks = np.arange(math.prod(dims)) if ranks is None else np.asarray(ranks)
        self.blocks = len(self.ranks)
        stride = count if self.blocks == 1 else -(-count // WARP) * WARP
        self.first_producer = stride * self.blocks
        self.total = self.first_producer + (WARP * (self.blocks - 1) + 1 if produces else 0)
        lane = np.arange(self.total)
        behind = lane - self.first_producer
        self.block = np.where(behind < 0, lane // stride, behind // WARP)
        self.number = np.where(behind < 0, lane % stride, count)
        self.consumers = (behind < 0) & (self.number < count)
        self.nobody = ~self.consumers & ((behind < 0) | (behind % WARP > 0))

    @classmethod
    def of(
        cls, kernel: tile_ir.Kernel, produces: bool, ctx: SimtContext, ranks: tuple[int, ...] | None = None
    ) -> Lanes:
        """One block's, unless blocks of a cluster use each other's memory and are few enough to be walked together."""
        count = int(kernel.num_threads or 1)
        cluster = ctx.clusters.get(kernel.index)
        if cluster is not None and any(map(_goes_out, tile_ir.walk(kernel.body, ir.Call))):
            together = cls(count, produces, cluster.dims, ranks)
            if together.fits:
                return together
        return cls(count, produces)

    @property
    def fits(self) -> bool:
        """Whether sets can tell all engines apart."""
        return 2 * -(-self.total // WARP) <= LARGEST_SET

    def number_of(self, rank: Array) -> Array:
        """Which of the blocks that are walked has a rank; -1: none."""
        known = np.full(math.prod(self.dims), -1)
        known[self.ranks] = np.arange(self.blocks)
        return np.asarray(known[rank])

    @property
    def producers(self) -> Array:
        """Which lanes are producers."""
        lane = np.arange(self.total)
        return np.asarray((lane >= self.first_producer) & ~self.nobody)

    def producer(self, block: Any) -> Any:
        """The lane that is a block's producer."""
        return self.first_producer + WARP * block

    def offset(self, axis: int) -> Array:
        """How far along an axis of the grid each lane's block lies from the cluster's first one."""
        return np.asarray(self.ranks[self.block] // math.prod(self.dims[:axis]) % self.dims[axis])


def companies(kernel: tile_ir.Kernel, produces: bool, ctx: SimtContext) -> list[tuple[int, ...] | None]:
    """The ranks of blocks that are to be walked together, None: all. Of a cluster that is too large, whose blocks do nothing
    to each other's memory but read it behind barriers of the cluster, pairs: what two do to each other shows there."""
    cluster = ctx.clusters.get(kernel.index)
    out = [n for n in tile_ir.walk(kernel.body, ir.Call) if _goes_out(n)]
    reads = all(str(n.args[0].value).startswith(REMOTE_SUM) for n in out)
    if cluster is None or not out or not reads:
        return [None]
    if Lanes(int(kernel.num_threads or 1), produces, cluster.dims).fits:
        return [None]
    return [(0, 1), (0, cluster.size - 1)]


def _goes_out(call: Any) -> bool:
    return is_call(call, "tirx.call_extern") and is_remote(str(call.args[0].value))
