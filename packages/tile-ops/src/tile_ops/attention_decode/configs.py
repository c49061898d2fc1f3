"""Which kernels compute decode attention, and in how many runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tile_ops.attention.configs import SHIPPED_SOFTCAP
from tile_ops.kernel import KernelSpec, Target
from tile_ops.operator import Plan

from .problem import TILE, DecodeProblem

#: Blocks that fill a device: two on each multiprocessor of an H200 (132), or of an MI300X (304); a CPU's runs would only
#: be joined again, as its cores take whole sequences.
BLOCKS = {"cuda": 264, "hip": 608, "cpu": 1}

#: Tokens of a page that wheels hold kernels for, those of servers of language models.
PAGES = (16, 32, 64, 128, 256)

#: The fewest tiles of a run: shorter ones cost more to join than they save. Rule.
SHORTEST_RUN = 4


@dataclass(frozen=True)
class Tiles:
    """Rows of a block for heads of Q, stages of the pipeline, threads."""

    block_H: int
    stages: int
    threads: int


def plan(problem: DecodeProblem, target: Target) -> Plan:
    """Enough runs to fill the device, none shorter than SHORTEST_RUN tiles if the longest sequence fills its pages."""
    tiles = choose(problem, target.kind)
    blocks = -(-problem.group // tiles.block_H)
    alone = problem.batch * problem.heads_kv * blocks
    longest = -(-problem.columns * problem.page_size // TILE)
    splits = problem.splits or max(1, min(BLOCKS[target.kind] // max(alone, 1), longest // SHORTEST_RUN, 256))
    kernels = {
        "split": split(problem, tiles, target.kind),
        "combine": KernelSpec.of(
            "attention_decode", "combine", dtype=problem.dtype, dim=problem.dim, sinks=problem.sinks, threads=128
        ),
    }
    why = f"{splits} runs of keys, {tiles.block_H} heads to a block"
    return Plan.of(
        kernels, why, "rule: BLOCKS and SHORTEST_RUN in attention_decode/configs.py", splits=splits, blocks=blocks
    )


def choose(problem: DecodeProblem, kind: str) -> Tiles:
    """On a GPU the 16 rows that a matrix instruction has anyway; the CPU computes no row that nobody asked for."""
    if kind == "cpu":
        return Tiles(min(16, 1 << (problem.group - 1).bit_length()), 1, 128)
    if problem.dtype == "float32":
        return Tiles(16, 0, 128)
    stages = 2 if kind == "cuda" and problem.dim <= 128 else 1
    return Tiles(16, stages, 256 if kind == "hip" else 128)


def split(problem: DecodeProblem, tiles: Tiles, kind: str) -> KernelSpec:
    """The kernel's name."""
    return KernelSpec.of(
        "attention_decode",
        "split",
        {"tl.enable_fast_math": True} if kind != "cpu" else None,
        dtype=problem.dtype,
        dim=problem.dim,
        page_size=problem.page_size,
        softcap=problem.softcap is not None,
        block_H=tiles.block_H,
        block_N=TILE,
        stages=tiles.stages,
        threads=tiles.threads,
    )


def shipped(target: Target) -> Iterator[KernelSpec]:
    """What a wheel of prebuilt kernels holds: the usual types, head dimensions and pages, on GPUs a cap of scores for
    dimensions of models that have one; on a CPU any number of heads that share keys."""
    cpu = target.kind == "cpu"
    for dtype in ("float32", "bfloat16") if cpu else ("float16", "bfloat16"):
        for dim, page_size, sinks in product((64, 128, 256), PAGES, (False, True)):
            for group in (1, 2, 4, 8, 16) if cpu else (1,):
                problem = DecodeProblem(1, group, 1, dim, page_size, 1, dtype, 0, 1.0, None, sinks, 0)
                capped = [replace(problem, softcap=1.0)] if dim in SHIPPED_SOFTCAP and not cpu else []
                for some in (problem, *capped):
                    yield from (spec for _, spec in plan(some, target).kernels)
