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


#: Few rows, more, and those by a transposed B, of which each block turns its columns. Register tiles are cut to what there is
#: of rows (`register_tile` in targets/cpu/gemm.py of the compiler).
FEW, MANY, TURNED = Tile(8, 64, 512), Tile(96, 64, 512), Tile(128, 64, 256)
#: The same where B is larger: longer pieces of fewer rows at a time. With AVX-512 16x1024x1024 runs at 1.09 of torch's speed so
#: (0.59 as above, 0.64 by copied tiles), 64x1024x1024 at 1.18 (0.45, 0.75), 8x1024x1024 at 0.94 (0.70, 0.74).
WIDE_FEW, WIDE_MANY = Tile(8, 256, 128), Tile(96, 512, 64)
#: Bytes above which B is larger.
LARGE = 1 << 20
#: Bytes of B up to which products are multiplied so, by level: the rows of a larger one are fetched without foresight. Measured
#: with AVX2, of the speed by copied tiles: 96x96x96 1.23, 64x64x64 1.13, 50x300x300 1.1, 64x512x512 1.05, but 64x2048x2048 0.8;
#: with AVX-512 64x64x64 1.35, 96x96x96 1.5, 50x300x300 1.5, transposed ones of these alike, 64x2048x2048 0.9.
BYTES = {"x86-64-v3": 1 << 20}
OTHER_BYTES = 1 << 22
#: The same of products that panels would serve, whose rows share them, where B has more columns than a block. Of the speed by
#: panels with AVX2: 200x200x200 1.06, 256x256x256 0.98, 300x300x300 0.93, 512x512x512 0.88, but 2048x2048x64 1.07; with AVX-512
#: 128x128x128 1.14, 300x300x300 1.15, 2048x64x2048 0.87.
SHARED_BYTES = {"x86-64-v3": 1 << 18}
OTHER_SHARED_BYTES = 3 << 17
#: Rows from which on there is something to share: fewer read B through registers, whole rows at a time.
LEAST_ROWS = 3


def tile(target: Target, m: int, n: int, k: int, transpose_b: bool, panels: bool) -> Tile | None:
    """That of a product of float32, which could be done by `panels`; None where it goes another way."""
    bytes_of_b, few = 4 * n * k, m <= FEW.block_m
    most = BYTES.get(target.arch, OTHER_BYTES)
    if panels and n > MANY.block_n:
        most = min(most, SHARED_BYTES.get(target.arch, OTHER_SHARED_BYTES))
    if m < LEAST_ROWS or bytes_of_b > most or (few and transpose_b):
        return None  # few rows by a transposed B are scalar products
    if transpose_b:
        return TURNED
    if bytes_of_b > LARGE:
        return WIDE_FEW if few else WIDE_MANY
    return FEW if few else MANY


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
        yield kernel(TURNED, False, True, "each", "each")
        wide = () if BYTES.get(target.arch, OTHER_BYTES) <= LARGE else (WIDE_FEW, WIDE_MANY)
        for chosen, transpose_a in product((FEW, MANY, *wide), (False, True)):
            yield kernel(chosen, transpose_a, False, "each", "each")
