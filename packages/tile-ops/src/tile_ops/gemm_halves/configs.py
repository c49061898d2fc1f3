"""Which products of halves, and in tile registers of bytes, are made where their operands lie, and by which tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar

from . import tile_registers as registers
from .tile import Tile

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
#: 1.86 (0.74). In them those of fewer multiplications by tiles of their own.
LEAST_WORK = 1 << 22
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
    plain: bool = True,
) -> Tile | None:
    """None where a product goes another way: where it is small, or the level multiplies no pairs. `plain`: sums become C's
    elements as they are, or rounded to bfloat16."""
    if dtype == "int8":
        return registers.of_bytes(target, m, transposes)
    if target.kind != "cpu" or dtype != "bfloat16" or not target.has("bf16"):
        return None
    small = m * n * k < LEAST_WORK
    if small and transposes[0]:
        return _small_across(target, m, n, k, batch)
    if m < (LEAST_ROWS if batch == 1 else 1):
        return None
    if target.has("amx"):
        if not small:
            return registers.tile(registers.Product(m, n, k, transposes, plain, threads, batch))
        few, many = registers.SMALL
        return few if m <= few.block_m else many
    by_b_turned = transposes == (False, True) and m * n * k >= LEAST_WORK_OF_FEW and _busy(n, threads, batch)
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


def tiles_of_a_block(tile: Tile, m: int, n: int, batch: int, threads: int) -> int:
    """So many tiles of columns that each of several threads has two blocks, where there are enough, or fewer, where threads would
    wait for the last ones: 300x768x768 T by two threads and 128 columns, two tiles each 0.29 ms, one 0.18."""
    tiles, rows = -(-n // tile.block_n), (1 if tile.transposed else -(-m // tile.block_m)) * batch
    blocks = 1 if threads == 1 else 2 * threads
    most = max(1, min(COLUMNS // tile.block_n, -(-tiles // -(-blocks // rows))))

    def time(each: int) -> int:
        return -(-rows * -(-tiles // each) // threads) * each

    return min(range(most, 0, -1), key=time)


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
            strip=0 if transposes[0] else chosen.strip,
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
    for turned, rows in product((False, True), (*(some.block_m for some in registers.BYTES), 1 << 20)):
        if (chosen := tile(target, "int8", rows, WIDTH, DEPTH, (False, turned))) is not None:
            yield from kernels(chosen, "int8", "int32", "int32", (False, turned)).values()
    heights = (
        FEW_HEIGHT,
        *HEIGHTS,
        HEIGHTS[-1] + 1,
        2 * HEIGHTS[-1],
        *FEW,
        *(tile.block_m + 1 for tile in registers.MORE),
    )
    depths = (*SHALLOW_DEPTHS, DEPTH, 2 * DEPTH, 4 * DEPTH, 8 * DEPTH, 1 << 20)
    widths = (WIDTH, *registers.WIDTHS, 1 << 20)
    sizes = list(product(heights, widths, depths, (False, True)))
    for transposes in ((False, False), (False, True), (True, False)):
        found = [tile(target, "bfloat16", m, n, k, transposes, batch=2, plain=plain) for m, n, k, plain in sizes]
        found += registers.by_threads() if target.has("amx") and not transposes[0] else ()
        for chosen, out_dtype in product(dict.fromkeys(filter(None, found)), ("bfloat16", "float32")):
            yield from kernels(chosen, "bfloat16", out_dtype, out_dtype, transposes).values()
    few = product((1, *(some.block_m for some in ACROSS)), (WIDTH, WIDTH + 1), SHALLOW_DEPTHS, (1, 2))
    small = (tile(target, "bfloat16", m, n, k, (True, False), batch=batch) for m, n, k, batch in few)
    for chosen, out_dtype in product(dict.fromkeys(filter(None, small)), ("bfloat16", "float32")):
        yield from kernels(chosen, "bfloat16", out_dtype, out_dtype, (True, False)).values()
