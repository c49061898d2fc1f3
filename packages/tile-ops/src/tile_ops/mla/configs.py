"""Which kernels decode a problem, with which tiles and how many parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tile_ops.kernel import KernelSpec, Target
from tile_ops.operator import Plan

from .problem import DecodeProblem


@dataclass(frozen=True)
class Config:
    """A block's heads and keys at a time, and how many tiles of keys are in flight. `pairs`: two tiles in each step."""

    block_h: int
    block_n: int
    stages: int
    threads: int = 256
    pairs: bool = False

    def bytes(self, row: int, element: int = 2) -> int:
        """Shared memory: the queries, the tiles of the cache and the weights, `element` bytes each; 2 KiB for the rest.

        Of a pair, the second tile's weights take the place of the queries' rotated part.
        """
        return element * ((self.block_h + self.stages * self.block_n) * row + self.block_h * self.block_n) + 2048


#: Where the widths fit `decode_pairs`: a tile of keys for each of two warpgroups (measured, docs/performance/cuda.md).
PAIRS = Config(64, 64, 2, pairs=True)
#: wgmma takes 64 rows. Fewer heads are padded: reading the cache takes longer than their products. Two warpgroups, where each
#: has whole panels of 64 columns of the output.
WGMMA = Config(64, 64, 2)
NARROW = Config(64, 64, 2, threads=128)
#: Without it, from the largest tiles to the smallest: a device takes the first that fits and has no more rows than there
#: are heads. Each key that is read serves `block_h` heads, so that heads come first. Of 32 heads each warp scores 8 keys, so
#: that it has the rows of the scores that it has of the output: with more warps than keys for them they would split the
#: rows, and every thread had each row's sums, in arrays with indices of run time.
CONFIGS = (Config(32, 32, 1, threads=128), Config(16, 32, 2), Config(16, 32, 1), Config(16, 16, 1))
#: float32, which takes no tensor core; the last one fits the 64 KiB of gfx942 with rows of 576.
FLOAT32 = (Config(16, 16, 1), Config(8, 16, 1))
#: On a CPU, by heads: a tile of the cache is packed once for all of a block's. 0.56 to 0.65 of the time of 32 for 16 heads, 0.9
#: for 128 (AVX2, float32; bfloat16 0.7 and 0.94). 128 heads in float32 by 128, 64, 32, 16, of torch's speed: EPYC with AVX-512
#: 2.33, 2.26, 2.07, 1.73, Intel Xeon 1.08, 0.99, 0.84, 0.65.
CPU = (Config(16, 64, 1), Config(32, 64, 1), Config(64, 64, 1), Config(128, 64, 1))

#: Multiprocessors of the usual device: A100, A10, L40, H100/H200, MI300X. A CPU has its threads, as parts cost: 128 heads by 2048
#: keys in float32 on one thread, in 1, 2, 4, 8 parts, of torch's speed: EPYC 2.33, 2.31, 2.25, 2.16, Intel Xeon 1.08, 1.05, 1.02,
#: 0.96.
PROCESSORS = {"sm_80": 108, "sm_86": 72, "sm_89": 142, "sm_90a": 132, "gfx942": 304}
PART = 256  # tokens, the least that is worth a block of its own
MOST_PARTS = 64


