"""Channels: the tiles that a producer brings and consumers use, with the barriers that pass them back and forth.

Use number n of a channel of S versions lies in slot n % S. `full[slot]` ends a phase when the bytes of a use have
landed, `empty[slot]` when all consumer warps have let go of it (PTX ISA, "Asynchronous Barriers: mbarrier"):

    producer:  wait(empty[slot], parity of the phase before)   the first use of a slot falls through
               expect(full[slot], bytes);  copy(..., full[slot])
    consumer:  wait(full[slot], n // S % 2);  ... use ...;  arrive(empty[slot])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.simt.operators.nests import address, int32, run
from tilelang import ops
from tilelang.ir import tile_ir

ROLE = "tl.role"  # attribute around statements that only the producer runs
PRODUCER = "producer"
WARP = 32


@dataclass(frozen=True, eq=False)
class Channel:
    """`tiles`: the versioned buffers that arrive together; `sizes`: the bytes that a use of them has in all.

    `empty` is None for tiles that are brought once.

    In a cluster, `blocks` > 1 blocks bring tiles that they share to each other, block number `rank` its part of them. Then
    a slot is free when the consumers of all these blocks have let go of it, and every producer waits for all of them:

        producer:  wait(empty[slot]);  expect(full[slot], bytes of all parts);  copy(part, full[slot] of every block)
        consumer:  wait(full[slot]);  ... use ...;  arrive(empty[slot] of every block)
        producer, at last:  wait(empty[slot]) of every slot, as a block must not end before others have arrived there
    """

    tiles: tuple[Any, ...]
    versions: int
    bytes: int
    full: Any
    empty: Any | None
    span: Any = None
    blocks: int = 1
    rank: Any = None

    @staticmethod
    def of(
        tiles: Sequence[Any], versions: int, size: int, *, once: bool = False, span: Any = None, **cluster: Any
    ) -> Channel:
        name = "_".join(str(t.name) for t in tiles)
        full, empty = (
            tir.decl_buffer((versions,), "uint64", name=f"{name}_{state}", scope=tile_ir.BARRIER, layout=None)
            for state in ("full", "empty")
        )
        return Channel(tuple(tiles), versions, size, full, None if once else empty, span, **cluster)

    def barriers(self, consumers: int) -> list[Any]:
        """The allocations of its barriers, for `consumers` threads that use it."""
        found = [tir.AllocBuffer(self.full, {tile_ir.ARRIVALS: [1] * self.versions}, span=self.span)]
        if self.empty is not None:
            notes = {tile_ir.ARRIVALS: [consumers // WARP * self.blocks] * self.versions}
            found.append(tir.AllocBuffer(self.empty, notes, span=self.span))
        return found

    def slot(self, number: Any) -> Any:
        """The version that use `number` has."""
        return int32(0) if self.versions == 1 else tir.floormod(number, int32(self.versions))

    def parity(self, number: Any) -> Any:
        """Of the phase that ends when use `number` has landed."""
        turn = number if self.versions == 1 else tir.floordiv(number, int32(self.versions))
        return tir.floormod(turn, int32(2))

    def bring(self, copies: Sequence[tuple[ops.Copy, Any, bool]], number: Any, conditions: Sequence[Any]) -> Any:
        """The producer's part of use `number`; where `conditions` fail it comes without bytes.

        `copies`, with where the user wrote them and whether blocks share the tile, go to the tiles' versions already.
        """
        slot = self.slot(number)
        out: list[Any] = []
        if self.empty is not None:
            out.append(self._until_empty(number))
        place, barrier = address(self.full, slot), tile_ir.region(self.full, [(slot, int32(1))])
        expect = run("tl::mbarrier_arrive_expect_tx", place, int32(self.bytes), span=self.span)
        moves = [self._copied(copy, barrier, shared).to_stmt(span) for copy, span, shared in copies]
        body = tile_ir.sequence([expect, *moves])
        if conditions:
            condition = conditions[0]
            for part in conditions[1:]:
                condition = tir.And(condition, part)
            alone = run("tl::mbarrier_arrive", place, span=self.span)
            body = tir.IfThenElse(condition, body, alone, span=self.span)
        return _by_producer([*out, body], self.span)

    def _copied(self, copy: ops.Copy, barrier: Any, shared: bool) -> ops.TmaCopy:
        if not shared:
            return ops.TmaCopy(copy.src, copy.dst, barrier, eviction_policy=copy.eviction_policy)
        return ops.TmaCopy(copy.src, copy.dst, barrier, self.rank, copy.eviction_policy, self.blocks)

    def wait(self, number: Any) -> Any:
        """The consumers' wait until use `number` has landed."""
        return run("tl::mbarrier_wait", address(self.full, self.slot(number)), self.parity(number), span=self.span)

    def last_waits(self, count: Any) -> list[Any]:
        """After `count` uses: the producer waits until nobody arrives here any more."""
        if self.blocks == 1 or self.empty is None:
            return []
        numbers = [count + int32(n) if n else count for n in range(self.versions)]
        return [_by_producer([self._until_empty(n)], self.span) for n in numbers]

    def _until_empty(self, number: Any) -> Any:
        """The producer's wait for the slot of use `number`; the first use of a slot falls through."""
        before = tir.bitwise_xor(self.parity(number), int32(1))
        return run("tl::mbarrier_wait", address(self.empty, self.slot(number)), before, span=self.span)

    def release(self, number: Any, thread: Any) -> list[Any]:
        """The consumers let go of use `number`: each warp, when all its lanes have; lane n of a warp tells block n."""
        assert self.empty is not None
        place, lane = address(self.empty, self.slot(number)), tir.floormod(thread, int32(WARP))
        if self.blocks > 1:
            arrive = run("tl::mbarrier_arrive_cluster_reads", place, lane, span=self.span)
            first = lane < int32(self.blocks)
        else:
            arrive = run("tl::mbarrier_arrive", place, span=self.span)
            first = tir.EQ(lane, int32(0))
        return [run("tl::sync_warp", span=self.span), tir.IfThenElse(first, arrive, None, span=self.span)]


def _by_producer(stmts: list[Any], span: Any) -> Any:
    role = ir.StringImm(PRODUCER)
    return tir.AttrStmt(role, ROLE, role, tile_ir.sequence(stmts), span=span)


def is_role(stmt: Any) -> bool:
    return isinstance(stmt, tir.AttrStmt) and str(stmt.attr_key) == ROLE
