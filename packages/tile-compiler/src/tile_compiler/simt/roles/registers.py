"""How many registers the threads of a specialized block may have."""

from __future__ import annotations

from tile_compiler.simt.context import SimtContext
from tilelang.ir import tile_ir

FILE = 65536  # registers of a multiprocessor (programming guide, "Technical Specifications per Compute Capability")
SHARED = 233472  # bytes of shared memory of a multiprocessor of Hopper
RESERVED = 1024  # bytes that the system takes of each block's
STEP = 8  # of setmaxnreg
MOST = 240


def consumer_limit(consumers: int, kernel: tile_ir.Kernel, ctx: SimtContext) -> int | None:
    """What each consumer can have when the producer's warpgroup keeps 24 registers; None: leave it to the compiler.

    A block of one warpgroup has 255 registers for each thread anyhow, and where two blocks fit on a multiprocessor
    neither can have more than half of the file. What is handed on is what the block began with, as many registers for each
    thread as a multiple of STEP: a warpgroup that asks for more than is left of these waits forever.
    """
    shared = ctx.shared_bytes.get(kernel.index, 0) + RESERVED
    if consumers < 256 or consumers % 128 or 2 * shared <= SHARED:
        return None
    return consumer_share(consumers)


def consumer_share(consumers: int) -> int:
    """Registers of each of so many threads, beside a producer's warpgroup."""
    threads = consumers + 128
    owned = FILE // threads // STEP * STEP * threads
    left = (owned - 128 * 24) // consumers
    return min(MOST, left // STEP * STEP)