def plan(problem: DecodeProblem, target: Target) -> Plan:
    """One kernel if the heads of the batch fill the device, else parts of the keys and a kernel that combines them."""
    config = _config(problem, target)
    blocks = problem.batch * -(-problem.heads // config.block_h)
    processors = problem.threads if target.kind == "cpu" else PROCESSORS.get(target.arch, 108)
    parts = _parts(blocks, problem.columns * problem.page, processors)
    shape: dict[str, Any] = {"dtype": problem.dtype, "dim": problem.dim, "rope": problem.rope, "page": problem.page}
    if config.pairs:
        names, source = ("decode_pairs", "decode_pairs_part"), "rule: PAIRS and PART in mla/configs.py"
    else:
        names, source = ("decode", "decode_part"), "rule: CONFIGS and PART in mla/configs.py"
        shape |= {
            "block_h": config.block_h,
            "block_n": config.block_n,
            "stages": config.stages,
            "threads": config.threads,
        }
        if target.kind == "cpu":  # 1 to 6 % faster (docs/performance/cpu.md)
            shape["steady"] = True
    tiles = "two tiles of " if config.pairs else ""
    why = f"{config.block_h} heads and {tiles}{config.block_n} keys at a time, {parts} part{'s' if parts > 1 else ''}"
    if parts == 1:
        return Plan.of({"decode": KernelSpec.of("mla", names[0], **shape)}, why, source, parts=1)
    kernels = {
        "part": KernelSpec.of("mla", names[1], **shape),
        "combine": KernelSpec.of("mla", "combine", dtype=problem.dtype, dim=problem.dim),
    }
    return Plan.of(kernels, why, source, parts=parts)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """512 + 64 in pages of 64 tokens, as DeepSeek's models and their servers have it; with parts and without, at any
    address."""
    dtypes, heads, threads = ["float16", "bfloat16"], [16, 32, 128], [1]
    if target.kind == "cpu":
        dtypes, heads, threads = [*dtypes, "float32"], [c.block_h for c in CPU], [1, 64]
    for dtype, count, batch, aligned, shared in product(dtypes, heads, (1, 1024), (True, False), threads):
        problem = DecodeProblem(batch, count, 512, 64, 64, 1, 1024, dtype, aligned, shared)
        yield from (spec for _, spec in plan(problem, target).kernels)


def _config(problem: DecodeProblem, target: Target) -> Config:
    limit = target.shared_memory
    row = problem.dim + problem.rope
    if target.kind == "cpu":
        found = _of_a_cpu(problem)
    elif problem.dtype == "float32":
        found = next((c for c in FLOAT32 if c.bytes(row, 4) <= limit), FLOAT32[-1])
    elif target.arch == "sm_90a" and _fits_pairs(problem) and PAIRS.bytes(row) <= limit:
        return PAIRS
    elif target.arch == "sm_90a" and WGMMA.bytes(row) <= limit:
        found = WGMMA if problem.dim % 128 == 0 else NARROW
    else:
        rows = max(16, problem.heads)
        fits = (c for c in CONFIGS if c.block_h <= rows and c.bytes(row) <= limit)
        found = next((c for c in fits if c.block_h == 16 or problem.page % c.block_n == 0), CONFIGS[-1])
    block_n = found.block_n
    while problem.page % block_n:
        block_n //= 2
    return replace(found, block_n=block_n)


def _of_a_cpu(problem: DecodeProblem) -> Config:
    """The least that holds all heads, or the most; smaller ones where threads would be without work."""
    most = _most_parts(problem.columns * problem.page)
    fits = [c for c in CPU if problem.heads > c.block_h // 2] or [CPU[0]]
    busy = (c for c in reversed(fits) if problem.batch * -(-problem.heads // c.block_h) * most >= problem.threads)
    return next(busy, CPU[0])


def _fits_pairs(problem: DecodeProblem) -> bool:
    """Halves of a latent are whole panels of 64 columns and one instruction wide, tiles lie in one page."""
    widths = problem.rope == 64 and problem.dim % 128 == 0 and problem.dim <= 512
    return problem.aligned and widths and problem.page % PAIRS.block_n == 0


def _most_parts(tokens: int) -> int:
    return min(MOST_PARTS, -(-tokens // PART))


def _parts(blocks: int, tokens: int, processors: int) -> int:
    """The least number of parts with which the last wave of blocks is nearly as full as it can be."""
    most = _most_parts(tokens)
    if not blocks or most <= 1:
        return 1

    def filled(parts: int) -> float:
        return blocks * parts / (-(-blocks * parts // processors) * processors)

    best = max(filled(parts) for parts in range(1, most + 1))
    return next(parts for parts in range(1, most + 1) if filled(parts) >= 0.9 * best)
