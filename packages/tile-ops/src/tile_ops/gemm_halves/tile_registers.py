"""Which tiles products of bfloat16 and of bytes have in tile registers (AMX).

A tile of B is packed into the second cache, of which it takes half, and all rows of A meet it, strip by strip; so that A is read
once for each tile of columns and B once. What adds to a tile of sums, which takes as much of that cache, has fewer rows: products
whose k is more than one step, and those with a bias or an activation.

Figures are of torch's speed (oneDNN, 2.13), as calls on one thread of an Intel Xeon with AMX, 2 MB of second cache to a core,
`tdpbf16ps` alone at 3700 GFLOP/s, in turns, 28 November 2026 (docs/performance/cpu.md, "Strips of A").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tile_ops.kernel import Target

from .tile import Tile

#: Sums of one step, which become C's elements block by block, by the steps that hold k; the first of them for few rows, too.
#: 2048x64x2048, T 1.37, 1.34 (by 64x64x256, as before, 0.97, 0.82), by 512 columns 1.23, 1.24; 2048x128x2048, T 1.20, 1.24 (T
#: 0.65), 2048x256x2048, T 1.04, 1.06 (T 0.66), by 512x1024 0.98, 0.95; 1024x512x1024 1.07, by 1024 columns 1.02, 4 of
#: 512x512x512 1.06 (0.91); 1024x1024x1024, T 1.0, 1.04 (0.71, 0.75), by 256 columns 0.74, 0.81; 2048x2048x2048, T 1.09, 1.09
#: (0.75). By 256 columns 64x768x3072 1.14, 64x1024x1024 1.16, 128x1024x1024 1.16 (by 512 1.08, 1.02, 1.06), 32x1024x8192 1.06
#: (by 32x2048x256 1.01), but with more k 16x2048x2048 1.08 (by that 1.33). With a bias or an activation they are finished by
#: strips of 32 rows, for which B is packed once: of torch's speed, whole tiles added up before and so, 1024x1024x1024 with bias
#: 0.88, 1.02 (by 64 rows 1.01, by 128 0.97), 512x768x3072 0.89, 0.99, 512x1024x4096 0.93, 0.97, 1024x2048x1024 1.02, 1.16,
#: 512x512x512 0.93, 1.05, 2048x256x2048 0.68, 0.92, 2048x128x1024 0.85, 1.01, 2048x512x256 by 256 columns 0.86, 0.98,
#: 200x768x768 T 0.96, 1.05; 29 November 2026.
STRIP = 32
#: Widths, the least that hold all columns, or the tile's; where they are these, strips: 2048x512x128 by 64 rows 0.98 (0.75; by 32
#: 0.86), 1024x768x128 1.07 (0.79).
WIDTHS, STRIPS = (128, 256, 512, 1024), {128: 64}
AT_ONCE = (
    Tile(2048, 1024, 64, at_once=True, strip=STRIP),
    Tile(2048, 1024, 256, at_once=True, strip=STRIP),
    Tile(2048, 512, 512, at_once=True, strip=STRIP),
    Tile(2048, 512, 1024, at_once=True, strip=STRIP),
    Tile(2048, 256, 2048, at_once=True, strip=STRIP),
)
FEW_AT_ONCE, MOST_FEW = Tile(2048, 256, 1024, at_once=True, strip=STRIP), 320
#: Where these leave threads without work for more than this of their time: the first that does not, or the last. Two threads:
#: 300x768x768 T by 512 columns 0.67, by 128 0.94.
SHARED_AT_ONCE = (
    FEW_AT_ONCE,
    Tile(2048, 128, 1024, at_once=True, strip=STRIPS[128]),
    Tile(128, 128, 1024, at_once=True, strip=STRIPS[128]),
)
WAITING = 1 / 8
#: Few rows by a row-major B that comes from memory: what is read of it are long pieces of rows. 16x4096x4096 1.28, 32x4096x4096
#: 1.10 (by 32x128x1024 1.04, 0.81), 64x4096x4096 1.11 (0.89), by 64x512x1024 1.01, 128x4096x4096 1.07.
WIDE_FEW, LARGE = (Tile(32, 2048, 256), Tile(64, 1024, 512), Tile(128, 1024, 512)), 1 << 20
#: Other few rows. 64x768x768 with bias by 64 rows 1.64, by 128 1.48; 16x512x512 by 32 rows 2.2.
FEW = (Tile(32, 128, 1024), Tile(64, 128, 1024), Tile(128, 128, 1024))
#: More rows, those of the height nearest to m. 256x4096x4096 1.0, T 0.97, 256x1024x4096 with bias 1.17; 512x4096x4096 by
#: 512x256x1024 1.02, T 1.02, 512x1024x4096 with bias 0.95 (0.84); 1024x4096x1024 by 1024x256x1024 0.97, T 0.98, by 512 rows
#: 0.91, 0.92.
MORE = (Tile(256, 256, 1024), Tile(512, 256, 1024), Tile(1024, 256, 1024))
#: Few columns, the second for more than DEEP elements along k, in one step as far as half of the second cache goes: A is read
#: once, each row from end to end. 2048x2048x64, T 1.00, 1.13 (by 512x64x1024 0.81, 0.79, by 2048x64x1024 0.83, 0.81),
#: 2048x4096x64 T 1.07 (0.80), 2048x8192x64, T 0.98, 1.01 (0.78, 0.81), 1000x3000x40 T 1.13 (0.88), 2048x4096x128 T 1.06 (0.80),
#: 2048x8192x128 T 1.08 (0.82; by 64 columns 0.83). By 512 rows 2048x2048x64 T 0.95, which threads take that would wait else.
NARROW = Tile(2048, 64, 4096, at_once=True, strip=STRIP), Tile(2048, 128, 4096, at_once=True, strip=STRIP)
DEEP = 2048
NARROW_ROWS = (2048, 512, 256)
#: Rows of a transposed B as the registers' first operand, A turned for 512 of them: 64x4096x4096 T 1.24 (by tiles of B 1.06),
#: 72, 96, 128 rows 1.10, 1.16, 1.27 by 96 and 128 rows of A, by 64 0.85, 0.92, 1.0, 256x4096x4096 T by 256 1.11 (0.91),
#: 192x4096x4096 1.06; where k is one step by 32 rows of A 80x768x3072 T 1.24 (by 96 1.24), 128x1024x1024 T 1.20 (1.12), but
#: 200x1024x2048 T 0.94, at once 1.04, 256x1024x8192 0.88, 0.96.
TURNED_A = (Tile(32, 512, 1024, transposed=True), *(Tile(m, 512, 1024, transposed=True) for m in (64, 96, 128, 256)))
#: Rows of A up to which where k is one step, and rows, elements along k and columns from which on.
MOST_OF_ONE_STEP, LEAST_TURNED, LEAST_DEPTH, LEAST_COLUMNS = 160, 33, 65, 513
#: Multiplications from which on: 34x256x512 T runs at 0.89 of the speed by tiles of B.
LEAST_WORK = 10**7
#: Small products: as whole calls 128x128x128 2.0 (by copied tiles 1.57), 64x64x64 3.3 (2.5), 16x512x128 2.6 (1.5), 32 of
#: 64x64x64 1.20 (0.44), 8 of 128x64x128 1.02 (0.52), 64 of 16x128x64 1.81 (0.82), by 64 rows 1.05, 64 of 4x64x64 0.75 (0.42),
#: 64 of 1x128x512 0.88 (0.82).
SMALL = Tile(16, 64, 256), Tile(64, 64, 256)
#: Of a transposed A, which is turned first: its depth, the steps that hold k, or the most; 128 columns where k is no more than
#: those, else 256. 1024x512x1024 1.03, 0.98, 2048x512x512 1.03, 0.98, 4 of 512x512x512 0.92, 0.89, else 512x2048x512 1.20,
#: 1.30, 1024x1024x1024 1.14, 1.11; 256x1024x1024 by 256x256x512 1.02 (256x256x1024 0.98), 100x768x768 by 128x128x512 0.90
#: (0.89). Of several (by copied tiles): 2 of 1024x1024x1024 1.06 (0.66), 8 of 128x256x256 0.75 (0.63).
TURNED_DEPTHS, TURNED_WIDTHS, MOST_TURNED = (64, 128, 256, 512), (128, 256), 512
#: A shallow k, up to so much.
SHALLOW, SHALLOW_DEPTH = Tile(64, 64, 256), 128
#: Bytes: by a transposed B 16x1024x1024 1.28, 64x1024x1024 1.20, 128x1024x1024 1.10 (by 256x256x1024 0.97), 512x512x512 1.5,
#: 256x4096x4096 1.10; by a row-major one 1.02, -, 1.05, 1.43, -, 1024x1024x1024 by 512x256x1024 1.6 (by 256 rows 1.5). Fewer by
#: a transposed one are scalar products.
BYTES = (Tile(16, 128, 2048), Tile(64, 128, 2048), Tile(128, 128, 1024), Tile(256, 256, 2048))
MANY_BYTES, LEAST_BYTES = Tile(512, 256, 1024), 5


@dataclass(frozen=True)
class Product:
    """What the choice depends on. `plain`: C has the type of sums or bfloat16, with neither bias nor activation; `threads` share
    the work of all matrices, `batch`."""

    m: int
    n: int
    k: int
    transposes: tuple[bool, bool]
    plain: bool = True
    threads: int = 1
    batch: int = 1

    def waiting(self, tile: Tile) -> float:
        """The part of all threads' time that is left when each has done its blocks."""
        if self.threads == 1:
            return 0.0
        rows, columns = self.m if tile.transposed else min(self.m, tile.block_m), min(self.n, tile.block_n)
        blocks = -(-self.m // rows) * -(-self.n // columns) * self.batch
        time = -(-blocks // self.threads) * self.threads * rows * columns
        return 1 - self.m * self.n * self.batch / time


def tile(product: Product) -> Tile:
    """That of a product of bfloat16 that is not small."""
    transpose_a, transpose_b = product.transposes
    if transpose_a:
        return _of_turned(product)
    if (narrow := _narrow(product)) is not None:
        return narrow
    if transpose_b and (turned := _turns(product)) is not None:
        return turned
    return _at_once(product) or _by_rows(product)


def by_threads() -> tuple[Tile, ...]:
    """What may be chosen by how many threads there are, of an A that is not transposed."""
    return (*SHARED_AT_ONCE, *(replace(wide, block_m=rows) for wide in NARROW for rows in NARROW_ROWS))


def of_bytes(target: Target, m: int, transposes: tuple[bool, bool]) -> Tile | None:
    if target.kind != "cpu" or not target.has("amx") or transposes[0] or (transposes[1] and m < LEAST_BYTES):
        return None
    return next((tile for tile in BYTES if m <= tile.block_m), MANY_BYTES)


def _turns(product: Product) -> Tile | None:
    """The tile of a product by a transposed B whose A is turned instead."""
    m, k = product.m, product.k
    large = m * product.n * k >= LEAST_WORK
    if m < LEAST_TURNED or k < LEAST_DEPTH or not large or product.waiting(TURNED_A[0]) > WAITING:
        return None
    if k <= TURNED_A[0].block_k:
        few = m <= FEW[-1].block_m or product.n >= LEAST_COLUMNS
        return TURNED_A[0] if m <= MOST_OF_ONE_STEP and few else None
    return next((tile for tile in TURNED_A[1:] if m <= tile.block_m), None)


def _narrow(product: Product) -> Tile | None:
    few, more = NARROW
    m, n, k = product.m, product.n, product.k
    if m <= FEW[-1].block_m:
        rows = FEW[-1].block_m
        return replace(few, block_m=rows) if n <= few.block_n and m > FEW[0].block_m and k > SHALLOW_DEPTH else None
    wide = more if n > few.block_n and k > DEEP else few
    if n > wide.block_n or k <= SHALLOW_DEPTH:
        return None
    tiles = [replace(wide, block_m=rows) for rows in NARROW_ROWS]
    return next((tile for tile in tiles if product.waiting(tile) <= WAITING), tiles[-1])


def _at_once(product: Product) -> Tile | None:
    chosen = next((tile for tile in AT_ONCE if product.k <= tile.block_k), None)
    few = product.m <= FEW[-1].block_m
    if chosen is None or (few and (product.k > FEW_AT_ONCE.block_k or not product.plain)):
        return None
    if product.m <= MOST_FEW and chosen.block_k == FEW_AT_ONCE.block_k:
        chosen = FEW_AT_ONCE
    chosen = _as_wide(chosen, product.n)
    if product.threads == 1 or product.waiting(chosen) <= WAITING:
        return chosen
    if product.k > SHARED_AT_ONCE[-1].block_k:
        return None
    return next((tile for tile in SHARED_AT_ONCE if product.waiting(tile) <= WAITING), SHARED_AT_ONCE[-1])


def _as_wide(tile: Tile, n: int) -> Tile:
    width = next(width for width in WIDTHS if n <= width or width == tile.block_n)
    return replace(tile, block_n=width, strip=STRIPS.get(width, STRIP))


def _by_rows(product: Product) -> Tile:
    m, n, k = product.m, product.n, product.k
    if k <= SHALLOW_DEPTH:
        return SHALLOW
    wide = not product.transposes[1] and n * k >= LARGE
    few = next((tile for tile in (WIDE_FEW if wide else FEW) if m <= tile.block_m), None)
    if few is not None:
        return few
    return next((tile for tile in MORE if 2 * m < 3 * tile.block_m), MORE[-1])


def _of_turned(product: Product) -> Tile:
    m, n, k = product.m, product.n, product.k
    depth = next((depth for depth in TURNED_DEPTHS if k <= depth), TURNED_DEPTHS[-1])
    if k <= SHALLOW_DEPTH:
        return replace(SHALLOW, block_k=depth)
    few = next((tile for tile in FEW if m <= tile.block_m), None)
    if few is not None:
        return replace(few, block_k=depth)
    if n <= NARROW[0].block_n:
        return Tile(MOST_TURNED, NARROW[0].block_n, depth, at_once=True)
    if m <= MORE[0].block_m:
        return replace(MORE[0], block_k=depth)
    return Tile(MOST_TURNED, TURNED_WIDTHS[k > depth], depth)
