"""The `mma.sync` instructions, declared: shapes, element types, and which lane holds what (PTX ISA, "Matrix fragments")."""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.layout import Fragment


@dataclass(frozen=True)
class Mma:
    """`mma.m16n8k<k>`: C (16, 8) += A (16, k) @ B (k, 8); `per` elements of A and B fill a 32-bit register.

    Lanes come in 8 groups of 4: group g holds rows g and g + 8 of A and C and column g of B; a lane of a group holds
    2 neighbouring columns of C, and along k `per` neighbours in each half of the instruction.
    """

    name: str
    operand: str
    result: str
    k: int
    first_arch: int

    @property
    def per(self) -> int:
        return self.k // 8

    @property
    def a_registers(self) -> int:
        """Elements of A in one lane."""
        return 4 * self.per

    @property
    def b_registers(self) -> int:
        return 2 * self.per

    def a(self) -> Fragment:
        e = self.per
        return Fragment(
            (16, self.k),
            lambda i, k: (i % 8 * 4 + k % (4 * e) // e, k % e + i // 8 * e + k // (4 * e) * (2 * e)),
        )

    def b(self) -> Fragment:
        e = self.per
        return Fragment((self.k, 8), lambda k, j: (j * 4 + k % (4 * e) // e, k % e + k // (4 * e) * e))

    def c(self) -> Fragment:
        return Fragment((16, 8), lambda i, j: (i % 8 * 4 + j // 2, j % 2 + i // 8 * 2))


MMA = (
    Mma("tl::mma_m16n8k16_f32_f16", "float16", "float32", 16, 80),
    Mma("tl::mma_m16n8k16_f32_bf16", "bfloat16", "float32", 16, 80),
    Mma("tl::mma_m16n8k32_s32_s8", "int8", "int32", 32, 80),
    Mma("tl::mma_m16n8k32_s32_u8", "uint8", "int32", 32, 80),
    Mma("tl::mma_m16n8k32_f32_e4m3", "float8_e4m3fn", "float32", 32, 89),
    Mma("tl::mma_m16n8k32_f32_e5m2", "float8_e5m2", "float32", 32, 89),
)


def mma_for(a: str, b: str, c: str, arch: int) -> Mma | None:
    """The instruction for these element types on this architecture."""
    found = (m for m in MMA if m.operand == a == b and m.result == c and arch >= m.first_arch)
    return next(found, None)
