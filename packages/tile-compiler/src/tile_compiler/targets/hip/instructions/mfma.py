"""`v_mfma_*`: the matrix cores of CDNA2 (gfx90a) and CDNA3 (gfx942), one wave of 64 at a time.

Sources: "AMD Instinct MI200 / CDNA2 Instruction Set Architecture", section 9.7, and "AMD Instinct MI300 / CDNA3
Instruction Set Architecture", chapter 7 "Matrix arithmetic instructions" (which holds which element: section 7.1.4);
builtins: LLVM, clang/include/clang/Basic/BuiltinsAMDGPU.def.

| accumulator | a x b | shapes | architectures |
| --- | --- | --- | --- |
| f32 | f16 x f16 | 32x32x8, 16x16x16 | gfx90a, gfx942 |
| f32 | bf16 x bf16 (`_1k`) | 32x32x8, 16x16x16 | gfx90a, gfx942 |
| f32 | f32 x f32 | 32x32x2, 16x16x4 | gfx90a, gfx942 |
| f64 | f64 x f64 | 16x16x4 | gfx90a, gfx942 |
| f32 | xf32 x xf32 | 32x32x4, 16x16x8 | gfx942 |
| i32 | i8 x i8 | 32x32x8, 16x16x16 | gfx90a |
| i32 | i8 x i8 | 32x32x16, 16x16x32 | gfx942 |
| f32 | e4m3fnuz, e5m2fnuz in any pair | 32x32x16, 16x16x32 | gfx942 |
"""

from __future__ import annotations

from functools import cache

from tile_compiler.instructions.matrix_multiply import Array, MatrixMultiply, sum_of_products
from tilelang.layout import Fragment

WAVE = 64
BOTH, CDNA2, CDNA3 = ("gfx90a", "gfx942"), ("gfx90a",), ("gfx942",)
SOURCE = "CDNA3 ISA, chapter 7; CDNA2 ISA, section 9.7"

# The names in our header's functions, and ours of the element types.
TYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "xf32": "tfloat32",
    "i8": "int8",
    "e4m3fnuz": "float8_e4m3fnuz",
    "e5m2fnuz": "float8_e5m2fnuz",
    "i32": "int32",
}
_FP8 = {"e4m3fnuz": "fp8", "e5m2fnuz": "bf8"}


@cache
def fragments(size: int, k: int, rows: int = 4) -> tuple[Fragment, Fragment, Fragment]:
    """A (size, k), B (k, size), C (size, size), for size 16 or 32.

    The wave is 64 / size groups. Lane l of a group holds row l of A and column l of B, `per` neighbours along k. C: column
    l, and of each `rows` * groups rows `rows` neighbours.
    """
    groups = WAVE // size
    per = k // groups
    a = Fragment((size, k), lambda i, k: (k // per * size + i, k % per))
    b = Fragment((k, size), lambda k, j: (k // per * size + j, k % per))
    c = Fragment((size, size), lambda i, j: (i // rows % groups * size + j, i % rows + i // (rows * groups) * rows))
    return a, b, c


def rounded(c: Array, a: Array, b: Array) -> Array:
    """xf32 keeps 10 bits of mantissa of each operand, to nearest even."""

    def keep(x: Array) -> Array:
        bits = x.astype("float32").view("uint32").astype("uint64")
        return ((bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000).astype("uint32").view("float32")

    return sum_of_products(c, keep(a), keep(b))


def _mfma(size: int, k: int, acc: str, a: str, b: str, architectures: tuple[str, ...]) -> MatrixMultiply:
    name = f"tl::mfma_{size}x{size}x{k}_{acc}_{a}" + ("" if a == b else f"_{b}")
    if a in _FP8:
        operands = f"_{_FP8[a]}_{_FP8[b]}"
    elif a == "xf32" or architectures == CDNA3:
        operands = f"_{a}"
    else:
        operands = f"{a}_1k" if a == "bf16" else a
    text = f"v_mfma_{acc}_{size}x{size}x{k}{operands}"
    meaning = rounded if a == "xf32" else sum_of_products
    held = fragments(size, k, 1 if acc == "f64" else 4)
    return MatrixMultiply(
        name, text, size, size, k, TYPES[a], TYPES[b], TYPES[acc], *held, WAVE, architectures, SOURCE, meaning
    )


def _both(k: int, acc: str, a: str, b: str, architectures: tuple[str, ...]) -> tuple[MatrixMultiply, MatrixMultiply]:
    """The form of 32x32xk and that of 16x16x2k: the same work for a wave."""
    return _mfma(32, k, acc, a, b, architectures), _mfma(16, 2 * k, acc, a, b, architectures)


MFMA = (
    *_both(8, "f32", "f16", "f16", BOTH),
    *_both(8, "f32", "bf16", "bf16", BOTH),
    *_both(2, "f32", "f32", "f32", BOTH),
    _mfma(16, 4, "f64", "f64", "f64", BOTH),
    *_both(4, "f32", "xf32", "xf32", CDNA3),
    *_both(16, "i32", "i8", "i8", CDNA3),
    *_both(8, "i32", "i8", "i8", CDNA2),
    *(d for a in _FP8 for b in _FP8 for d in _both(16, "f32", a, b, CDNA3)),
)
