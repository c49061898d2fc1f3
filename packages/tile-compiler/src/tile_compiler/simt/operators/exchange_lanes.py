"""A tile from registers to global memory in vectors of 16 bytes, where four lanes hold a vector's words between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import substitute
from tile_compiler.simt.distribution import Distribution
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import address, int32, is_global, local, run, store, under, unrolled
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

LANES = 4
WARP = 32
WORD_BITS = 32


@dataclass
class QuadStore:
    """`C[i, j] = value(i, j)` for every (i, j) of `loop`: four lanes exchange words, then each stores 16 bytes.

    Where there is a `condition`, which is the same along a vector, it decides which vectors are stored.

    An accumulator of `mma.sync` gives a lane two neighbours of a row, and its three neighbour lanes the next six. Each of
    four such rows is gathered in one of the lanes (`tl::transpose_quad`).
    """

    statement: tir.BufferStore
    loop: Distribution
    loop_vars: tuple[Any, ...]
    value: Callable[[Any], Any]
    width: Callable[[int], int]
    low: Lowering
    condition: Any | None = None

    def __post_init__(self) -> None:
        self.word = WORD_BITS // dtype_of(tile_ir.dtype_name(self.statement.buffer)).bits

    def lower(self) -> Any | None:
        """The statements; None where lanes do not hold neighbouring words."""
        loop, arch = self.loop, self.low.ctx.arch
        if not is_global(self.statement.buffer) or arch.warp != WARP or loop.threads % WARP or self.word < 2:
            return None
        if loop.replicas > 1 or not loop.is_full or loop.linear_form is not None or loop.steps % (LANES * self.word):
            return None
        wide = LANES * self.word
        axes = [a for a in reversed(range(len(loop.shape))) if self.width(a) >= wide and self._neighbours(a)]
        return self._stores() if any(map(self._decided_once, axes)) else None

    def _decided_once(self, axis: int) -> bool:
        """Whether the condition is the same for neighbours along `axis`."""
        return self.condition is None or self.loop_vars[axis] not in tile_ir.walk(tir.Evaluate(self.condition), ir.Var)

    def _neighbours(self, axis: int) -> bool:
        """Whether lanes 4g to 4g + 3 hold, in each word of theirs, four neighbouring words along `axis`, aligned."""
        places = np.stack(np.unravel_index(self.loop.held, self.loop.shape))  # axis, thread, step
        quads = places.reshape(len(places), -1, LANES, self.loop.steps // self.word, self.word)
        first = quads[:, :, :1, :, :1]
        step = np.zeros_like(quads)
        step[axis] = (np.arange(LANES)[:, None] * self.word + np.arange(self.word))[None, :, None, :]
        return not (quads != first + step).any() and not (first[axis] % (LANES * self.word)).any()

    def _stores(self) -> Any:
        low, buffer, wide = self.low, self.statement.buffer, LANES * self.word
        part = local(wide, tile_ir.dtype_name(buffer), f"{buffer.name}_part")
        low.temporaries.append(tir.AllocBuffer(part))
        low.ctx.aligned(buffer, LANES * WORD_BITS // 8)
        low.ctx.report.note(low.span, "T.copy: four lanes exchange words and store 16 bytes each")
        lane = low.tx % LANES

        def one(group: Any) -> Any:
            if isinstance(group, ir.Var):
                low.ranges.iterate(group, 0, self.loop.steps // wide)
            fill = unrolled("u", wide, lambda u: store(part, self.value(low.simplify(group * wide + u)), u))
            step = low.simplify((group * LANES + lane) * self.word)
            place, _ = self.loop.place(low.tx // LANES * LANES, step)
            values = {v: low.simplify(p) for v, p in zip(self.loop_vars, place)}
            moved = [low.simplify(substitute(i, values)) for i in self.statement.indices]
            needed = [] if self.condition is None else [low.simplify(substitute(self.condition, values))]
            needed += low.ranges.outside(buffer, moved)
            moved[-1] = tir.Ramp(moved[-1], tir.const(1, str(moved[-1].ty)), wide)
            row = tir.BufferLoad(part, [tir.Ramp(int32(0), int32(1), wide)])
            out = under(needed, tir.BufferStore(buffer, row, moved, span=low.span))
            return tile_ir.sequence([fill, run("tl::transpose_quad", address(part, 0), span=low.span), out])

        return unrolled("g", self.loop.steps // wide, one, low.span)
