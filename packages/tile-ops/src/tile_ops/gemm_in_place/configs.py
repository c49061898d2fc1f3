"""Which products are multiplied in place, and with which tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tile_ops.kernel import KernelSpec, Target


@dataclass(frozen=True)
class Tile:
    """Rows and columns of C of a block, and steps along k: what register tiles share in the caches, copied nowhere."""

    block_m: int
    block_n: int
    block_k: int


#: Few rows, and those by a transposed B, of which each block turns its columns. Register tiles are cut to what there is of rows
#: (`register_tile` in targets/cpu/gemm.py of the compiler).
FEW, TURNED = Tile(8, 64, 512), Tile(128, 64, 256)
#: Few rows by a transposed B with AVX-512: register tiles of eight rows, where TURNED takes five and six twice. Kernels, so and
#: by TURNED, us with 4 of Python's launch: EPYC 8x64x64 4.84, 5.34, 8x64x128 5.77, 6.48, 8x128x64 5.71, 6.54, 8x200x300 19.1,
#: 23.5, 8x16x1024 8.4, 9.5, 3x64x64 4.50, 4.82, 4x128x128 6.42, 7.24, 5x64x64 4.81, 4.87, 6x128x64 5.72, 5.64; Intel Xeon with
#: AMX 5.25, 5.63, 6.45, 7.24, 6.21, 6.66, 20.4, 23.6, 9.33, 10.9, 4.84, 5.19, 7.26, 8.32, 5.27, 5.29, 6.10, 6.05 (28 November
#: 2026).
TURNED_FEW = Tile(8, 32, 256)
#: With AMX from five rows on: 8x512x512 0.89 of torch's speed, 0.83 by FEW.
FEW_WITH_AMX, LEAST_WITH_AMX = Tile(8, 96, 256), 5
#: More rows, by `_height`: blocks of five and six that hold them with the least left over. Of torch's speed by 16, 32 and 96
#: rows: 16x512x512 2.73, 2.60, 2.49 (EPYC with AVX-512), 1.39, 1.34, 1.28 (as AVX2), 0.86, 0.83, - (Xeon with AMX); 24x512x512
#: 2.28, 2.30, 2.61; 1.14, 1.17, 1.36; 0.85, 0.85, -; 32x512x512 2.44, 2.45, 2.28; 1.22, 1.24, 1.17; 64x512x512 2.34, 2.33, 2.37;
#: 1.13, 1.15, 1.19; 300x300x300 2.04, 2.08, 2.32; 1.14, 1.16, 1.22.
MANY = {rows: Tile(rows, 64, 512) for rows in (16, 32, 96)}
#: With AMX tiles of rows that are few eights have columns for register tiles of 8 x 3 (`BY_EIGHT` in targets/cpu/gemm.py of the
#: compiler), and more rows fewer steps where B has more than HALF_LARGE bytes: of 64 columns the first cache holds so many.
#: Kernels with 4 us of Python's launch, us, as above and so, Xeon with AMX, 29 November 2026: 16x512x512 55.7, 48.6, 32x512x512
#: 94.1, 88.5, 16x256x256 18.5, 18.0, 32x1000x200 87.7, 78.9, 40x384x384 64.4, 60.6; by 128 steps 96x512x512 310, 273, 64x512x512
#: 174, 171, 64x256x1024 223, 217, 96x350x700 286, 276; but 128x256x256 89.9, 91.3.
MANY_WITH_AMX = {16: Tile(16, 96, 256), 32: Tile(32, 96, 256), 40: Tile(40, 96, 256), 96: Tile(96, 64, 512)}
LONG_WITH_AMX, HALF_LARGE = Tile(96, 64, 128), 1 << 19
#: The same where B is larger: longer pieces of fewer rows at a time. On a Xeon with AMX 16x1024x1024 runs at 1.01 of torch's
#: speed so (0.51 as above), 32x1024x1024 at 1.01 (0.54); on an EPYC with AVX-512 at 2.46, 2.18 (2.57, 2.28), 8x1024x1024 at 0.94
#: (0.70, by copied tiles 0.74).
WIDE_FEW = Tile(8, 256, 128)
WIDE_MANY = {rows: Tile(rows, 512, 64) for rows in MANY}
#: Bytes above which B is larger.
LARGE = 1 << 20
#: Bytes of B up to which products are multiplied so, by level: the rows of a larger one are fetched without foresight. Measured
#: with AVX2, of the speed by copied tiles: 96x96x96 1.23, 64x64x64 1.13, 50x300x300 1.1, 64x512x512 1.05, but 64x2048x2048 0.8;
#: with AVX-512 64x64x64 1.35, 96x96x96 1.5, 50x300x300 1.5, transposed ones of these alike, 64x2048x2048 0.9.
BYTES = {"x86-64-v3": 1 << 20}
OTHER_BYTES = 1 << 22
#: Rows from which on, and bytes of B above which, panels that rows share are better, where B has more columns than a block (as
#: AVX2 2048x2048x64 1.13 of the speed by panels, with AVX-512 1.15). Of the speed by panels, as AVX2: 64x512x512 0.97,
#: 96x512x512 1.01, 300x300x300 1.04, 256x256x256 0.99 to 1.01, 2048x64x2048 0.64. With AVX-512 128x128x128 1.05, 300x300x300
#: 1.07, 64x512x512 1.03, 40x1024x1024 1.23, 64x1024x1024 0.96, 2048x64x2048 1.00. With AMX 64x400x400 1.05, 48x512x512 1.05, but
#: 64x1024x1024 0.91, 96x1024x1024 0.93, 2048x64x2048 0.92.
SHARED = {"x86-64-v3": ((128, 1 << 18),), "x86-64-v4+bf16+vnni+amx": ((1, 1 << 20), (128, 3 << 17))}
OTHER_SHARED = ((49, 1 << 20), (128, 3 << 17))
#: Rows from which on there is something to share: fewer read B through registers, whole rows at a time.
LEAST_ROWS = 3


#: Rows of a tile of A by which few rows meet a transposed B, the least that holds them or the most of all. 4096 x 4096, ms, one
#: core of an EPYC with AVX-512 (bfloat16 by its own instruction), 1, 2, 8, 16, 32, 64 rows as before and so: float32 from 2 rows
#: on 2.94, 4.17, 7.01, 8.38, 14.0 and 1.94, 2.58, 3.32, 5.55, 11.4; bfloat16 1.02, 1.21, 4.74, 2.94, 4.33, 7.02 and 0.85, 0.81,
#: 1.15, 1.61, 2.64, 5.33; float16 1.08, 1.33, 4.72, 6.07, 7.80, 12.5 and 1.05, 1.09, 1.63, 2.46, 4.99, 10.3.
ROWS = (2, 8, 16, 32, 64)
#: As AVX2: float32 2.02, 5.53, 8.78, 12.8, 21.2 and 1.89, 2.93, 4.52, 8.43, 16.9. Halves, which are widened for each tile anew,
#: by tiles of 8 and 16 rows: bfloat16 16, 32, 64 rows 7.79, 12.9, 20.6, so 4.79, 10.7, 19.7 and 5.50, 11.9, 22.0.
ROWS_OF_AVX2, HALVES_OF_AVX2 = (2, 8, 16, 32), (2, 8)
#: With AMX (Sapphire Rapids), where memory gives a core 12 GB/s: float32 from 2 rows on 2.94, 4.50, 11.1, 17.7, 24.8 and 3.33,
#: 3.96, 5.20, 10.0, 21.1; 4 rows 3.06 and 3.63. float16 1.37, 1.53, 4.17, 10.1, 16.0, 24.4 and 1.63, 1.69, 2.90, 5.10, 11.9,
#: 24.1. bfloat16 1.33, 1.36, 4.20 and 1.50, 1.50, 3.34, then tile registers: 32 rows 5.56, 14.5 so.
BF16_OF_AMX = (8,)
#: Of bytes, whose rows of B are widened to 16 bits, and as many rows.
ROWS_OF_BYTES = (1, 2, 4)
#: Where quads of bytes are multiplied as they lie, and up to which rows then. EPYC with AVX-512, ms, by pairs or panels before
#: and so: 4096 x 4096 1 row 0.26, 0.20; 8 rows 0.80, 0.41; 16 1.01, 0.68; 32 1.55, 1.29; 64 2.71, 3.14; 1024 x 1024 8 rows
#: 0.037, 0.023; 32 0.097, 0.087; 64 0.163, 0.173.
#: Beside tile registers up to eight rows: Xeon with AMX 5 rows by 4096 x 4096 1.09 of torch by those, 1.6 so, 8 rows 1.11, 1.8,
#: 8x1024x1024 1.2, 1.8.
ROWS_OF_QUADS, MOST_ROWS_OF_QUADS = (1, 2, 4, 8, 16), 32
ROWS_BESIDE_TILES = (1, 2, 4, 8)
#: Rows from which on products are made so, by level and type, and up to which.
LEAST_ROWS_OF_FEW = {("amx", "float32"): 5, ("amx", "float16"): 3, ("amx", "bfloat16"): 3, ("", "float32"): 2}
MOST_ROWS, MOST_HALVES_OF_AVX2 = 64, 32
#: Columns of a block, the most that leave so many blocks (64 columns take a tenth longer: A is copied for fewer), and bytes of a
#: row of the tile, the least that hold k: more for tiles of few rows.
WIDTHS, BLOCKS = (64, 256), 8
DEPTHS, TALL, DEPTHS_OF_TALL = (512, 2048), 32, (512, 1024)
#: The same of float32 where register tiles read B from a cache: 32, 48, 64 rows by 512 x 512 82, 127, 169 us so, 99, 123, 159 by
#: those.
MOST_ROWS_OF_CACHED = 32
#: Elements of B from which on: 8 rows by 512 x 128 12 us before, 7.6 so; 8 by 64 x 64 cost 1.5 us more.
LEAST_ELEMENTS = 1 << 16
#: Of all matrices where there are several, and elements along k then: 64 of 1x512x64 1.29 of torch's speed as scalar products,
#: 0.46 by register tiles, but 64 of 4x64x64 1.4 by these.
LEAST_DEPTH_OF_MANY = 128
#: The type of a tile of A by B's, where a level multiplies none but float32: it is widened once for all rows of B.
OWN_PRODUCTS = {"bfloat16": "bf16"}


def few(target: Target, dtype: str, m: int, n: int, k: int, batch: int = 1) -> Tile | None:
    """The tile of few rows by a transposed B; None where it goes another way. Of several matrices it may be one row."""
    heights, most = _rows(target, dtype)
    if dtype == "float32" and 4 * n * k <= BYTES.get(target.arch, OTHER_BYTES):
        most = MOST_ROWS_OF_CACHED
    least = LEAST_ROWS_OF_FEW.get(("amx" if _has_amx(target) else "", dtype), 1) if batch == 1 else 1
    small = n * k < LEAST_ELEMENTS if batch == 1 else batch * n * k < LEAST_ELEMENTS or k < LEAST_DEPTH_OF_MANY
    if small or not least <= m <= most:
        return None
    rows = next((rows for rows in heights if m <= rows), heights[-1])
    width = next((width for width in reversed(WIDTHS) if n >= BLOCKS * width), WIDTHS[0])
    depths = [depth // _itemsize(target, dtype) for depth in (DEPTHS_OF_TALL if rows >= TALL else DEPTHS)]
    return Tile(rows, width, next((depth for depth in depths if k <= depth), depths[-1]))


def _rows(target: Target, dtype: str) -> tuple[tuple[int, ...], int]:
    """Those of tiles, and the most."""
    if dtype == "int8" and _has_amx(target):
        return ROWS_BESIDE_TILES, ROWS_BESIDE_TILES[-1]
    if dtype == "int8":
        return (ROWS_OF_QUADS, MOST_ROWS_OF_QUADS) if target.has("vnni") else (ROWS_OF_BYTES, ROWS_OF_BYTES[-1])
    if target.arch == "x86-64-v3":
        return (ROWS_OF_AVX2, MOST_ROWS) if dtype == "float32" else (HALVES_OF_AVX2, MOST_HALVES_OF_AVX2)
    if _has_amx(target) and dtype == "bfloat16":
        return BF16_OF_AMX, BF16_OF_AMX[-1]
    return ROWS, MOST_ROWS


def _has_amx(target: Target) -> bool:
    return target.has("amx")


def tile_dtype(target: Target, dtype: str) -> str:
    """The type of the tile of A."""
    return dtype if dtype == "int8" or target.has(OWN_PRODUCTS.get(dtype, "-")) else "float32"


def _itemsize(target: Target, dtype: str) -> int:
    if dtype == "int8":
        return 1
    return 4 if tile_dtype(target, dtype) == "float32" else 2


def kernel_of_few(
    target: Target, chosen: Tile, dtype: str, out_dtype: str, bias: str, batches: tuple[str, str] = ("each", "each")
) -> KernelSpec:
    return KernelSpec.of(
        "gemm_in_place",
        "multiply_few",
        dtype=dtype,
        tile_dtype=tile_dtype(target, dtype),
        out_dtype=out_dtype,
        bias=bias,
        batch_a=batches[0],
        batch_b=batches[1],
        block_m=chosen.block_m,
        block_n=chosen.block_n,
        block_k=chosen.block_k,
    )


#: One column of B: rows of A of a block and registers of a step along k, of rows of fewer elements than that of SHORT ones; of a
#: transposed A columns and elements of k. Kernels with 4 us of Python's launch, one thread of an EPYC with AVX-512, float32, us,
#: by 4, 8, 16 rows and 4 registers, and as products of tiles before: 254x1x1850 26, 29, 32, 97 (torch 25), 1000x1x1000 46, 47,
#: 50, 199 (49), 4096x1x768 139, 143, 167, 637 (174), 768x1x8 8.4, 7.1, 6.8, by 16 and 2 6.2; bfloat16 1000x1x1000 32, 34, 37,
#: 131 (77); of a transposed A by 256, 512, 1024 columns 1000x1x1000 55, 53, 49, 252 (52), 4096x1x4096 2177, 1979, 1876, 8050
#: (2520) (30 November 2026).
COLUMN, SHORT_COLUMN, TURNED_COLUMN = (8, 4), (16, 2), (512, 8)


def column(
    target: Target, k: int, dtype: str, out_dtype: str, bias: str, transpose_a: bool, batches: tuple[str, str]
) -> KernelSpec:
    """The kernel for one column of B, which lies along k."""
    lanes = 8 if target.arch == "x86-64-v3" else 16
    rows, registers = COLUMN if k >= COLUMN[1] * lanes else SHORT_COLUMN
    block_m, block_k = TURNED_COLUMN if transpose_a else (rows, registers * lanes)
    return KernelSpec.of(
        "gemm_in_place",
        "multiply_column",
        dtype=dtype,
        out_dtype=out_dtype,
        bias=bias,
        transpose_a=transpose_a,
        batch_a=batches[0],
        batch_b=batches[1],
        block_m=block_m,
        block_k=block_k,
        lanes=lanes,
    )


#: Few steps along k: rows and columns of C of a block, the least rows; the most steps where a bias or an activation follows, and
#: elsewhere, where rows have at least so many columns. One thread of an EPYC with AVX-512, us, kernels with 3 us of Python's
#: launch by 64, 128 (not of all) and 256 rows, calls by tiles of MANY before, and torch: 2000x1x1500 292, 284 (256), 437, 290;
#: 928x1x1024 44, 42, 111, 50; 2000x2x1500 433, 357, 494, 1600; by 512 columns 423, 46, 538; 500x1x400 12.9, 10.2, 11.6; by 4
#: steps 4096x4x256 78, 75, 73, 60, 157, 928x4x1024 69, 65, 63, 83, 604; kernels of both 4096x1x40 23, 14. With a bias, by a
#: transposed matrix, 2000x1x1500 316, 282 (256), 823, 656; 928x1x1024 50, 44, 241, 117; 500x2x400 17, 15, 28, 22; 2000x4x1500
#: 597, 561, 529, 969, 874; 4096x8x256 157, 134, 122, 195, 203 (30 November 2026).
SHALLOW, LEAST_ROWS_OF_SHALLOW, SHALLOW_STEPS_ENDED, SHALLOW_STEPS, LONG_ROWS = (128, 2048), 8, 8, 2, 512


def is_shallow(m: int, n: int, k: int, ended: bool) -> bool:
    """Whether rows of C are written one by one; `ended`: a bias or an activation follows."""
    few = k <= SHALLOW_STEPS_ENDED if ended else k <= SHALLOW_STEPS and n >= LONG_ROWS
    return m >= LEAST_ROWS_OF_SHALLOW and n > 1 and few


def shallow(k: int, turned: tuple[bool, bool], batches: tuple[str, str]) -> KernelSpec:
    """The kernel for few steps along k."""
    return KernelSpec.of(
        "gemm_in_place",
        "multiply_shallow",
        transpose_a=turned[0],
        transpose_b=turned[1],
        batch_a=batches[0],
        batch_b=batches[1],
        depth=k,
        block_m=SHALLOW[0],
        block_n=SHALLOW[1],
    )


#: A transposed B of fewer elements than LEAST_ELEMENTS: the least k and columns by which few rows are scalar products. Whole
#: calls, us, AVX-512, scalar products, TURNED, torch: 8x64x64 2.2, 1.7, 1.7; 8x200x300 26, 9.7, 13; 8x16x1024 16, 3.4, 4.0;
#: 8x33x50 5.0, 1.6, 1.3; 3x64x64 1.66, 1.54, 1.53; but 8x1024x16 3.1, 4.1, 4.6 and 2x64x64 1.38, 1.53, 1.35. As AVX2 6x200x300
#: 14.6, 9.7, 11.9; 8x16x1024 12.6, 4.8, 4.0; 8x1024x16 11.2, 4.8, 4.6; but 8x128x128 3.96, 4.83, 4.1 and 4x200x300 8.7, 9.8, 8.8.
#: One row, AVX-512, us as whole calls by scalar products, TURNED and torch: 1x256x48 2.31, 3.43, 2.40; 1x256x16 2.03, 2.23, 1.86;
#: 1x64x32 1.58, 1.86, 1.54; but 1x300x12 2.71, 2.22, 1.89; two rows are level (2x256x32 2.95, 2.86, 2.86).
LEAST_DEPTH, LEAST_DEPTH_OF_ONE, LEAST_WIDTH = 64, 16, 32


def small(target: Target, m: int, n: int, k: int) -> Tile | None:
    """The tile where few rows by a transposed B of few elements, one matrix, are better by register tiles."""
    if m > FEW.block_m or n * k >= LEAST_ELEMENTS:
        return None
    if target.arch == "x86-64-v3":  # six rows are a register tile
        better = k < LEAST_DEPTH or m in (5, 6) or (m > 4 and n < LEAST_WIDTH)
    else:
        depth = LEAST_DEPTH if m > 1 else LEAST_DEPTH_OF_ONE
        better = k < depth or (m >= LEAST_ROWS and n >= LEAST_WIDTH)
    return _turned(target, m) if better else None


def _turned(target: Target, m: int) -> Tile:
    """That of a transposed B."""
    return TURNED_FEW if m <= TURNED_FEW.block_m and target.arch != "x86-64-v3" else TURNED


def tile(
    target: Target,
    m: int,
    n: int,
    k: int,
    transpose_b: bool,
    panels: bool,
    batch: int = 1,
    transpose_a: bool = False,
) -> Tile | None:
    """That of a product of float32, which could be done by `panels`, as a transposed A always is then; None where it goes another
    way. Few rows of several matrices have none: 64 of 1x128x512 1.6 of torch's speed so on an EPYC, by copied tiles 0.43, 64 of
    1x512x64 T 1.0, 0.29."""
    if transpose_a and panels:
        return None
    bytes_of_b, few = 4 * n * k, m <= FEW.block_m
    most = BYTES.get(target.arch, OTHER_BYTES)
    if panels and n > TURNED.block_n:
        most = min([most, *(shared for rows, shared in SHARED.get(target.arch, OTHER_SHARED) if m >= rows)])
    other_way = batch == 1 and (m < LEAST_ROWS or (few and transpose_b))
    if other_way or bytes_of_b > most:
        return None  # few rows by a transposed B are scalar products
    if transpose_b:
        return _turned(target, m)
    large = bytes_of_b > LARGE
    if few and not large:
        return FEW_WITH_AMX if _has_amx(target) and m >= LEAST_WITH_AMX else FEW
    if few:
        return WIDE_FEW
    if large or not _has_amx(target):
        return (WIDE_MANY if large else MANY)[_height(m)]
    if 36 < m <= 40:
        return MANY_WITH_AMX[40]
    chosen = MANY_WITH_AMX[_height(m)]
    return LONG_WITH_AMX if bytes_of_b > HALF_LARGE and chosen.block_m == LONG_WITH_AMX.block_m else chosen


def _height(m: int) -> int:
    if 12 < m <= 16:
        return 16
    return 32 if 30 < m <= 32 else 96


def kernel(chosen: Tile, transpose_a: bool, transpose_b: bool, batch_a: str, batch_b: str) -> KernelSpec:
    return KernelSpec.of(
        "gemm_in_place",
        "multiply",
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        batch_a=batch_a,
        batch_b=batch_b,
        block_m=chosen.block_m,
        block_n=chosen.block_n,
        block_k=chosen.block_k,
    )


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Of one matrix, or of as many on both sides, and of a transposed a, on CPUs."""
    if target.kind == "cpu":
        for chosen in dict.fromkeys(_turned(target, m) for m in (1, TURNED.block_m)):
            yield kernel(chosen, False, True, "each", "each")
        wide = [] if BYTES.get(target.arch, OTHER_BYTES) <= LARGE else [WIDE_FEW, *WIDE_MANY.values()]
        many = [FEW_WITH_AMX, *MANY_WITH_AMX.values(), LONG_WITH_AMX] if _has_amx(target) else [*MANY.values()]
        for chosen, transpose_a in product((FEW, *many, *wide), (False, True)):
            yield kernel(chosen, transpose_a, False, "each", "each")
        yield from _shipped_few(target)
        yield from _shipped_shallow()


