"""Instructions of one thread: the dot product of four bytes.

Source: PTX ISA 8.7, section 9.7.1.23 "Integer arithmetic instructions: dp4a". Fused multiply-add (`fma.rn.f32`,
`fma.rn.f64`) and integer multiply-add (`mad.lo.s32`, SASS: IMAD) have no function of their own: C++ writes `c + a * b`
and the device's compiler contracts it.
"""

from __future__ import annotations

from tile_compiler.instructions.matrix_multiply import MatrixMultiply
from tilelang.layout import Fragment

SOURCE = "PTX ISA 8.7, 9.7.1.23 dp4a; 9.7.3.6 fma; 9.7.1.4 mad"


def _one_lane(name: str, text: str, k: int, a: str, b: str, c: str, since: str) -> MatrixMultiply:
    row = Fragment((1, k), lambda i, k: (0, k))
    column = Fragment((k, 1), lambda k, j: (0, k))
    one = Fragment((1, 1), lambda i, j: (0, 0))
    return MatrixMultiply(name, text, 1, 1, k, a, b, c, row, column, one, 1, (since,), SOURCE)


DP4A = (
    _one_lane("tl::dot4_s8", "dp4a.s32.s32", 4, "int8", "int8", "int32", "sm_61+"),
    _one_lane("tl::dot4_u8", "dp4a.u32.u32", 4, "uint8", "uint8", "int32", "sm_61+"),
    _one_lane("tl::dot4_s8_u8", "dp4a.s32.u32", 4, "int8", "uint8", "int32", "sm_61+"),
    _one_lane("tl::dot4_u8_s8", "dp4a.u32.s32", 4, "uint8", "int8", "int32", "sm_61+"),
)
MULTIPLY_ADD = (
    _one_lane("tl::fma_f32", "fma.rn.f32", 1, "float32", "float32", "float32", "sm_75+"),
    _one_lane("tl::fma_f64", "fma.rn.f64", 1, "float64", "float64", "float64", "sm_75+"),
    _one_lane("tl::mad_s32", "mad.lo.s32", 1, "int32", "int32", "int32", "sm_75+"),
)
SCALAR = (*DP4A, *MULTIPLY_ADD)
