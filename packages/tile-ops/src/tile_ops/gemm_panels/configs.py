"""Which products are multiplied by panels of B, and with which tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar


@dataclass(frozen=True)
class Tile:
    """Rows of A and steps along k that a block copies, columns of a panel, which are those of the product's register tile
    (`register_tile` of targets/cpu/gemm.py of the compiler), and elements between the rows of the copy, which would share lines
    of a cache."""

    block_m: int
    block_n: int
    block_k: int
    pad: int


#: Rows, the least that hold m, or the most: a panel of B is packed for so many. Of the speed by 128 and 256 rows, one thread, an
#: EPYC with AVX-512: 256x4096x4096 256 rows 1.01 to 1.09, 1024x1024x1024 1.03, 300x768x768 1.01, by 512 rows 1.04; as AVX2 1.02,
#: 1.01 to 1.02; of three rows in four that a tile has and C has not nothing is multiplied, but zeros are copied (128x1024x1024
#: by 256 rows 0.92). Of the speed by 128 rows 64 bring 52 to 64 rows by 4096 x 4096 1.02 to 1.09, as AVX2 1.12, with AMX 1.00,
#: 64x1024x1024 1.02, 1.04, 1.07.
HEIGHTS = (64, 128, 256, 512)
#: The most of a transposed A, whose copy has a row for each step: what a register tile reads of it lies as far apart as rows are
#: long. Kernels, of MKL's speed by 128, 256, 512 rows, Xeon with AMX: 1024x256x1024 0.999, 1.002, 0.991, 1000x200x1000 0.953,
#: 0.986, 0.925, 768x512x3072 0.944, 0.968, 0.944, 256x2048x256 1.057, 1.101; the same without AMX 1.003, 0.971, 0.949; 0.959,
#: 0.923, 0.915; 0.898, 0.917, 0.894; 1.059, 1.100; as AVX2 0.597, 0.573, 0.551; 0.592, 0.595, 0.562; 0.550, 0.532, 0.505 (29
#: November 2026).
HIGHEST_OF_TRANSPOSED, HIGHEST_WITH_AMX = 128, 256
#: By level: columns of a panel, and elements between the rows of A.
WIDTHS = {
    "x86-64-v3": (16, 8),
    "x86-64-v4": (32, 16),
    "x86-64-v4+bf16+vnni": (32, 16),
    "x86-64-v4+bf16+vnni+amx": (64, 16),
}
#: Steps along k, the least of DEEP that hold k, or the most. By 512 steps 256x256x256 0.91 to 0.98 of the speed by 256, the
#: others above 0.96 to 1.01.
MOST_STEPS = 256
#: The most with AVX-512 where rows of C do not begin with a line of a cache, as each step reads and writes them: 1000x1000x1000
#: 1.01 to 1.05 of the speed by 256 steps, 256x1000x1000 1.02 to 1.03, 300x768x1000 0.99 to 1.01; as AVX2 0.99 to 1.02.
DEEP, LINE = (64, 128, 256, 512), 16
#: The most of a Xeon with AMX, whose panels, of 64 columns, fit the first cache so. Of MKL's speed by 128, 256 steps, or as many
#: as said: 64x512x512 0.93, 0.90, 64x1024x1024 0.97, 0.89, 128x1024x1024 1.07, 1.00, 256x4096x4096 0.96, 0.94, by 512 rows 0.97,
#: 0.94, 512x512x512 1.00, 0.99, 1024x1024x1024 0.97, 0.98, 300x768x768 0.99, 0.97; T 128x1024x1024 1.11, 1.03 (512 steps),
#: 256x4096x4096 1.04, 1.02 (512), 512x512x512 1.00, 0.96, 1024x1024x1024 0.99, 0.96; of a transposed matrix, by 256 rows,
#: 1024x512x1024 1.00, 0.96, 256x2048x1024 1.03, 0.99, 1024x1024x1024 0.98, 0.94.
STEPS_WITH_AMX = 128
#: Rows of C, columns of it, elements along k, and multiplications, from which on panels are worth their copies. By 4096 x 4096,
#: of the speed by copied tiles, with AVX-512 and as AVX2 32 rows 0.98 and 0.95, 48 1.10 and 1.03, 64 1.14 and 1.04, 96 1.13 and
#: 1.10, by a transposed matrix 72 rows 1.20 and 1.12, 96 1.17 and 1.17.
LEAST = (33, 64, 32, 2**21)
#: Multiplications of a transposed A, of which rows of a register tile where it lies are as many lines of a cache as there are
#: steps. Of MKL's speed where it lies and so: Xeon with AMX 128x64x128 0.64, 0.70, 256x64x256 0.79, 0.90, 256x128x256 0.84, 0.98,
#: 512x64x512 0.85, 1.02, 96x96x96 and 64x64x64 alike; without AMX 0.51, 0.68; 0.65, 0.92; 0.68, 0.97; 0.64, 0.99; 96x96x96 0.51,
#: 0.56, 64x64x64 alike; as AVX2 0.44, 0.55; 0.50, 0.67; 0.48, 0.65; 0.44, 0.64; 0.47, 0.51; 0.39, 0.42.
LEAST_OF_TRANSPOSED = 2**19
#: Panels that a block has at least, where there are so many, or as many as have so many columns: it copies its piece of A for
#: them.
PANELS, COLUMNS = 4, 512


#: Of bytes by `vpdpbusd`, whose panels are of flipped signs, so that sums of A's rows are made once for each of them: rows, the
#: least that hold m, or the most, columns, and steps along k, which are the least of DEEP_BYTES that hold k, or as said. EPYC
#: with AVX-512, kernels in random order, of `torch._int_mm`'s speed; T: by a transposed matrix. 16x1024x1024 1.27 (by 1024
#: columns and steps 1.17), 16x4096x4096 2.24 (1.94), 32x1024x1024 1.18 (1.13), 64x1024x1024 1.06; T 1.10 (by 256 columns and 512
#: steps 1.07; 1.06), 128x1024x1024 1.03; T 1.06 (by 128 columns and 512 steps 1.00; 1.01), 256x4096x4096 1.09; T 1.20 (1.07;
#: 1.15), by 512 rows 1024x1024x1024 1.01; T 1.01, 300x768x768 1.01; T 1.01 (by 256 columns 1.00; 0.99; 0.99; 0.98).
BYTES = (
    Tile(16, 256, 512, 0),
    Tile(32, 256, 512, 0),
    Tile(64, 1024, 1024, 0),
    Tile(128, 1024, 1024, 0),
    Tile(256, 1024, 1024, 0),
    Tile(512, 1024, 1024, 0),
)
DEEP_BYTES = (64, 128, 256, 512, 1024)
#: Rows from which on bytes by a transposed B are so; fewer are scalar products (`gemm_in_place`).
LEAST_BYTES_TURNED = 5


def tile(
    target: Target,
    dtype: str,
    m: int,
    n: int,
    k: int,
    threads: int = 1,
    batch: int = 1,
    transposes: tuple[bool, bool] = (False, False),
) -> Tile | None:
    """None where a product goes another way."""
    if dtype == "int8":
        return _of_bytes(target, m, n, k, threads, batch, transposes)
    rows, columns, steps, work = LEAST
    if transposes[0]:
        work = LEAST_OF_TRANSPOSED
    known = WIDTHS.get(target.arch) if target.kind == "cpu" else None
    if dtype != "float32" or known is None or m < rows or n < columns or k < steps or batch * m * n * k < work:
        return None
    width, pad = known
    heights = [rows for rows in HEIGHTS if rows <= _highest(target, transposes[0])]
    height = next((rows for rows in heights if m <= rows), heights[-1])
    panels = -(-n // width)
    while height > HEIGHTS[0] and -(-m // height) * -(-panels // PANELS) * batch < threads:
        height //= 2  # else threads would be without work
    most = _most_steps(target, n)
    return Tile(height, width, next(depth for depth in DEEP if k <= depth or depth == most), pad)


def _highest(target: Target, transpose_a: bool) -> int:
    if transpose_a:
        return HIGHEST_WITH_AMX if target.has("amx") else HIGHEST_OF_TRANSPOSED
    return HEIGHTS[-1]


def _of_bytes(
    target: Target, m: int, n: int, k: int, threads: int, batch: int, transposes: tuple[bool, bool]
) -> Tile | None:
    """Of an A that lies row by row, where a level multiplies quads."""
    if target.kind != "cpu" or not target.has("vnni") or target.has("amx") or transposes[0]:
        return None
    if transposes[1] and m < LEAST_BYTES_TURNED:
        return None
    number = next((i for i, tile in enumerate(BYTES) if m <= tile.block_m), len(BYTES) - 1)
    while number and _blocks(BYTES[number], m, n, batch) < threads:
        number -= 1  # else threads would be without work
    chosen = BYTES[number]
    most = DEEP_BYTES[-1] if n % LINE else chosen.block_k
    return replace(chosen, block_k=next(depth for depth in DEEP_BYTES if k <= depth or depth == most))


def _least_panels(chosen: Tile) -> int:
    """Of a block."""
    return min(PANELS, max(1, COLUMNS // chosen.block_n))


def _blocks(chosen: Tile, m: int, n: int, batch: int) -> int:
    """As many as there can be."""
    return -(-m // chosen.block_m) * -(-n // (_least_panels(chosen) * chosen.block_n)) * batch


def _most_steps(target: Target, n: int) -> int:
    if target.arch != "x86-64-v3" and n % LINE:
        return DEEP[-1]
    return STEPS_WITH_AMX if target.has("amx") else MOST_STEPS


def kernel(
    chosen: Tile, transpose_a: bool, transpose_b: bool, batch_a: str, batch_b: str, dtype: str = "float32"
) -> KernelSpec:
    more: dict[str, Scalar] = {} if dtype == "float32" else {"dtype": dtype}
    return KernelSpec.of(
        "gemm_panels",
        "multiply",
        None,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        batch_a=batch_a,
        batch_b=batch_b,
        block_m=chosen.block_m,
        block_n=chosen.block_n,
        block_k=chosen.block_k,
        pad=chosen.pad,
        **more,
    )


def panels_of_a_block(chosen: Tile, m: int, n: int, batch: int, threads: int) -> int:
    """So many that each of several threads has two blocks, where there are panels enough."""
    panels = -(-n // chosen.block_n)
    blocks = 1 if threads == 1 else 2 * threads
    groups = min(-(-panels // _least_panels(chosen)), -(-blocks // (batch * -(-m // chosen.block_m))))
    return -(-panels // groups)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Of one matrix, or of as many on both sides; by b, by a transposed b and of a transposed a, on CPUs."""
    orders = ((False, False), (False, True), (True, False))
    found: dict[KernelSpec, None] = {}
    for (transpose_a, transpose_b), m, n, k in product(orders, HEIGHTS, (1 << 20, (1 << 20) + 1), DEEP):
        chosen = tile(target, "float32", m, n, k, transposes=(transpose_a, transpose_b))
        if chosen is not None:
            found[kernel(chosen, transpose_a, transpose_b, "each", "each")] = None
    for turned, m, n, k in product(
        (False, True), (tile.block_m for tile in BYTES), (1 << 20, (1 << 20) + 1), DEEP_BYTES
    ):
        chosen = tile(target, "int8", m, n, k, transposes=(False, turned))
        if chosen is not None:
            found[kernel(chosen, False, turned, "each", "each", "int8")] = None
    return iter(found)
