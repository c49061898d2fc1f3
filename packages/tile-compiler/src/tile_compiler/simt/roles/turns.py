"""Two consumer warpgroups take turns at the tensor cores ("ping-pong", FlashAttention-3, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx as tir

from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import int32, run

WARPGROUP = 128
FIRST = 2  # hardware barriers 2 and 3: the turn of warpgroup 0 and of warpgroup 1; 0 and 1 are the block's and the consumers'
NO_TURNS = "tl.disable_warpgroup_turns"


@dataclass(frozen=True)
class Turns:
    """Before it issues the products of an iteration, a warpgroup waits for its turn; then the turn is the other's.

    So one warpgroup's products run beside the other one's work on their results, and not beside each other. The turn is
    a hardware barrier of 256 threads: those who wait for it, and those who pass it on without waiting (PTX ISA,
    `bar.sync` and `bar.arrive`). The order in which products are issued changes no result.
    """

    thread: Any

    @staticmethod
    def of(threads: int, thread: Any, ctx: SimtContext) -> Turns | None:
        """For blocks of two warpgroups."""
        return Turns(thread) if threads == 2 * WARPGROUP and not ctx.options.get(NO_TURNS) else None

    def begin(self, used: Any) -> list[Any]:
        """Where the loop will run (`used`), warpgroup 1 gives warpgroup 0 the first turn."""
        first = tir.And(self.thread >= int32(WARPGROUP), used)
        return [tir.IfThenElse(first, run("tl::arrive_barrier", int32(FIRST), int32(2 * WARPGROUP)), None)]

    def take(self) -> Any:
        """Wait for the turn."""
        return run("tl::sync_barrier", int32(FIRST) + tir.floordiv(self.thread, WARPGROUP), int32(2 * WARPGROUP))

    def pass_on(self, again: Any) -> Any:
        """The turn is the other warpgroup's; nobody waits for what warpgroup 1 would pass on in the last iteration."""
        other = int32(FIRST + 1) - tir.floordiv(self.thread, WARPGROUP)
        wanted = tir.Or(self.thread < int32(WARPGROUP), again)
        return tir.IfThenElse(wanted, run("tl::arrive_barrier", other, int32(2 * WARPGROUP)), None)
