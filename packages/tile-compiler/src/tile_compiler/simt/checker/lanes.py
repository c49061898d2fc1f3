"""Whose threads are walked: those of one block, or of the blocks of a cluster that use each other's memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import ir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.checker.knowledge import WARP
from tile_compiler.simt.checker.remote import is_remote
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.thread_values import Array
from tilelang.ir import tile_ir

WARPGROUP = 4 * WARP
LARGEST_SET = 64  # engines that a set in a word can tell apart


@dataclass(frozen=True)
class Lanes:
    """`blocks` of `count` threads each, one after the other; where a block `produces`, one lane more is its producer.

    In a cluster of `dims` blocks each one's lanes begin at a multiple of a warpgroup; what lies between is nobody.
    """

    count: int
    produces: bool
    dims: tuple[int, ...] = (1,)

    @classmethod
    def of(cls, kernel: tile_ir.Kernel, produces: bool, ctx: SimtContext) -> Lanes:
        """One block's, unless blocks of a cluster use each other's memory and are few enough to be walked together."""
        count = int(kernel.num_threads or 1)
        cluster = ctx.clusters.get(kernel.index)
        if cluster is not None and any(map(_goes_out, tile_ir.walk(kernel.body, ir.Call))):
            together = cls(count, produces, cluster.dims)
            if 2 * together.total // WARP <= LARGEST_SET:
                return together
        return cls(count, produces)

    @property
    def blocks(self) -> int:
        return math.prod(self.dims)

    @property
    def pitch(self) -> int:
        """From a lane to the same one of the next block."""
        own = self.count + self.produces
        return own if self.blocks == 1 else -(-own // WARPGROUP) * WARPGROUP

    @property
    def total(self) -> int:
        return self.pitch * self.blocks

    def block(self, lane: Any) -> Any:
        return lane // self.pitch

    def consumers(self, lane: Array) -> Array:
        """Which lanes are threads of the kernel."""
        return lane % self.pitch < self.count

    def nobody(self, lane: Array) -> Array:
        return lane % self.pitch >= self.count + self.produces

    def offset(self, axis: int, lane: Array) -> Array:
        """How far along an axis of the grid a lane's block lies from the cluster's first one."""
        return self.block(lane) // math.prod(self.dims[:axis]) % self.dims[axis]


def _goes_out(call: Any) -> bool:
    return is_call(call, "tirx.call_extern") and is_remote(str(call.args[0].value))
