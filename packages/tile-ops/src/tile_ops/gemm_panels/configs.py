"""Which products are multiplied by panels, and with which kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tile_ops.kernel import KernelSpec, Target


@dataclass(frozen=True)
class Blocks:
    """Rows of A and steps along k of a block; columns of a panel; elements between the rows of the block's copy of A; bytes
    of panels at once, which lie in the third cache and which malloc keeps for the next call.

    A panel has the columns of the product's register tile (`register_tile` of targets/cpu/gemm.py of the compiler), or twice
    as many, so that what a kernel reads of it lies together.
    """

    block_m: int
    block_k: int
    block_n: int
    pad: int = 0
    at_once: int = 16 * 2**20


def _blocks(block_n: int, pad: int, at_once: int) -> tuple[Blocks, ...]:
    """128 rows, by steps for any k, the deepest first."""
    return tuple(Blocks(128, depth, block_n, pad, at_once) for depth in (512, 256, 128, 64))


#: By level; a last step that k does not fill costs zeros in the panels, but no products. Blocks of 128 x 512 and rows of A that
#: do not lie a power of two apart are 5 to 10 % faster than 256 x 256 on a Zen with AVX2, on a Sapphire Rapids as fast or faster;
#: shorter steps serve a k that is no deeper: 2048x64x2048 and 1024x128x1024 in 0.57 to 0.72 of the time by tiles (cpu.md).
BLOCKS = {
    "x86-64-v3": _blocks(16, pad=8, at_once=4 * 2**20),
    "x86-64-v4": _blocks(32, pad=16, at_once=16 * 2**20),
    "x86-64-v4+bf16+vnni": _blocks(32, pad=16, at_once=16 * 2**20),
    "x86-64-v4+bf16+vnni+amx": _blocks(64, pad=16, at_once=16 * 2**20),
}
#: Rows of C, columns of it, and multiplications, from which on panels are worth their copies. With AVX2 256x256x256 by them takes
#: 0.7 of the time by tiles, 128x1024x1024 0.77 to 0.9, 128x128x128 0.95, 2048x2048x64 and 4096x512x64 0.83, fewer rows 1.03 to
#: 1.2; on a Sapphire Rapids 256x256x256 0.8, 128x128x128 0.95, 64x512x512 1.04, 100x4096x100 1.1 (cpu.md).
LEAST = (128, 64, 2**21)
#: Rows of panels by those of B, zeros included: good, and at most.
PADDING, MOST_PADDING = 1.3, 2.0
#: Panels that a block has at least, where there are so many: it copies its piece of A for them.
PANELS = 4


def blocks(target: Target, dtype: str, m: int, n: int, k: int, batch: int = 1) -> Blocks | None:
    """Those that hold all of k, or the deepest whose steps it nearly fills; None where a product goes another way."""
    rows, columns, work = LEAST
    if dtype != "float32" or m < rows or n < columns or batch * m * n * k < work:
        return None
    known = BLOCKS.get(target.arch, ())
    holding = [b for b in known if k <= b.block_k <= MOST_PADDING * k]
    if holding:
        return holding[-1]
    good = [b for b in known if -(-k // b.block_k) * b.block_k <= PADDING * k]
    return next(iter(good), known[0] if known and k > known[0].block_k else None)


def kernels(chosen: Blocks, transpose_a: bool, transpose_b: bool) -> dict[str, KernelSpec]:
    """`pack` and `multiply`."""
    width, depth = chosen.block_n, chosen.block_k
    return {
        "pack": KernelSpec.of("gemm_panels", "pack", transpose_b=transpose_b, block_n=width, block_k=depth),
        "multiply": KernelSpec.of(
            "gemm_panels",
            "multiply",
            transpose_a=transpose_a,
            block_m=chosen.block_m,
            block_n=width,
            block_k=depth,
            pad=chosen.pad,
        ),
    }


def numbers(chosen: Blocks, n: int, k: int, batch: int = 1) -> dict[str, int]:
    """Of a call: columns and rows of a panel, panels, steps along k, and steps and matrices that are packed at once; rows of
    A of a block."""
    width, depth = chosen.block_n, chosen.block_k
    panels, steps = -(-n // width), -(-k // depth)
    at_once = max(1, chosen.at_once // (panels * width * depth * 4))
    matrices = min(batch, max(1, at_once // steps))
    found = {"width": width, "depth": depth, "height": chosen.block_m, "panels": panels, "steps": steps}
    return {**found, "at_once": min(steps, at_once), "matrices": matrices}


def panels_of_a_block(rows: int, panels: int, threads: int, batch: int = 1) -> int:
    """So many that each of several threads has two blocks, where there are panels enough; `rows`: blocks of rows of A."""
    blocks = 1 if threads == 1 else 2 * threads
    groups = min(-(-panels // PANELS), -(-blocks // (batch * rows)))
    return -(-panels // groups)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """By b, by a transposed b and of a transposed a, on CPUs."""
    for chosen in BLOCKS.get(target.arch, ()):
        for transpose_a, transpose_b in ((False, False), (False, True), (True, False)):
            yield from kernels(chosen, transpose_a, transpose_b).values()