def _shipped_few(target: Target) -> Iterator[KernelSpec]:
    """As layers have them, and of halves also with a result of float32."""
    types = [(dtype, dtype) for dtype in ("float32", "float16", "bfloat16")]
    types += [(dtype, "float32") for dtype in ("float16", "bfloat16")]
    for (dtype, out_dtype), turned, k in product(types, (False, True), (1, 1 << 20)):
        yield column(target, k, dtype, out_dtype, out_dtype, turned, ("each", "each"))
    types.append(("int8", "int32"))
    widths = (BLOCKS * WIDTHS[0], 1 << 20)
    found: dict[KernelSpec, None] = {}
    for (dtype, out_dtype), rows, n, k in product(types, sorted({*ROWS_OF_QUADS, *ROWS}), widths, (1 << 7, 1 << 20)):
        if (chosen := few(target, dtype, rows, n, k)) is not None:
            found[kernel_of_few(target, chosen, dtype, out_dtype, out_dtype)] = None
    yield from found


def _shipped_shallow() -> Iterator[KernelSpec]:
    """Layers of few inputs, and products of a column by a row or two of each."""
    for k in range(1, SHALLOW_STEPS_ENDED + 1):
        yield shallow(k, (False, True), ("each", "each"))
    for k in range(1, SHALLOW_STEPS + 1):
        yield shallow(k, (False, False), ("each", "each"))
        yield shallow(k, (True, False), ("each", "each"))
