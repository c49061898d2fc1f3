"""Tile instructions of AMX: a 16 x 16 tile of accumulators gains the product of two tiles of 1 KiB.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (TDPBF16PS, TDPBSSD and relatives,
LDTILECFG); intrinsic names: llvm/include/llvm/IR/IntrinsicsX86.td of LLVM 22.

| name | needs | acc | a x b | group |
| --- | --- | --- | --- | --- |
| tdpbf16ps | amx-bf16 | float32 | bfloat16 x bfloat16 | 2 |
| tdpbssd, tdpbsud, tdpbusd, tdpbuud | amx-int8 | int32 | 8 bits x 8 bits, signed or unsigned each | 4 |

A tile register has up to 16 rows of up to 64 bytes. A lies as in memory, row by row; B lies in groups along K, as
`vdpbf16ps` and `vpdpbusd` have it (`gemm_kernels.py`). `TileShape` says how many rows and bytes of the registers count.
"""

from __future__ import annotations

from dataclasses import dataclass

from tile_compiler.instructions.matrix_multiply import MatrixMultiply, Meaning, sum_of_products
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Fragment

from ..features import CpuFeatures
from ..llvm_text import Function, Value
from .multiply_accumulate import SOURCE

#: Rows of a tile register, and its row in units of 4 bytes.
TILE = 16


@dataclass(frozen=True)
class TileMultiply:
    """`C[i, j] += sum over k of A[i, k] * B[k, j]` for i, j < 16 and k < 16 * `group`, in three tile registers.

    `acc`, `a`, `b` are dtypes; `group` elements of `a` (or `b`) fill one accumulator's 4 bytes. `text` is the mnemonic and
    the name of LLVM's intrinsic, `extra` the LLVM feature that it needs. `meaning(c, a, b)` takes whole matrices.
    """

    name: str
    text: str
    acc: str
    a: str
    b: str
    group: int
    extra: str
    meaning: Meaning = sum_of_products

    unit_bytes = 4

    def __post_init__(self) -> None:
        bits = {self.group * dtype_of(kind).bits for kind in (self.a, self.b)} | {dtype_of(self.acc).bits}
        if bits != {8 * self.unit_bytes}:
            raise ValueError(f"{self.name}: {self.group} elements of {self.a}, {self.b} do not fill one {self.acc}")

    def available(self, features: CpuFeatures) -> bool:
        return self.extra in features.extra

    def lanes(self, features: CpuFeatures) -> int:
        """Columns of C in one tile."""
        return TILE

    def write(self, f: Function, acc: int, a: int, b: int) -> None:
        """Emits the instruction on the registers of these numbers."""
        f.call_void(f"llvm.x86.{self.text}", *(register(f, number) for number in (acc, a, b)))

    def declaration(self) -> MatrixMultiply:
        """One instruction on full tiles, by one thread."""
        group, depth = self.group, TILE * self.group
        rows = Fragment((TILE, depth), lambda i, k: (0, i * depth + k))
        matrix = Fragment((depth, TILE), lambda k, j: (0, k // group * depth + j * group + k % group))
        sums = Fragment((TILE, TILE), lambda i, j: (0, i * TILE + j))
        types = (self.a, self.b, self.acc)
        return MatrixMultiply(
            self.name,
            self.text,
            TILE,
            TILE,
            depth,
            *types,
            rows,
            matrix,
            sums,
            1,
            ("x86-64-v4+",),
            SOURCE,
            self.meaning,
        )


@dataclass(frozen=True)
class TileShape:
    """What the eight registers hold: up to 2 x 2 tiles of C in 0 to 3, two of A in 4 and 5, two of B in 6 and 7.

    `rows` and `cols` of C, at most 32 each; `depth` groups along K, at most 16.
    """

    rows: int = 2 * TILE
    cols: int = 2 * TILE
    depth: int = TILE

    @property
    def heights(self) -> list[int]:
        """Rows of each tile of A."""
        return [min(TILE, self.rows - at) for at in range(0, self.rows, TILE)]

    @property
    def widths(self) -> list[int]:
        """Columns of each tile of B."""
        return [min(TILE, self.cols - at) for at in range(0, self.cols, TILE)]

    @property
    def full(self) -> bool:
        """Whether all tiles in use are whole: then any other shape of whole tiles works with the same registers."""
        return self.rows % TILE == 0 and self.cols % TILE == 0 and self.depth == TILE

    def configuration(self) -> bytes:
        """The 64 bytes for `ldtilecfg`: palette 1; from byte 16 on bytes per row, from byte 48 on rows, of each tile."""
        sizes = {accumulator(i, v): (h, w) for i, h in enumerate(self.heights) for v, w in enumerate(self.widths)}
        sizes |= {of_a(i): (h, self.depth) for i, h in enumerate(self.heights)}
        sizes |= {of_b(v): (self.depth, w) for v, w in enumerate(self.widths)}
        held = bytearray(64)
        held[0] = 1
        for number, (rows, units) in sizes.items():
            held[16 + 2 * number], held[48 + number] = 4 * units, rows
        return bytes(held)


def accumulator(i: int, v: int) -> int:
    """The register of tile (i, v) of C."""
    return 2 * i + v


def of_a(i: int) -> int:
    """The register of tile i of A."""
    return 4 + i


def of_b(v: int) -> int:
    """The register of tile v of B."""
    return 6 + v


def register(f: Function, number: int) -> Value:
    """A register's number as the intrinsics take it."""
    return f.const("i8", number)


TDPBF16PS = TileMultiply("amx_bf16", "tdpbf16ps", "float32", "bfloat16", "bfloat16", 2, "amx-bf16")
TDPBSSD = TileMultiply("amx_s8s8", "tdpbssd", "int32", "int8", "int8", 4, "amx-int8")
TDPBSUD = TileMultiply("amx_s8u8", "tdpbsud", "int32", "int8", "uint8", 4, "amx-int8")
TDPBUSD = TileMultiply("amx_u8s8", "tdpbusd", "int32", "uint8", "int8", 4, "amx-int8")
TDPBUUD = TileMultiply("amx_u8u8", "tdpbuud", "int32", "uint8", "uint8", 4, "amx-int8")

TILES = {i.name: i for i in (TDPBF16PS, TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD)}
