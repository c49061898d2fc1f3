"""Which kernels compute decode attention, and in how many runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tile_ops.dtypes import SHIPPED_DTYPES
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

from .problem import TILE, DecodeProblem

#: Blocks that fill a device: two on each multiprocessor of an H200 (132), or of an MI300X (304); a CPU's runs would only
#: be joined again, as its cores take whole sequences.
BLOCKS = {"cuda": 264, "hip": 608, "cpu": 1}

#: Dimensions of heads for which wheels for GPUs hold kernels with a cap of scores (Gemma 2).
SHIPPED_SOFTCAP = (128, 256)

#: Tokens of a page that wheels hold kernels for, those of servers of language models.
PAGES = (16, 32, 64, 128, 256)

#: Bytes of shared memory in which the threads of a block find maxima and sums of rows, at most.
REDUCTIONS = 4096

#: The fewest tiles of a run: shorter ones cost more to join than they save. Rule.
SHORTEST_RUN = 4

#: Runs of keys that lie where they are, at most. Keys alone decide how many there are: a result has nothing to do with its batch.
MOST_RUNS = 64


@dataclass(frozen=True)
class Tiles:
    """Rows of a block for heads of Q, tokens of a tile of K and V, stages of the pipeline, threads."""

    block_H: int
    block_N: int
    stages: int
    threads: int


def plan(problem: DecodeProblem, target: Target) -> Plan:
    """Enough runs to fill the device, none shorter than SHORTEST_RUN tiles if the longest sequence fills its pages."""
    tiles = choose(problem, target)
    blocks = -(-problem.group // tiles.block_H)
    alone = problem.batch * problem.heads_kv * blocks
    longest = -(-problem.columns * problem.page_size // TILE)
    splits = problem.splits or max(1, min(BLOCKS[target.kind] // max(alone, 1), longest // SHORTEST_RUN, 256))
    ahead: dict[str, Scalar] = {"ahead": True} if target.kind == "cpu" else {}
    kernels = {
        "split": _split("split", problem, tiles, target, page_size=problem.page_size, **ahead),
        "combine": combine(problem),
    }
    why = f"{splits} runs of keys, {tiles.block_H} heads to a block"
    return Plan.of(
        kernels, why, "rule: BLOCKS and SHORTEST_RUN in attention_decode/configs.py", splits=splits, blocks=blocks
    )


def plan_rows(problem: DecodeProblem, target: Target) -> Plan:
    """Of keys that lie where they are, as pages of a sequence's own: runs of SHORTEST_RUN tiles, or longer ones."""
    tiles = choose(problem, target)
    splits = min(-(-problem.page_size // (SHORTEST_RUN * TILE)), MOST_RUNS)
    kernels = {"split": _split("split_rows", problem, tiles, target), "combine": combine(problem)}
    why = f"one query: {splits} runs of keys, {tiles.block_H} heads to a block"
    blocks = -(-problem.group // tiles.block_H)
    source = "rule: SHORTEST_RUN and MOST_RUNS in attention_decode/configs.py"
    return Plan.of(kernels, why, source, splits=splits, blocks=blocks)


def choose(problem: DecodeProblem, target: Target) -> Tiles:
    """On a GPU the 16 rows that a matrix instruction has anyway, and as many tokens as its shared memory holds; the CPU
    computes no row that nobody asked for. With heads of 80 and 96 two stages spill."""
    if target.kind == "cpu":
        return Tiles(min(16, 1 << (problem.group - 1).bit_length()), TILE, 1, 128)
    two = target.kind == "cuda" and problem.dim <= 128 and problem.dim % 64 == 0
    stages, threads, size = (2 if two else 1), 128, 2
    if problem.dtype == "float32":
        stages, size = 0, 4
    elif target.kind == "hip":
        threads = 256
    for tokens in (TILE, TILE // 2, TILE // 4):
        elements = (16 + 2 * max(1, stages) * tokens) * problem.dim + 16 * tokens  # Q, K and V, weights
        if size * elements + REDUCTIONS <= target.shared_memory:
            break
    return Tiles(16, tokens, stages, threads)


def _split(function: str, problem: DecodeProblem, tiles: Tiles, target: Target, **more: Scalar) -> KernelSpec:
    return KernelSpec.of(
        "attention_decode",
        function,
        {"tl.enable_fast_math": True} if target.kind != "cpu" else None,
        dtype=problem.dtype,
        dim=problem.dim,
        softcap=problem.softcap is not None,
        block_H=tiles.block_H,
        block_N=tiles.block_N,
        stages=tiles.stages,
        threads=tiles.threads,
        **more,
    )


def combine(problem: DecodeProblem) -> KernelSpec:
    """What joins runs."""
    ends: dict[str, Scalar] = {"dtype": problem.dtype, "dim": problem.dim, "sinks": problem.sinks}
    return KernelSpec.of("attention_decode", "combine", None, **ends, threads=128)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """What a wheel of prebuilt kernels holds: the usual types, head dimensions and pages, on GPUs a cap of scores for
    dimensions of models that have one; on a CPU any number of heads that share keys."""
    cpu = target.kind == "cpu"
    for dtype in SHIPPED_DTYPES[target.kind]:
        for dim, page_size, sinks in product((64, 128, 256), PAGES, (False, True)):
            for group in (1, 2, 4, 8, 16) if cpu else (1,):
                problem = DecodeProblem(1, group, 1, dim, page_size, 1, dtype, 0, 1.0, None, sinks, 0)
                capped = [replace(problem, softcap=1.0)] if dim in SHIPPED_SOFTCAP and not cpu else []
                for some in (problem, *capped):
                    yield from (spec for _, spec in plan(some, target).kernels)
