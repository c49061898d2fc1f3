"""Instructions of one thread: the dot product of four bytes.

Source: CDNA3 ISA, section 12.10 "VOP3P instructions", V_DOT4_I32_I8, V_DOT4_U32_U8 (gfx90a has both).
"""

from __future__ import annotations

from tile_compiler.instructions.matrix_multiply import MatrixMultiply
from tilelang.layout import Fragment


def _dot4(name: str, letter: str, dtype: str) -> MatrixMultiply:
    row = Fragment((1, 4), lambda i, k: (0, k))
    column = Fragment((4, 1), lambda k, j: (0, k))
    one = Fragment((1, 1), lambda i, j: (0, 0))
    text = f"v_dot4_{letter}32_{letter}8"
    held = (row, column, one)
    source = "CDNA3 ISA, 12.10 VOP3P"
    return MatrixMultiply(f"tl::{name}", text, 1, 1, 4, dtype, dtype, "int32", *held, 1, ("gfx90a", "gfx942"), source)


SCALAR = (_dot4("dot4_s8", "i", "int8"), _dot4("dot4_u8", "u", "uint8"))
