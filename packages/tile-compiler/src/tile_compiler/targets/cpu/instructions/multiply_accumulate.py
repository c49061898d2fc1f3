"""Multiply-accumulate instructions: what one vector of accumulators gains from one step along K.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (VFMADD231PS/PD, VPMADDWD, VPDPBUSD,
VDPBF16PS); intrinsic names: llvm/include/llvm/IR/IntrinsicsX86.td of LLVM 22.

| name | needs | acc | a x b | group |
| --- | --- | --- | --- | --- |
| fma f32, f64 | v3, v4 | float32, float64 | the same | 1 |
| mul + add i32, i64 | v3, v4 | int32, int64 | the same | 1 |
| vpmaddwd | v3, v4 | int32 | int16 x int16 | 2 |
| vdpbf16ps | v4 + avx512bf16 | float32 | bfloat16 x bfloat16 | 2 |
| vpdpbusd | v4 + avx512vnni | int32 | uint8 x int8 | 4 |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tile_compiler.instructions.matrix_multiply import MatrixMultiply
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Fragment

from ..features import CpuFeatures
from ..llvm_text import Function, Value, bits_of, split, vector

Array = np.ndarray[Any, Any]
SOURCE = "Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2"


@dataclass(frozen=True)
class MultiplyAccumulate:
    """`acc[lane] += sum over g < group of a[g] * b[lane, g]`; `a` is one group broadcast to every lane.

    How LLVM writes it, beside what every target says of its instructions (`declaration`).

    `acc`, `a`, `b` are dtypes of the elements; `group` elements of `a` (or `b`) fill one accumulator lane, so that
    memory holds them as one `unit`. `write(f, acc, a, b)` emits the instruction on vectors of units. `extra` is the
    LLVM feature it needs. `meaning(acc, a, b)` takes arrays [lanes], [group], [lanes, group]. `text` is the mnemonic.
    """

    name: str
    text: str
    acc: str
    a: str
    b: str
    group: int
    write: Callable[[Function, Value, Value, Value], Value]
    meaning: Callable[[Array, Array, Array], Array]
    extra: str = ""

    def __post_init__(self) -> None:
        if (
            self.group * dtype_of(self.a).bits != dtype_of(self.acc).bits
            or dtype_of(self.a).bits != dtype_of(self.b).bits
        ):
            raise ValueError(f"{self.name}: {self.group} elements of {self.a}, {self.b} do not fill one {self.acc}")

    def available(self, features: CpuFeatures) -> bool:
        return not self.extra or self.extra in features.extra

    def lanes(self, features: CpuFeatures) -> int:
        """Accumulators in one register."""
        return features.lanes(dtype_of(self.acc).bits)

    def declaration(self, lanes: int) -> MatrixMultiply:
        """One instruction on a vector of `lanes` accumulators: a row of A times a matrix B, by one thread."""
        row = Fragment((1, self.group), lambda i, k: (0, k))
        matrix = Fragment((self.group, lanes), lambda k, j: (0, j * self.group + k))
        sums = Fragment((1, lanes), lambda i, j: (0, j))

        def meaning(c: Array, a: Array, b: Array) -> Array:
            return self.meaning(c[0], a[0], b.T)[None]

        levels = ("x86-64-v3+",) if lanes * dtype_of(self.acc).bits <= 256 and not self.extra else ("x86-64-v4+",)
        types = (self.a, self.b, self.acc)
        return MatrixMultiply(
            self.name, self.text, 1, lanes, self.group, *types, row, matrix, sums, 1, levels, SOURCE, meaning
        )

    @property
    def acc_type(self) -> str:
        """LLVM type of one accumulator."""
        return {"float32": "float", "float64": "double", "int32": "i32", "int64": "i64"}[self.acc]

    @property
    def unit_type(self) -> str:
        """LLVM type of one group in memory."""
        return self.acc_type if self.group == 1 else "i32"

    @property
    def unit_bytes(self) -> int:
        return dtype_of(self.acc).bits // 8


def _fma(f: Function, acc: Value, a: Value, b: Value) -> Value:
    return f.fma(a, b, acc)


def _multiply_add(f: Function, acc: Value, a: Value, b: Value) -> Value:
    return acc + a * b


def _dot_bf16(f: Function, acc: Value, a: Value, b: Value) -> Value:
    lanes = split(acc.type)[1]
    pairs = vector("bfloat", 2 * lanes)
    a, b = (f.emit(pairs, f"bitcast {x.typed()} to {pairs}") for x in (a, b))
    return f.call(f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", acc.type, acc, a, b)


def _dot_i8(f: Function, acc: Value, unsigned: Value, signed: Value) -> Value:
    lanes = split(acc.type)[1]
    quads = vector("i8", 4 * lanes)
    unsigned, signed = (f.emit(quads, f"bitcast {x.typed()} to {quads}") for x in (unsigned, signed))
    return f.call(f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", acc.type, acc, unsigned, signed)


def _dot_i16(f: Function, acc: Value, a: Value, b: Value) -> Value:
    lanes = split(acc.type)[1]
    pairs = vector("i16", 2 * lanes)
    name = "llvm.x86.avx512.pmaddw.d.512" if lanes * bits_of(acc.type) == 512 else "llvm.x86.avx2.pmadd.wd"
    a, b = (f.emit(pairs, f"bitcast {x.typed()} to {pairs}") for x in (a, b))
    return acc + f.call(name, acc.type, a, b)


def _sum_of_products(acc: Array, a: Array, b: Array) -> Array:
    """Exact for integers (which wrap); floats in float64, so compare with the tolerance of one rounding per step."""
    wide = np.int64 if acc.dtype.kind in "iu" else np.float64
    total = acc.astype(wide) + (a.astype(wide)[None, :] * b.astype(wide)).sum(axis=1)
    return np.asarray(total.astype(acc.dtype))


FMA_F32 = MultiplyAccumulate("f32", "vfmadd231ps", "float32", "float32", "float32", 1, _fma, _sum_of_products)
FMA_F64 = MultiplyAccumulate("f64", "vfmadd231pd", "float64", "float64", "float64", 1, _fma, _sum_of_products)
MAC_I32 = MultiplyAccumulate("i32", "vpmulld + vpaddd", "int32", "int32", "int32", 1, _multiply_add, _sum_of_products)
MAC_I64 = MultiplyAccumulate("i64", "vpmullq + vpaddq", "int64", "int64", "int64", 1, _multiply_add, _sum_of_products)
VPMADDWD = MultiplyAccumulate("i16", "vpmaddwd", "int32", "int16", "int16", 2, _dot_i16, _sum_of_products)
# Flushes denormal inputs and results to zero and rounds to nearest even after each product pair.
VDPBF16PS = MultiplyAccumulate(
    "bf16", "vdpbf16ps", "float32", "bfloat16", "bfloat16", 2, _dot_bf16, _sum_of_products, extra="avx512bf16"
)
VPDPBUSD = MultiplyAccumulate(
    "u8s8", "vpdpbusd", "int32", "uint8", "int8", 4, _dot_i8, _sum_of_products, extra="avx512vnni"
)
VPDPBUSD_SWAPPED = MultiplyAccumulate(
    "s8u8",
    "vpdpbusd",
    "int32",
    "int8",
    "uint8",
    4,
    lambda f, acc, a, b: _dot_i8(f, acc, b, a),
    _sum_of_products,
    extra="avx512vnni",
)

#: Of bytes, one operand unsigned and one signed.
QUADS = (VPDPBUSD, VPDPBUSD_SWAPPED)


def of_bytes(unsigned: bool, features: CpuFeatures) -> MultiplyAccumulate:
    """The instruction for bytes by the sign of A: the one that multiplies quads of them as they are, a B of the same sign with
    its sign bits flipped (`flips` in ../gemm_operands.py); else pairs of those widened."""
    if not VPDPBUSD.available(features):
        return VPMADDWD
    return VPDPBUSD if unsigned else VPDPBUSD_SWAPPED


ALL = {i.name: i for i in (FMA_F32, FMA_F64, MAC_I32, MAC_I64, VPMADDWD, VDPBF16PS, VPDPBUSD, VPDPBUSD_SWAPPED)}
