"""Which products of halves, and in tile registers of bytes, are made where their operands lie, and by which tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar


@dataclass(frozen=True)
class Tile:
    """Rows and columns of C, and steps along k: of B so much is prepared at a time, for so many rows. `at_once`: sums of one step
    are C's elements as they leave the registers. `transposed`: it is A that is prepared, for so many rows of a transposed B.
    `across`: a transposed A is read where it lies."""

    block_m: int
    block_n: int
    block_k: int
    at_once: bool = False
    transposed: bool = False
    across: bool = False


#: Rows, the least that hold m, or the most. By 64 columns and steps of 256, one thread, EPYC with AVX-512, of torch's speed by
#: 64, 128, 256 and 512 rows (and by copied tiles): 64 rows by 4096 x 4096 1.62, 1.38 (1.16), 128x1024x1024 T -, 1.05, 0.99, 0.98
#: (0.94), 256x4096x4096 T -, 0.93, 1.00, 0.94 (0.94), 1024x1024x1024 -, 0.99, 1.02, 1.03 (0.95), 300x768x768 T -, 0.97, 0.98,
#: 1.02 (0.85).
HEIGHTS = (32, 64, 128, 256, 512)
WIDTH, DEPTH = 64, 256
#: The same where k is no more than the last of these depths, so that C's lines count: 2048x64x2048 by 64, 128, 256 columns 0.96,
#: 1.06, 1.17 (0.86 by copied tiles), 2048x128x2048 0.89, 0.94, 0.97 (0.83). At once, as all of these do: 2048x64x2048 T 0.87 as
#: before, 1.06; 2048x128x2048 T 1.04, 2048x256x2048 T by 512x64x256 1.05.
SHALLOW_HEIGHTS, SHALLOW_WIDTH, SHALLOW_DEPTHS = (64, 128, 256), 256, (64, 128)
#: Columns of a tile of few rows where a row-major B has so many elements that it comes from memory: a walk along its rows packs
#: all of them. EPYC with AVX-512, of torch's speed by 64 columns and so: 9x4096x4096 1.40, 1.82, 16x4096x4096 1.39, 1.96,
#: 32x4096x4096 1.77, 2.03, 16x1024x4096 1.42, 1.56, 32x1024x8192 1.66, 1.69; smaller ones 16x768x3072 1.47, 1.43, 9x1024x1024
#: 1.51, 1.46.
LARGE, LARGE_WIDTH, LARGE_ROWS = 1 << 22, 256, 32
#: Types of C that products take where it lies.
AT_ONCE = ("bfloat16", "float32")
#: By tile registers, one thread, Intel Xeon with AMX, medians of ratios in turns as kernels, of torch's speed (by copied tiles
#: 0.6 to 1.0): few rows by 64x128x1024 16, 32, 64 rows by 4096 x 4096 T 1.29, 1.08, 1.06, by row-major ones 1.07, 1.04, 1.05;
#: 256 rows by 256x256x1024 (256x128x512) 256x4096x4096 T 1.12 (0.98), 1.06 (0.91), 256x1024x8192 T 1.09 (1.03), 1.13 (1.09);
#: more rows with a shallow k by 512x64x1024 (512x256x1024) 1024x1024x1024 T 1.19 (1.10), 1.31 (1.26), 512x512x512 T 1.16 (1.08),
#: 1.03 (0.96), 300x768x768 T 1.21 (1.08), 1.02 (0.93), with a deep one 2048x2048x2048 T 0.83 (1.07), 0.97 (1.17). 2048x64x2048
#: T by 64x64x256 1.0 to 1.3, by others 0.6 to 1.1. Up to 32 rows by a tile of as many, as bias and activation walk through all of
#: it (as kernels without these by 64 rows): 32x768x3072 0.92, 0.94 (0.93, 0.88), 16x4096x4096 1.13 (1.12), 32x4096x4096 1.11
#: (1.14).
FEW_IN_REGISTERS = (Tile(32, 128, 1024), Tile(64, 128, 1024), Tile(128, 128, 1024))
#: Sums of one step that become C's elements block by block, of torch's speed (by a tile of sums): 1024x1024x1024 1.23 (1.16),
#: 300x768x768 1.17 (1.04), 2048x256x2048 1.09 (1.00), 256x1024x4096 1.18 (1.12), 512x512x512 T 1.06 (1.02), 4 of 512x512x512
#: 1.00 (1.02), 64x768x3072 1.08 (1.10), but of an A that was turned 1024x512x1024 0.81 (1.03).
IN_REGISTERS, NARROW_IN_REGISTERS = Tile(256, 256, 1024, at_once=True), Tile(512, 64, 1024, at_once=True)
DEEP_IN_REGISTERS = Tile(512, 256, 1024)
SHALLOW_IN_REGISTERS = Tile(64, 64, 256)
#: More rows by a row-major B whose k is no more than the steps of one of these, as kernels, by 128 and 256 columns: 512x512x512
#: 1.07, 1.01 (512x64x1024 1.06), 4 of 512x512x512 1.09, 1.05, 1024x300x512 0.97, 0.98; 1024x1024x1024 1.16, 1.13 (512x64x1024
#: 1.14), 300x768x768 1.11, - (1.03).
FLAT_IN_REGISTERS = (Tile(512, 128, 512, at_once=True), Tile(512, 128, 1024, at_once=True))
#: The same of a transposed A, which is turned first, by the steps that hold k, or so many: of 128 and 256 columns, where k is no
#: more than these steps 1024x512x1024 1.03, 0.98, 2048x512x512 1.03, 0.98, 4 of 512x512x512 0.92, 0.89, else 512x2048x512 1.20,
#: 1.30, 1024x1024x1024 1.14, 1.11; 256x1024x1024 by 256x256x512 1.02 (256x256x1024 0.98), 100x768x768 by 128x128x512 0.90 (0.89).
#: Of several (by copied tiles): 2 of 1024x1024x1024 1.06 (0.66), 8 of 128x256x256 0.75 (0.63); on an EPYC with AVX-512 these
#: 1.02 (0.96), 1.04 (0.97), 4 of 512x512x512 0.96 (0.86), 16 of 256x64x256 0.88 (0.69).
TURNED_WIDTH, TURNED_DEPTHS = 256, (64, 128, 256, 512)
#: Rows by a transposed B so: it is A that is turned, for 512 rows of B, which lie as the registers want them. Of torch (by
#: the tiles above): 40 rows by 4096 x 4096 1.29 (1.08), 64 rows 1.42 (1.06), 80x768x3072 1.34 (1.26), 128x1024x1024 1.25 (1.07),
#: 33x768x768 1.37 (1.14), 96x512x512 1.26 (1.17); 160x1024x1024 1.21 (1.18), 1024x1024x1024 1.17 (1.07), 2048x1024x1024 1.18
#: (1.14), 1024x512x1024 1.09 (1.04), 2048x128x2048 1.32 (1.12), 1024x128x1024 0.98 (0.82), 300x768x768 1.07 (1.06), 1024x768x768
#: 1.16 (1.21); with one step 256x1024x8192 1.11 (1.05), 256x1024x4096 1.18 (1.08), 256x768x3072 1.18 (1.05), 256x512x4096 1.18
#: (1.01), 200x1024x2048 1.13 (1.06), 512x1024x4096 1.14 (1.14), 1024x768x3072 1.12 (1.05), 2048x1024x4096 1.13 (1.0), by 32 rows
#: as good; but 256x4096x4096 0.84 (1.03), 512x512x512 0.95 (1.03), 512x128x512 0.84 (by 512x64x1024 1.07), 2048x64x2048 1.29
#: (1.42). Where k is one step by 32 rows of A: 300x256x1024 0.97 (0.91), 2048x256x2048 1.01 (0.96), 1024x256x1024 0.89 (0.84),
#: 80x768x3072 1.15 (1.10), 128x1024x1024 1.20 (1.17), 256x1024x8192 1.03 (1.02), 512x1024x1024 as good, 2048x128x2048 1.01
#: (1.03), 1024x512x1024 0.94 (0.95).
TRANSPOSED_IN_REGISTERS = (Tile(32, 512, 1024, transposed=True), Tile(64, 512, 1024, transposed=True))


@dataclass(frozen=True)
class Turning:
    """Which products in tile registers turn A: of few rows, or of so many columns that B has no more elements or k is one step;
    neither of less k."""

    few: range
    columns: int
    elements: int
    depth: int

    def pays(self, m: int, n: int, k: int, step: int) -> bool:
        shallow = k <= SHALLOW_DEPTHS[-1]
        few = m in self.few and not shallow
        wide = m >= self.few.start and n >= self.columns and (k <= step or n * k <= self.elements)
        return (few or wide) and k >= self.depth


TURNING = Turning(few=range(33, 129), columns=513, elements=1 << 20, depth=65)
#: Bytes in tile registers, one thread, Intel Xeon with AMX, kernels in random order, of the speed of `torch._int_mm`: by a
#: transposed B 16x1024x1024 1.28, 64x1024x1024 1.20, 128x1024x1024 1.10 (by 256x256x1024 0.97), 512x512x512 1.5, 256x4096x4096
#: 1.10; by a row-major one 1.02, -, 1.05, 1.43, -, 1024x1024x1024 by 512x256x1024 1.6 (by 256 rows 1.5). Fewer by a transposed
#: one are scalar products.
BYTES_IN_REGISTERS = (Tile(16, 128, 2048), Tile(64, 128, 2048), Tile(128, 128, 1024), Tile(256, 256, 2048))
MANY_BYTES_IN_REGISTERS, LEAST_BYTES = Tile(512, 256, 1024), 5
#: Columns of C that a block makes at most, tile by tile: what the next tile reads is fetched meanwhile. 256x1024x8192 T by 256
#: and 512 columns 0.97, 1.00; 72x4096x4096 T as kernels by 512 and 2048 0.97, 1.02.
COLUMNS = 2048
#: Rows that meet a transposed B so, columns of C and steps along k of a tile, and vectors of rows of A at most (or 6, which
#: registers hold as well): what is turned is A, for 512 rows of B, and not B, for few of A. Of the speed by the tiles above 40,
#: 48, 64 rows by 4096 x 4096 1.15, 1.28, 1.14 (of scalar products 1.04, 1.17, 1.30), 72, 96, 256 rows 1.05, 1.14, 1.03,
#: 80x768x3072 1.09, 256x1024x8192 1.06, 300x768x768 0.98, 512x512x512 0.96; 24 and 32 rows by scalar products 0.82 and 1.04.
FEW, FEW_WIDTH, FEW_VECTORS = range(33, 257), 512, 5
#: Rows that a vector of float32 has.
LANES = 16
#: Multiplications from which on: 34x256x512 T runs at 0.89 of the speed by the tiles above, 64x256x256 T level.
LEAST_WORK_OF_FEW = 10**7
#: Small products: without tile registers as others, as whole calls on an EPYC 64x64x64 3.0 (by copied tiles 2.6), 128x128x128
#: 1.79 (1.56), 100x77x130 2.0 (1.34), 9x100x100 3.3 (2.5), 32 of 64x64x64 1.44 (0.87), 8 of 128x64x128 1.36 (0.98), 64 of 9x64x64
#: 1.86 (0.74). In them those of fewer multiplications by tiles of their own: Xeon with AMX, as whole calls, 128x128x128 2.0
#: (1.57), 64x64x64 3.3 (2.5), 16x512x128 2.6 (1.5), 32 of 64x64x64 1.20 (0.44), 8 of 128x64x128 1.02 (0.52), 64 of 16x128x64 1.81
#: (0.82), by 64 rows 1.05, 64 of 4x64x64 0.75 (0.42), 64 of 1x128x512 0.88 (0.82).
LEAST_WORK = 1 << 22
SMALL_IN_REGISTERS = Tile(16, 64, 256), Tile(64, 64, 256)
#: The same of a transposed A, whose rows along k are interleaved where they lie. EPYC with AVX-512, as kernels (as whole calls
#: by copied tiles; turned first, 128x128x128 had 1.48, 16x512x128 1.13 where these had 1.58 and 1.70): 128x128x128 3.09 (3.00),
#: 16x512x128 3.17 (2.50), 100x77x130 2.42 (2.07), 64x1024x64 3.24 (2.70), 32 of 64x64x64 1.46 (0.97), 64 of 16x128x64 1.55
#: (1.07), 64 of 8x64x64 2.04 (0.68), 8 of 100x200x150 1.05 (0.77), 16 of 33x256x64 1.27 (0.83).
ACROSS = (Tile(16, 64, 128, across=True), Tile(32, 64, 128, across=True), Tile(64, 64, 64, across=True))
#: In tile registers by the first of these where it holds m, else by the last where it holds n, else by another of one matrix;
#: of several A is turned, in steps of its own. Xeon with AMX, kernels beside torch (calls by copied tiles): 64 of 16x128x64 1.69
#: (1.11), 64 of 8x64x64 1.04 (0.71), 16x512x128 4.4 (3.6), 32 of 64x64x64 2.1 (0.94), 16 of 33x256x64 0.94 (0.51), 128x128x128
#: 4.2 (3.4), 100x77x130 3.0 (2.3), 8 of 100x200x150 turned 0.95 (0.63; by 128 columns across 0.82).
WIDE_ACROSS, TURNED_IN_REGISTERS = Tile(128, 128, 128, across=True), Tile(64, 64, 128)
#: Rows from which on: fewer of one matrix read B through registers.
LEAST_ROWS = 9
#: Rows of a tile for fewer of several matrices: 64 of 4x64x64 2.5 (by copied tiles 0.73), 16 of 8x256x256 1.55 (0.83), by tiles
#: of 32 and 64 rows 2.2, 1.2.
FEW_HEIGHT = 8
#: Rows of a block that turns A, and elements between the rows that it makes, which would share lines of a cache.
TURNED_ROWS, PAD = 64, 32


def tile(
    target: Target,
    dtype: str,
    m: int,
    n: int,
    k: int,
    transposes: tuple[bool, bool] = (False, False),
    threads: int = 1,
    batch: int = 1,
) -> Tile | None:
    """None where a product goes another way: where it is small, or the level multiplies no pairs."""
    if dtype == "int8":
        return _bytes_in_registers(target, m, transposes)
    if target.kind != "cpu" or dtype != "bfloat16" or not target.has("bf16"):
        return None
    small = m * n * k < LEAST_WORK
    if small and transposes[0]:
        return _small_across(target, m, n, k, batch)
    if m < (LEAST_ROWS if batch == 1 else 1):
        return None
    by_b_turned = transposes == (False, True) and m * n * k >= LEAST_WORK_OF_FEW and _busy(n, threads, batch)
    if target.has("amx"):
        if not small:
            return _in_registers(m, n, k, transposes, by_b_turned)
        few, many = SMALL_IN_REGISTERS
        return few if m <= few.block_m else many
    if by_b_turned and m in FEW and k > DEPTH:
        return Tile(_even_rows(m), FEW_WIDTH, DEPTH, transposed=True)
    depth = next((depth for depth in SHALLOW_DEPTHS if k <= depth), DEPTH)
    heights, width = (HEIGHTS, WIDTH) if depth == DEPTH else (SHALLOW_HEIGHTS, SHALLOW_WIDTH)
    heights = (FEW_HEIGHT, *heights)
    if not transposes[1] and m <= LARGE_ROWS and n * k >= LARGE and -(-n // LARGE_WIDTH) * batch >= threads:
        width = LARGE_WIDTH
    return Tile(next((rows for rows in heights if m <= rows), heights[-1]), width, depth, at_once=True)


def _small_across(target: Target, m: int, n: int, k: int, batch: int) -> Tile:
    """That of a small product of a transposed A."""
    if not target.has("amx"):
        return next((tile for tile in ACROSS if m <= tile.block_m), ACROSS[-1])
    if m <= ACROSS[0].block_m:
        return ACROSS[0]
    if n <= ACROSS[-1].block_n:
        return ACROSS[-1]
    if batch == 1:
        return WIDE_ACROSS
    shallow, deep = SHALLOW_DEPTHS
    return replace(TURNED_IN_REGISTERS, block_k=shallow if k <= shallow else deep)


def _busy(n: int, threads: int, batch: int) -> bool:
    """Whether blocks of all rows by tiles of `FEW_WIDTH` columns leave no thread long without work."""
    blocks = -(-n // FEW_WIDTH) * batch
    return 8 * (-(-blocks // threads) * threads) <= 9 * blocks


def _even_rows(m: int) -> int:
    """Rows of A of a tile: as even parts of m as vectors allow."""
    vectors = -(-m // LANES)
    tiles = 1 if vectors == FEW_VECTORS + 1 else -(-vectors // FEW_VECTORS)
    return -(-vectors // tiles) * LANES


def _in_registers(m: int, n: int, k: int, transposes: tuple[bool, bool], by_b_turned: bool) -> Tile:
    """`by_b_turned`: whether B is transposed, and A may be turned instead."""
    few, more = TRANSPOSED_IN_REGISTERS
    if by_b_turned and TURNING.pays(m, n, k, few.block_k):
        return few if k <= few.block_k else more
    chosen = SHALLOW_IN_REGISTERS if k <= SHALLOW_DEPTHS[-1] else _by_rows(m, n, k, transposes[1])
    if not transposes[0]:
        return chosen
    width = chosen.block_n
    if chosen.block_m == NARROW_IN_REGISTERS.block_m and n > NARROW_IN_REGISTERS.block_n:
        flat = FLAT_IN_REGISTERS[0]
        width = flat.block_n if k <= flat.block_k else TURNED_WIDTH
    depth = next((depth for depth in TURNED_DEPTHS if k <= depth), TURNED_DEPTHS[-1])
    return replace(chosen, block_n=width, block_k=depth)


def _bytes_in_registers(target: Target, m: int, transposes: tuple[bool, bool]) -> Tile | None:
    if target.kind != "cpu" or not target.has("amx") or transposes[0] or (transposes[1] and m < LEAST_BYTES):
        return None
    return next((tile for tile in BYTES_IN_REGISTERS if m <= tile.block_m), MANY_BYTES_IN_REGISTERS)


def _by_rows(m: int, n: int, k: int, transpose_b: bool) -> Tile:
    few = next((tile for tile in FEW_IN_REGISTERS if m <= tile.block_m), None)
    if few is not None:
        return few
    narrow = n <= NARROW_IN_REGISTERS.block_n
    if m <= IN_REGISTERS.block_m and not narrow:
        return IN_REGISTERS
    flat = next((tile for tile in FLAT_IN_REGISTERS if k <= tile.block_k), None)
    if flat is not None and not (narrow or transpose_b):
        return flat
    return NARROW_IN_REGISTERS if narrow or k <= NARROW_IN_REGISTERS.block_k else DEEP_IN_REGISTERS


def tiles_of_a_block(tile: Tile, m: int, n: int, batch: int, threads: int) -> int:
    """So many tiles of columns that each of several threads has two blocks, where there are enough."""
    tiles = -(-n // tile.block_n)
    blocks = 1 if threads == 1 else 2 * threads
    groups = -(-blocks // ((1 if tile.transposed else -(-m // tile.block_m)) * batch))
    return max(1, min(COLUMNS // tile.block_n, -(-tiles // groups)))


def turned_shape(tile: Tile, batch: int, m: int, k: int) -> tuple[int, int, int, int]:
    """What `turn` makes of `batch` transposed matrices A (k, m)."""
    return batch, -(-k // tile.block_k), -(-m // TURNED_ROWS) * TURNED_ROWS, tile.block_k + PAD


def kernels(
    chosen: Tile,
    dtype: str,
    out_dtype: str,
    bias: str,
    transposes: tuple[bool, bool],
    batches: tuple[str, str] = ("each", "each"),
) -> dict[str, KernelSpec]:
    """`halves`, and `turn` for a transposed A that is not read where it lies."""
    turned, transpose_b = transposes[0] and not chosen.across, transposes[1]
    order: dict[str, Scalar] = {"transpose_a": True} if chosen.across else {}
    of_both: dict[str, Any] = {"dtype": dtype, "out_dtype": out_dtype, "bias": bias}
    of_both |= {"batch_a": batches[0], "batch_b": batches[1]}
    of_both |= {"block_m": chosen.block_m, "block_n": chosen.block_n, "block_k": chosen.block_k}
    if chosen.transposed:
        return {"halves": KernelSpec.of("gemm_halves", "multiply_transposed", **of_both)}
    found = {
        "halves": KernelSpec.of(
            "gemm_halves",
            "multiply",
            None,
            **of_both,
            turned=turned,
            transpose_b=transpose_b,
            at_once=chosen.at_once and not transposes[0] and out_dtype in AT_ONCE,
            pad=PAD if turned else 0,
            **order,
        )
    }
    if turned:
        found["turn"] = KernelSpec.of(
            "gemm_halves", "turn", dtype=dtype, block_m=TURNED_ROWS, block_k=chosen.block_k, pad=PAD
        )
    return found


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Of one matrix, or of as many on both sides; of a transposed a by a row-major b, as gradients of weights are."""
    for turned, rows in product((False, True), (*(some.block_m for some in BYTES_IN_REGISTERS), 1 << 20)):
        if (chosen := tile(target, "int8", rows, WIDTH, DEPTH, (False, turned))) is not None:
            yield from kernels(chosen, "int8", "int32", "int32", (False, turned)).values()
    heights = (FEW_HEIGHT, *HEIGHTS, HEIGHTS[-1] + 1, *FEW)
    depths = (*SHALLOW_DEPTHS, DEPTH, 2 * DEPTH, DEEP_IN_REGISTERS.block_k, DEEP_IN_REGISTERS.block_k + 1)
    widths = (WIDTH, TURNING.columns, 1 << 20)
    for transposes in ((False, False), (False, True), (True, False)):
        found = (tile(target, "bfloat16", m, n, k, transposes, batch=2) for m, n, k in product(heights, widths, depths))
        for chosen, out_dtype in product(dict.fromkeys(filter(None, found)), ("bfloat16", "float32")):
            yield from kernels(chosen, "bfloat16", out_dtype, out_dtype, transposes).values()
    sizes = product((1, *(some.block_m for some in ACROSS)), (WIDTH, WIDTH + 1), SHALLOW_DEPTHS, (1, 2))
    small = (tile(target, "bfloat16", m, n, k, (True, False), batch=batch) for m, n, k, batch in sizes)
    for chosen, out_dtype in product(dict.fromkeys(filter(None, small)), ("bfloat16", "float32")):
        yield from kernels(chosen, "bfloat16", out_dtype, out_dtype, (True, False)).values()
