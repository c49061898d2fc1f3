"""The sum of a tile over the blocks of a cluster, which `split_sums` asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx as tir

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import address, int32, local, run, store, unrolled
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ops.base import TileOp, register

VECTOR_BITS = 128
SHARED_OUT = (
    4  # blocks from which each adds a share: the first then reads 2 tiles in all and not one for each other block
)


@register
@dataclass(frozen=True)
class ClusterSum(TileOp):
    """`tl.cluster_sum(tile, rank)`: the fragment of the cluster's first block becomes the sum of those of all its blocks, in
    order of their ranks; what the others hold stays. Each block comes to it equally often.

    The compiler makes it of programs whose meaning is the sum in one block, so it has no meaning of its own.
    """

    NAME: ClassVar[str] = "tl.cluster_sum"
    OPERANDS: ClassVar[tuple[str, ...]] = ("tile", "rank")

    tile: Any
    rank: Any
    blocks: int = 1

    def reads(self) -> list[Any]:
        return [self.tile]

    def writes(self) -> list[Any]:
        return [self.tile]


def tiles_read(blocks: int) -> int:
    """How many tiles of other blocks the first one reads, or all do before it."""
    return 2 if blocks >= SHARED_OUT else blocks - 1


def lower_cluster_sum(op: ClusterSum, low: Lowering) -> Any:
    """Blocks put their registers into their shared memory, vector by vector, a vector's threads side by side: a thread finds
    in any block what the thread of its own number holds, without bank conflicts. Two blocks, or three:

        if rank > 0: parts[v, tx] = c[v]
        tl::cluster_sync()
        if rank == 0: tl::add_remote(c, &parts[0, tx], 1)
        tl::cluster_sync()                                            nobody leaves before it was read

    More of them would be read one after the other by the first, so each adds its share of all, and the first collects these.
    """
    exchange = _Exchange(op, low)
    shared_out = op.blocks >= SHARED_OUT and exchange.vectors % op.blocks == 0
    return tile_ir.sequence(exchange.in_shares() if shared_out else exchange.by_the_first())


class _Exchange:
    def __init__(self, op: ClusterSum, low: Lowering) -> None:
        self.op, self.low, self.registers = op, low, low.registers(op.tile.source)
        self.dtype, self.count = tile_ir.dtype_name(op.tile.source), int(self.registers.ty.shape[0])
        self.width = math.gcd(self.count, VECTOR_BITS // dtype_of(self.dtype).bits)
        self.vectors = self.count // self.width
        shape = [self.vectors, low.threads, self.width]
        self.parts = low.shared(shape, self.dtype, f"{op.tile.source.name}_parts")
        self.meet = run("tl::cluster_sync", span=low.span)

    def by_the_first(self) -> list[Any]:
        others = [self._add(self.registers, 0, int32(0), self.count, rank) for rank in range(1, self.op.blocks)]
        return [
            self._if(self.op.rank > 0, [self._put(self.registers, int32(0), self.vectors)]),
            self.meet,
            self._if(tir.EQ(self.op.rank, int32(0)), others),
            self.meet,
        ]

    def in_shares(self) -> list[Any]:
        blocks, share = range(self.op.blocks), self.vectors // self.op.blocks
        size = share * self.width
        own = local(size, self.dtype, f"{self.op.tile.source.name}_share")
        first = self.op.rank * int32(share)
        collected = [self._add(self.registers, rank * size, int32(rank * share), size, rank) for rank in blocks]
        return [
            tir.AllocBuffer(own),
            self._put(self.registers, int32(0), self.vectors),
            self.meet,
            self._clear(own, size),
            *(self._add(own, 0, first, size, rank) for rank in blocks),
            self._put(own, first, share),
            self.meet,
            self._if(tir.EQ(self.op.rank, int32(0)), [self._clear(self.registers, self.count), *collected]),
            self.meet,
        ]

    def _if(self, condition: Any, stmts: list[Any]) -> Any:
        return tir.IfThenElse(condition, tile_ir.sequence(stmts), None, span=self.low.span)

    def _clear(self, registers: Any, count: int) -> Any:
        return unrolled("v", count, lambda v: store(registers, tir.const(0, self.dtype), v), self.low.span)

    def _put(self, registers: Any, first: Any, vectors: int) -> Any:
        """A thread's `registers` into its places of so many vectors from the `first` on."""

        def one(v: Any) -> Any:
            held = tir.BufferLoad(registers, [tir.Ramp(v * int32(self.width), int32(1), self.width)])
            place = [first + v, self.low.tx, tir.Ramp(int32(0), int32(1), self.width)]
            return tir.BufferStore(self.parts, held, place, span=self.low.span)

        return unrolled("v", vectors, one, self.low.span)

    def _add(self, registers: Any, to: int, first: Any, count: int, rank: int) -> Any:
        """`count` registers from number `to` on, plus what lies in block `rank` from vector `first` on."""
        name = f"tl::add_remote<{count}, {self.low.threads * self.width}, {self.width}>"
        there = address(self.parts, first, self.low.tx, 0)
        return run(name, address(registers, to), there, int32(rank), span=self.low.span)
