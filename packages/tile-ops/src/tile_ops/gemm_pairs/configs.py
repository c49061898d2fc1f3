"""Which products of float16 are made of pairs of bfloat16, and by which tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tile_ops.gemm_halves.configs import PAD, TURNED_ROWS
from tile_ops.gemm_halves.tile import Tile
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar

#: Rows, the least that hold m, or the most; columns and steps along k. One thread, Intel Xeon with AMX, seven processes at once,
#: of torch's speed (by copied tiles of float32): 512x512x512 1.89, T 1.94 (0.86, 0.82), 1024x1024x1024 1.61, 1.66 (0.90, 0.88),
#: 300x768x768 1.60, 1.74 (0.89, 0.79), 128x1024x1024 1.42, 1.60, 256x1024x1024 1.92, 1.99, 2048x128x2048 1.27, 1.42 (0.73, 0.71).
#: As kernels by others: 300x768x768 by 512x128x256 1.57, 1.64 (as here 1.54, 1.61), 1024x1024x1024 1.75, 1.75 (1.56, 1.65),
#: 256x1024x4096 by 256x64x256 1.58, 1.87 (1.63, 1.84), by 256x128x512 1.58, 1.77, 128x1024x1024 by 128x128x256 1.43, 1.12 (1.40,
#: 1.15).
TILES = (Tile(64, 128, 256), Tile(128, 64, 512), Tile(256, 128, 256), Tile(512, 64, 256))
#: Few rows by a transposed B, as the transpose of C, as kernels (by the tile above): 49x4096x4096 1.09 (0.74), 64x1024x4096 1.44
#: (1.29), 33x1024x1024 0.97 (0.86; by float32 0.81), 49x512x512 1.28 (1.23); 100x1024x1024 by 128x512x256 1.29 (1.46).
TRANSPOSED = Tile(64, 512, 512, transposed=True)
#: Steps, the least that hold k, or those of the tile.
DEPTHS = (64, 128, 256, 512)
#: Rows, by a transposed B and by others, multiplications, and elements of C from which on: 49x4096x4096 0.75 (0.88 by copied
#: tiles), but 64x1024x4096 1.12 (0.88); 100x4096x100 0.69, 0.80 (0.99, 1.00).
LEAST_ROWS, LEAST_WORK, LEAST_RESULT = {True: 33, False: 57}, 1 << 22, 1 << 14
#: Types of a result beside whose rounding what is left out is nothing.
RESULTS = ("float16", "bfloat16")


def tile(
    target: Target, dtype: str, out_dtype: str, m: int, n: int, k: int, transposes: tuple[bool, bool] = (False, False)
) -> Tile | None:
    """None where a product goes another way."""
    if target.kind != "cpu" or not target.has("amx") or dtype != "float16" or out_dtype not in RESULTS:
        return None
    if m < LEAST_ROWS[transposes[1]] or m * n * k < LEAST_WORK or m * n < LEAST_RESULT:
        return None
    chosen = next((tile for tile in TILES if m <= tile.block_m), TILES[-1])
    if transposes[1] and m <= TRANSPOSED.block_m:
        chosen = TRANSPOSED
    return replace(chosen, block_k=next(depth for depth in DEPTHS if k <= depth or depth == chosen.block_k))


def kernels(
    chosen: Tile, out_dtype: str, bias: str, transposes: tuple[bool, bool], batches: tuple[str, str] = ("each", "each")
) -> dict[str, KernelSpec]:
    """`split` of A, then `pairs`."""
    transpose_a, transpose_b = transposes
    split = KernelSpec.of(
        "gemm_pairs", "split", transposed=transpose_a, block_m=TURNED_ROWS, block_k=chosen.block_k, pad=PAD
    )
    order: dict[str, Scalar] = {} if chosen.transposed else {"transpose_b": transpose_b}
    pairs = KernelSpec.of(
        "gemm_pairs",
        "multiply_transposed" if chosen.transposed else "multiply",
        None,
        out_dtype=out_dtype,
        bias=bias,
        batch_a=batches[0],
        batch_b=batches[1],
        block_m=chosen.block_m,
        block_n=chosen.block_n,
        block_k=chosen.block_k,
        pad=PAD,
        **order,
    )
    return {"pairs": pairs, "split": split}


def split_shape(tile: Tile, batch: int, m: int, k: int) -> tuple[int, int, int, int]:
    """What `split` makes of `batch` matrices of A."""
    return parts_shape(batch, m, k, tile.block_k)


def parts_shape(batch: int, m: int, k: int, depth: int) -> tuple[int, int, int, int]:
    """The same by steps of `depth` along k."""
    return batch, max(1, -(-k // depth)), -(-m // TURNED_ROWS) * TURNED_ROWS, 2 * depth + PAD


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Of one matrix, or of as many on both sides; of a transposed a by a row-major b, as gradients of weights are."""
    found: dict[KernelSpec, None] = {}
    orders = ((False, False), (False, True), (True, False))
    for transposes, rows, depth in product(orders, (tile.block_m for tile in TILES), DEPTHS):
        if (chosen := tile(target, "float16", "float16", rows, 1 << 20, depth, transposes)) is not None:
            found |= dict.fromkeys(kernels(chosen, "float16", "float16", transposes).values())
    return iter(found)
