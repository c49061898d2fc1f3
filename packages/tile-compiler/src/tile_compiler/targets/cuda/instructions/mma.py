"""`mma.sync`: the tensor cores of sm_75 and newer, one warp at a time.

Source: PTX ISA 8.7, section 9.7.14.5 "Matrix multiply-accumulate operation using mma instruction", whose figures
"Matrix fragments for mma.m16n8k8 ..." to "mma.m16n8k64" give the fragments; A is row-major, B column-major
(https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions-mma).

| accumulator | a x b | shapes | since |
| --- | --- | --- | --- |
| f32, f16 | f16 x f16 | m16n8k8 | sm_75 |
| f32, f16 | f16 x f16 | m16n8k16 | sm_80 |
| f32 | bf16 x bf16 | m16n8k8, m16n8k16 | sm_80 |
| f32 | tf32 x tf32 | m16n8k4, m16n8k8 | sm_80 |
| f32 | f32 x f32, by three of tf32 each | m16n8k8, m16n16k8, m16n32k8 | sm_80 |
| s32 | s8, u8 in any pair | m8n8k16 / m16n8k16, m16n8k32 | sm_75 / sm_80 |
| s32 | s4, u4 in any pair | m8n8k32 / m16n8k32, m16n8k64 | sm_75 / sm_80 |
| f32 | e4m3, e5m2 in any pair | m16n8k32 | sm_89 |

Within the same element types the preferred instruction comes first: the largest.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tile_compiler.instructions.matrix_multiply import Array, MatrixMultiply, sum_of_products
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Fragment, IndexExpr

WARP = 32
SOURCE = "PTX ISA 8.7, 9.7.14.5 mma"

# PTX's names of element types, and ours.
TYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "tfloat32",
    "s8": "int8",
    "u8": "uint8",
    "s4": "int4",
    "u4": "uint4",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "f32": "float32",
    "s32": "int32",
}


@cache
def fragments(m: int, k: int, per: int) -> tuple[Fragment, Fragment, Fragment]:
    """A (m, k), B (k, 8), C (m, 8) of all shapes, for `per` elements of A or B in a 32-bit register.

    The warp is 8 groups of 4 lanes. Group g holds row g of A and C (and g + 8, if there are 16) and column g of B.
    Lane t of a group holds along k the elements t * per ... of each piece of 4 * per, along n columns 2t and 2t + 1.
    """
    piece, rows = 4 * per, m // 8
    a = Fragment(
        (m, k),
        lambda i, k: (i % 8 * 4 + k % piece // per, k % per + i // 8 * per + k // piece * (rows * per)),
    )
    b = Fragment((k, 8), lambda k, j: (j * 4 + k % piece // per, k % per + k // piece * per))
    c = Fragment((m, 8), lambda i, j: (i % 8 * 4 + j // 2, j % 2 + i // 8 * 2))
    return a, b, c


def beside(fragment: Fragment, n: int) -> Fragment:
    """`fragment`, of 8 columns, for n: one block after the other in each lane."""
    (rows, columns), held = fragment.shape, fragment.local_size
    return Fragment((rows, n), lambda i, j: _moved(fragment(i, j % columns), j // columns * held))


def _moved(place: tuple[IndexExpr, IndexExpr], by: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    lane, register = place
    return lane, register + by


def truncated(c: Array, a: Array, b: Array) -> Array:
    """Of a tf32 operand in a 32-bit register the lower 13 bits are not read."""
    return sum_of_products(c, read_as_tf32(a), read_as_tf32(b))


def read_as_tf32(x: Array) -> Array:
    """Without the lower 13 bits."""
    return np.asarray((x.astype("float32").view("uint32") & 0xFFFFE000).view("float32"))


def below_tf32(x: Array, larger: float) -> Array:
    """What is left of float32, times `larger`, without the bits of it that are read."""
    x = x.astype("float32")
    return np.asarray((x.astype("float64") * larger - read_as_tf32(x)).astype("float32"))


def by_three(c: Array, a: Array, b: Array) -> Array:
    """The product of sums of two tf32 without that of both lower ones, the smallest first. Both grow by as much as is lost so,
    and by what is cut, in the mean."""
    a_low, b_low = below_tf32(a, 1 + 2.0**-22), below_tf32(b, 1 + 2.0**-23)
    return truncated(truncated(truncated(c, a_low, b), a, b_low), a, b)


def _mma(m: int, k: int, acc: str, a: str, b: str, since: str) -> MatrixMultiply:
    name = f"tl::mma_m{m}n8k{k}_{acc}_{a}" + ("" if a == b else f"_{b}")
    text = f"mma.sync.aligned.m{m}n8k{k}.row.col.{acc}.{a}.{b}.{acc}"
    held = fragments(m, k, 32 // dtype_of(TYPES[a]).bits)
    types, where = (TYPES[a], TYPES[b], TYPES[acc]), (f"{since}+",)
    if a == "tf32":
        return MatrixMultiply(name, text, m, 8, k, *types, *held, WARP, where, SOURCE, truncated, truncates=True)
    return MatrixMultiply(name, text, m, 8, k, *types, *held, WARP, where, SOURCE)


def _by_three(n: int, per: int, suffix: str) -> MatrixMultiply:
    """float32 as the sum of what tf32 keeps of it and of the rest, by three times n / 8 instructions: a product is within 2^-19
    of itself, 2^-22 in the root mean square and 2^-25 in the mean. NVIDIA CUTLASS, example 27, 3xTF32; H. Ootomo and R. Yokota,
    Recovering single precision accuracy from tensor cores, 2022. With `per` = 2 a lane holds neighbours along k as it does of
    16-bit operands, which is how it holds a result: the order of k is free."""
    a, b, c = fragments(16, 8, per)
    return MatrixMultiply(
        f"tl::mma_m16n{n}k8_f32_tf32x3{suffix}",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        16,
        n,
        8,
        *("float32",) * 3,
        a,
        beside(b, n),
        beside(c, n),
        WARP,
        ("sm_80+",),
        SOURCE,
        by_three,
        asked_by="tl.allow_tf32x3",
        sums_along=32,
    )


def _pairs(*types: str) -> list[tuple[str, str]]:
    return [(a, b) for a in types for b in types]


MMA = (
    *(_mma(16, 16, acc, "f16", "f16", "sm_80") for acc in ("f32", "f16")),
    *(_mma(16, 8, acc, "f16", "f16", "sm_75") for acc in ("f32", "f16")),
    _mma(16, 16, "f32", "bf16", "bf16", "sm_80"),
    _mma(16, 8, "f32", "bf16", "bf16", "sm_80"),
    _mma(16, 8, "f32", "tf32", "tf32", "sm_80"),
    _mma(16, 4, "f32", "tf32", "tf32", "sm_80"),
    *(_by_three(n, per, suffix) for per, suffix in ((1, ""), (2, "_pairs")) for n in (32, 16, 8)),
    *(_mma(16, 32, "s32", a, b, "sm_80") for a, b in _pairs("s8", "u8")),
    *(_mma(16, 16, "s32", a, b, "sm_80") for a, b in _pairs("s8", "u8")),
    *(_mma(8, 16, "s32", a, b, "sm_75") for a, b in _pairs("s8", "u8")),
    *(_mma(16, 64, "s32", a, b, "sm_80") for a, b in _pairs("s4", "u4")),
    *(_mma(16, 32, "s32", a, b, "sm_80") for a, b in _pairs("s4", "u4")),
    *(_mma(8, 32, "s32", a, b, "sm_75") for a, b in _pairs("s4", "u4")),
    *(_mma(16, 32, "f32", a, b, "sm_89") for a, b in _pairs("e4m3", "e5m2")),
)
