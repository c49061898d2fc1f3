"""Whether the accumulator of a product leaves a thread enough registers."""

from __future__ import annotations

from tile_compiler.simt.lowering import Lowering
from tile_compiler.tileops.site import element_type
from tilelang.ir.dtypes import dtype_of
from tilelang.ops import Gemm

# What is left of a thread's registers (255 on NVIDIA, 512 on CDNA) beside addresses and operands, by lanes that work
# together. A warpgroup's operands stay in shared memory.
MOST_REGISTERS = {32: 224, 64: 448, 128: 232}


def note_accumulator(op: Gemm, elements: int, lanes: int, low: Lowering) -> None:
    """Say so where the `elements` of C that a thread holds are too many."""
    registers = elements * dtype_of(element_type(op.c)).bits // 32
    if registers > MOST_REGISTERS[lanes]:
        low.ctx.report.note(
            low.span,
            f"gemm: {op.c.source.name} alone takes {registers} registers of a thread, more than it can have: "
            f"use {2 * low.threads} threads or a smaller tile",
        )
