"""The formats of packed weights: how many bits a code has, and what number it stands for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.errors import WrongDtype, WrongShape, WrongValue

#: That a code may have: a byte holds whole ones.
BITS = (1, 2, 4)


@dataclass(frozen=True)
class Format:
    """`table`: the number of each code; None for integers, `signed` in two's complement or from 0 up.

    `zeros`: whether zero points may be subtracted. `scale`: the type of the scales, None for that of x.
    """

    name: str
    bits: int
    signed: bool = False
    zeros: bool = False
    table: tuple[float, ...] | None = None
    scale: str | None = None

    @property
    def per_byte(self) -> int:
        return 8 // self.bits

    def values(self) -> tuple[float, ...]:
        """The number of each code, before zero point and scale."""
        if self.table is not None:
            return self.table
        least = -(2 ** (self.bits - 1)) if self.signed else 0
        return tuple(float((code - least) % 2**self.bits + least) for code in range(2**self.bits))


def _with_negatives(positive: tuple[float, ...]) -> tuple[float, ...]:
    return positive + tuple(-x for x in positive)


# OCP Microscaling Formats 1.0, 5.3.3: sign, two bits of exponent, one of mantissa.
E2M1 = _with_negatives((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))

# Dettmers et al., QLoRA, 2023, appendix E: quantiles of a normal distribution between -1 and 1, with an exact 0.
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)

# The fp4 of bitsandbytes, which is not e2m1: multiples of 1/192 up to 1, in this order of codes.
BITSANDBYTES_FP4 = _with_negatives((0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25))

FORMATS = {
    f.name: f
    for f in (
        Format("int4", 4, signed=True),
        Format("int2", 2, signed=True),
        Format("int1", 1, signed=True),
        Format("uint4", 4, zeros=True),
        Format("uint2", 2, zeros=True),
        Format("uint1", 1, zeros=True),
        Format("nf4", 4, table=NF4),
        Format("fp4", 4, table=E2M1),
        Format("bnb_fp4", 4, table=BITSANDBYTES_FP4),
        Format("mxfp4", 4, table=E2M1, scale="float8_e8m0fnu"),
    )
}


def held_exactly(kind: Format) -> bool:
    """Whether bfloat16 holds all numbers of a format."""
    return all(float(torch.tensor(value, dtype=torch.float64).bfloat16()) == value for value in kind.values())


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes side by side in bytes: element i of the last dimension in byte i // per, per = 8 / bits, low bits first.

    codes: integers (..., k) of which the low `bits` (1, 2 or 4) count, k a multiple of per; result: (..., k / per) uint8.
    Raises WrongShape, WrongDtype, WrongValue.
    """
    if bits not in BITS:
        raise WrongValue(f"pack: bits is {bits!r}; expected one of {BITS}: codes of 3 bits are packed as such of 4")
    if codes.dtype.is_floating_point or codes.dtype.is_complex:
        raise WrongDtype(f"pack: codes are {codes.dtype}; expected integers: codes.int()")
    per = 8 // bits
    if not codes.ndim or codes.shape[-1] % per:
        raise WrongShape(
            f"pack: codes have shape {tuple(codes.shape)}; expected (..., k), k a multiple of {per}: pad them with zeros"
        )
    fields = (codes.to(torch.uint8) & (2**bits - 1)).unflatten(-1, (-1, per))
    packed = torch.zeros_like(fields[..., 0])
    for place in range(per):
        packed |= fields[..., place] << place * bits
    return packed


def unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """The codes of packed bytes, as uint8: what `pack` takes."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    return ((packed.unsqueeze(-1) >> shifts) & (2**bits - 1)).flatten(-2)
