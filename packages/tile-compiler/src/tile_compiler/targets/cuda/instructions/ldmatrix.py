"""`ldmatrix` and `stmatrix`: matrices of 8 rows of 16 bytes between shared memory and a warp's registers.

Source: PTX ISA 8.7, sections 9.7.14.5.15 "Warp-level matrix load instruction: ldmatrix" (sm_75) and 9.7.14.5.16
"Warp-level matrix store instruction: stmatrix" (sm_90).
"""

from __future__ import annotations

from tile_compiler.instructions.matrix_move import MatrixMove

WARP = 32


def _move(kind: str, count: int, transposed: bool) -> MatrixMove:
    store = kind == "stmatrix"
    suffix, trans = ("_trans", ".trans") if transposed else ("", "")
    return MatrixMove(
        f"tl::{kind}_x{count}{suffix}",
        f"{kind}.sync.aligned.m8n8.x{count}{trans}.shared.b16",
        count,
        transposed,
        store,
        WARP,
        ("sm_90+",) if store else ("sm_75+",),
        f"PTX ISA 8.7, 9.7.14.5 {kind}",
    )


LDMATRIX = tuple(_move("ldmatrix", count, transposed) for transposed in (False, True) for count in (4, 2, 1))
STMATRIX = tuple(_move("stmatrix", count, transposed) for transposed in (False, True) for count in (4, 2, 1))
