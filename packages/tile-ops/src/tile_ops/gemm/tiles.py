"""A block's tiles of a product, and which ones a CPU takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tile_ops.kernel import Target

ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "int8": 1, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1}


@dataclass(frozen=True)
class Tiles:
    """A block's tile of C and the depth of a step in bytes; stages of the pipeline, threads, blocks of a panel walk."""

    block_m: int
    block_n: int
    step_bytes: int
    stages: int
    threads: int
    panel: int

    def arguments(self, itemsize: int) -> dict[str, int]:
        """As kernels take them."""
        return {
            "block_m": self.block_m,
            "block_n": self.block_n,
            "block_k": self.step_bytes // itemsize,
            "stages": self.stages,
            "threads": self.threads,
            "panel": self.panel,
        }


#: Of a CPU's tiles, by their rows: columns and bytes of a step at most, for a B that lies row by row and for a transposed one.
#: Measured (cpu.md): with AVX2 ("x86-64-v3") steps of 256 bytes are as good as longer ones, and fit any k; with AVX-512 and
#: AMX long pieces of the rows of a B that lies row by row win, and deep steps along a transposed one.
LIMITS: dict[str, dict[bool, dict[int, tuple[int, int]]]] = {
    "x86-64-v3": {
        False: {16: (128, 256), 32: (128, 256), 64: (128, 256), 128: (128, 256), 256: (256, 256)},
        True: {16: (128, 256), 32: (128, 256), 64: (128, 256), 128: (128, 256), 256: (256, 256)},
    },
    "cpu": {
        False: {16: (512, 512), 32: (512, 512), 64: (512, 512), 128: (128, 512), 256: (256, 512)},
        True: {16: (64, 2048), 32: (256, 1024), 64: (64, 1024), 128: (128, 512), 256: (256, 512)},
    },
}
#: The least columns and bytes of a step of a CPU's tiles, and the step taken where a longer one would compute an eighth more of
#: what lies past k: 16 x 1024 x 128 by a transposed matrix 66 us by 512 bytes, 118 by 2048 (torch 58).
LEAST_COLUMNS, LEAST_STEP, SHORT_STEP = 64, 256, 512
#: Rows that a tile costs beside its own: what it copies is for all of them.
REPEATED = 4
#: Tiles of 256 x 256 that a product has at least where such are taken: fewer, and cores are without one.
TALL, ENOUGH = 256, 16
#: Rows of the tiles that an activation's gradient is made of: few, as they are kernels of their own.
SLOPES = (64, 256)


def tiles_of_a_cpu(
    target: Target, dtype: str, m: int, n: int, k_bytes: int, transpose_b: bool, gradient: bool = False
) -> Tiles:
    """Rows by what they cost, columns and steps that hold n and k, as far as LIMITS goes."""
    limits = LIMITS.get(target.arch, LIMITS["cpu"])[transpose_b]
    heights = [rows for rows in limits if rows < TALL or m * n >= ENOUGH * TALL * TALL]
    if gradient:
        heights = [rows for rows in heights if rows in SLOPES]
    rows = min(heights, key=lambda rows: _cost(_leaves_out(target, dtype), m, rows))
    columns, step = limits[rows]
    return _tiles(rows, _holding(n, LEAST_COLUMNS, columns), _step(k_bytes, step))


def padding_of_a_cpu(target: Target, dtype: str, transpose_b: bool) -> dict[str, int]:
    """Elements between the rows of a block's copy of B, where they bring anything: kernels read float32 row by row there, and
    rows 512 bytes apart share lines of the first cache. 32x512x512 in 0.91, 96x2048x1024 in 0.96 of the time."""
    pays = target.arch == "x86-64-v3" and dtype == "float32" and not transpose_b
    return {"pad": 16} if pays else {}


def _step(k_bytes: int, longest: int) -> int:
    """The longest, unless it reaches far past k."""
    if k_bytes <= LEAST_STEP:
        return LEAST_STEP
    by_longest, by_short = (-(-k_bytes // step) * step for step in (longest, SHORT_STEP))
    return SHORT_STEP if longest > SHORT_STEP and 8 * by_longest > 9 * by_short else longest


def _leaves_out(target: Target, dtype: str) -> bool:
    """Whether products leave out the rows past m: all but those of copied tiles in tile registers."""
    return dtype not in ("bfloat16", "int8") or not target.has("amx")


def _cost(leaves_out: bool, m: int, rows: int) -> int:
    """Of m rows by tiles of so many, in rows."""
    tiles = -(-m // rows)
    return (m if leaves_out else tiles * rows) + tiles * REPEATED


def all_tiles_of_a_cpu(target: Target, transpose_b: bool, gradient: bool = False) -> Iterator[Tiles]:
    """What `tiles_of_a_cpu` chooses from."""
    for rows, (columns, step) in LIMITS.get(target.arch, LIMITS["cpu"])[transpose_b].items():
        if gradient and rows not in SLOPES:
            continue
        width = LEAST_COLUMNS
        while width <= columns:
            for depth in dict.fromkeys((LEAST_STEP, min(SHORT_STEP, step), step)):
                yield _tiles(rows, width, depth)
            width *= 2


def _tiles(rows: int, columns: int, step: int) -> Tiles:
    return Tiles(rows, columns, step, 0, 128, 0)


def _holding(extent: int, least: int, most: int) -> int:
    """`least` doubled until it holds `extent`, `most` at most."""
    while least < min(extent, most):
        least *= 2
    return least
