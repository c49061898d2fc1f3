"""What the tile-op lowering hands to the CPU code generator: one launch as plain loops over plain buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class LoweredLaunch:
    """One kernel launch, lowered to thread-level code for ONE block.

    The generated C function is `int32 symbol(void *const *args, const int64 *dims, int64 begin, int64 end)`; it runs
    `body` for every linear block index `begin <= b < end`, `b = x + grid_x * (y + grid_y * z)`.

    `params`      global buffers in the order of the entry's `args`. Shapes and strides may mention `scalars`.
    `scalars`     dimensions and scalar parameters in the order of the entry's `dims`: integers by value, floating
                  values as the bits of a float64.
    `scratch`     on-chip buffers and their byte offset in the worker's scratch area (the last `args` slot, 64-byte
                  aligned). Ranges may overlap when the planner reuses memory. Offsets are multiples of 64.
    `block_vars`  variables of the block index, x first (fastest); `grid` their extents.
    `body`        loops, stores, binds. Private buffers by `AllocBuffer` (scope `local`). `Return(code)` with a
                  non-zero code reports a failed device assert.
    `may_alias`   whether two `params` may overlap in memory. Scratch never overlaps a parameter.
    """

    symbol: str
    params: tuple[Any, ...]
    scalars: tuple[Any, ...]
    scratch: tuple[tuple[Any, int], ...]
    scratch_bytes: int
    block_vars: tuple[Any, ...]
    grid: tuple[Any, ...]
    body: Any
    may_alias: bool = field(default=False)

    def __post_init__(self) -> None:
        if len(self.block_vars) != len(self.grid):
            raise ValueError(f"{self.symbol}: {len(self.block_vars)} block variables, {len(self.grid)} grid extents")
        for buffer, offset in self.scratch:
            if offset % 64:
                raise ValueError(f"{self.symbol}: scratch buffer {buffer.name} at byte {offset}: no multiple of 64")
