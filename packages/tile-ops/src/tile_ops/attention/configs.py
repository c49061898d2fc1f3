"""Which kernel computes an attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch

from tile_ops.attention_decode.configs import SHIPPED_SOFTCAP, plan_rows
from tile_ops.attention_decode.problem import DecodeProblem
from tile_ops.dtypes import SHIPPED_DTYPES
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

from .problem import UNLIMITED, AttentionProblem, PackedProblem


@dataclass(frozen=True)
class Tiles:
    """Queries and keys of a block's tiles, stages of the pipeline, threads.

    `up_to` is the largest head dimension, `values` that of v if it is smaller. `in_memory`: as in kernels.py.
    """

    up_to: int
    block_M: int
    block_N: int
    stages: int
    threads: int
    values: int | None = None
    in_memory: bool = False


#: By architecture, else by kind; rows by head dimension, the first that fits.
TABLE: dict[str, tuple[Tiles, ...]] = {
    # 128, and 192 with values of 128: measured on the H200, docs/performance/cuda.md; the others by rule: two stages within
    # 227 KiB, no spills.
    "sm_90a": (Tiles(128, 128, 128, 2, 256), Tiles(192, 128, 128, 2, 256, values=128), Tiles(256, 128, 64, 2, 256)),
    # 128 threads: 128x64 is the best one of mma.sync on the H200 (docs/performance/cuda.md); with heads of 128 it spills, as does
    # 128x48, and rule is that nothing does. With heads of 80 128x32 does, too; 64x64 is 1.3 times as fast there and 1.03 to 1.17
    # times with heads of 96, 0.86 to 1.06 times with heads of 128.
    "sm_80": (
        Tiles(64, 128, 64, 2, 128),
        Tiles(96, 64, 64, 2, 128),
        Tiles(128, 128, 32, 2, 128),
        Tiles(256, 64, 32, 2, 128),
    ),
    # rule: as sm_80, but several blocks to a multiprocessor of 100 KiB
    "cuda": (
        Tiles(64, 128, 64, 2, 128),
        Tiles(80, 64, 32, 2, 128),
        Tiles(128, 128, 32, 2, 128),
        Tiles(256, 64, 32, 2, 128),
    ),
    # rule: within 64 KiB without spills (64 x 32 at 128: 204 registers, two blocks to a compute unit); values of 32 take products
    # of 16 columns, and scores of 32 by 32 do, too
    "hip": (Tiles(128, 32, 32, 1, 128, values=32), Tiles(128, 64, 32, 1, 128), Tiles(256, 32, 32, 1, 128)),
    # rule: the tiles of a block fit a core's second cache
    "cpu": (Tiles(128, 64, 128, 1, 128), Tiles(256, 64, 64, 1, 128)),
}


@dataclass(frozen=True)
class Staying:
    """How many blocks stay for all tiles, and how many powers of 2 a row's maximum may be behind."""

    blocks: int
    lag: int


#: Chips and dimensions of heads for which blocks stay if the mask is causal and there are as many keys as queries; whatever
#: the batch, which has no part in how a row is summed. Measured on an H200, float16, relative to a block for each tile: heads
#: of 128 1.09 to 1.15 for 1024 tokens and more, 1.29 for 256 heads of 512, 0.96 for 32 of them (a tile for each block); heads
#: of 64 1.19 (1.12 with a maximum that follows at once), docs/performance/cuda.md.
STAYING = {("sm_90a", 64): Staying(132, 8), ("sm_90a", 128): Staying(132, 8)}
#: Heads that they take the tiles of at a time: the number up to the second that leaves least to the block with most work; of
#: equal ones the closest to the first (32 instead of 16: 0.97 to 0.99 there, as their keys and values do not stay in L2).
SECTIONS = (16, 32)
#: Tiles that are counted for it at most.
COUNTED = 1 << 13

#: How long a CPU takes for a query of a tile of so many, of what it takes of the largest, with vectors and by tile registers:
#: each tile of keys is packed once for all queries of it, and a tile of few has rows that fill no register. All of a tile are
#: computed. Kernels in turns on one thread, of torch's speed by 256, 128, 64, 32 queries: EPYC with AVX-512, heads of 256, 256
#: tokens float32 2.27, 2.17, 2.08, 1.84, bfloat16 4.37, 4.06, 3.85, 3.38, as AVX2 1.24, 1.22, 1.18, 1.08; Intel Xeon with
#: AMX float32 1.08, 1.02, 0.93, 0.78, bfloat16 0.99, 0.90, 0.75, 0.66; few tokens by 512 keys, heads of 64: 40 by 40, 48, 24
#: queries EPYC 2.12, 1.83, 1.62, bfloat16 4.14, 3.62, 3.24, AVX2 1.29, 1.11, 1.03, Xeon 1.21, 1.06, 0.91, bfloat16 1.68, 1.57,
#: 1.21; 17 by 20 and 24 1.81, 1.58; 3.25, 2.87; 1.08, 0.95; 1.10, 1.00; 1.53, 1.46 (27 November 2026).
COST = {1: 11.0, 4: 4.0, 8: 2.4, 16: 1.5, 20: 1.35, 24: 1.3, 32: 1.24, 40: 1.18, 48: 1.14, 64: 1.11}
COST |= {128: 1.05, 256: 1.0}
COST_IN_REGISTERS = {1: 14.0, 2: 9.0, 4: 5.6, 8: 3.6, 16: 2.4, 20: 2.1, 24: 2.0, 32: 1.66, 40: 1.55, 48: 1.45, 64: 1.32}
COST_IN_REGISTERS |= {128: 1.13, 256: 1.0}
#: Queries of a call that the choice looks at.
LOOKED_AT = 1 << 14
#: The tile's keys for so few of them, and its queries.
FEW_KEYS = (16, 32)
#: Up to how many keys a CPU's tiles have 64. More of them gain nothing there, and cost what a mask leaves out: causal 128 tokens
#: take 0.74 of the time by 64 x 64 that they do by 64 x 128 (docs/performance/cpu.md). Keys alone choose a tile's keys, so
#: that a query's result has nothing to do with how many others there are, of more than 8.
SOME_KEYS = 512
#: By tile registers tiles have so many keys, however many there are, but for as few queries as go another way
#: (targets/cpu/gemm.py of the compiler). Of torch's speed as kernels in turns, Intel Xeon with AMX, heads of 128, 96, 64: 512
#: tokens by 256x64, 256x128 0.81, 0.92, causal by 64x64, 64x128 1.27, 1.25, 256 by 64x64, 64x128 1.09, 1.21, 17 by 512 keys by
#: 24x64, 24x128 1.21, 1.42; 1, 2 by 1024 by 64, 128 keys 1.02, 0.93; 2.00, 1.93 (in registers 0.50, 1.03).
KEYS_IN_REGISTERS, MOST_QUERIES_BESIDE_REGISTERS = 128, 2
#: Where more queries than so many all see more keys, and up to SOME_KEYS, a tile has twice as many keys, as one step or two are
#: all: 256 tokens with heads of 256 0.94 and 0.99 of torch's speed, with heads of 96 1.08 and 1.11, 512 tokens 0.94 and 1.00;
#: 1024 tokens 0.99 and 0.98, 40 by 512 keys 1.68 and 1.64.
FEW_IN_REGISTERS = 64
#: Queries of a tile for sequences of any lengths, by the longest; their keys are 64 whatever the lengths, so that a sequence's
#: result has nothing to do with those of others.
PACKED_QUERIES = (16, 32)

#: Keys of one query that a GPU takes in one run, at most: of more several blocks have a part each, and all heads of q that share
#: a head of k are one tile. On an H200, one head of 128 by 3520 keys: a tile of queries 46 us, torch 8.
ONE_RUN = 256

#: Blocks that a GPU has room for at once: where the tiles of queries are less than half as many in a sequence, each one's keys go
#: in runs of so many at least, by other blocks; and of so many for each query of a tile, as what each run leaves of it is written
#: and read again. Kernels of an H200, us, in one walk, in runs, torch: one head of 128, 10 by 8128 98.7, 16.6, 107.7; 8 heads,
#: 64 by 32768 385, 48, 373; 32 heads, 8 of keys, 128 by 4096 51, 23, 52. A batch, whose tiles may fill the chip, has no part
#: in it: runs of 256 keys took 8 of 8 heads, 8 by 4096, from 54 to 78, hence 512; float32, whose steps take longer, 2 heads of
#: 128, 8 by 2048 153, 26 in runs of 256, 43 of 512, 201 (30 November 2026).
BLOCKS = 132
SHORTEST_RUN, KEYS_OF_A_ROW = {"float32": 256, "halves": 512}, {"float32": 4, "halves": 6}
#: Runs up to which one kernel joins those of several queries, one after the other; another one has a block for each query.
ONE_AFTER_THE_OTHER = 8
JOINED, JOINED_AT_ONCE = {"rows": 4, "threads": 128}, {"most": 256, "together": 8, "threads": 128}

#: Elements between the rows of a tile of values that the product reads in place, a line of the cache: a panel of rows a power of
#: two apart has too few places in the first cache. 2 to 4 % with AVX2 (cpu.md); not measured elsewhere.
PAD = 16

#: What NVIDIA's float32 is multiplied by: three products of tf32 (docs/internals/instructions.md), about as exact as multiply-add
#: and 1.4 to 1.8 times as fast; sm_75, which has none, multiplies in each thread.
BY_THREE: dict[tuple[str, str], dict[str, Scalar]] = {("cuda", "float32"): {"tl.allow_tf32x3": True}}
#: Tiles of float32. Of sm_90a measured on an H200, causal, 2x16 heads of 64, 96, 128, 256 and 2048 tokens, ms: 0.29, 0.46, 0.62,
#: 1.19 (torch 0.70, 0.86, 0.94, 1.87; each thread alone 0.49, 0.72, 0.89, 2.19); with weights in registers heads of 256 1.25,
#: heads of 96 and 128 by 128x64 0.45 and 0.58, but spill (docs/performance/cuda.md, "Three products of tf32"). By rule elsewhere:
#: one stage, within 99 KiB and without spills, on AMD 64.
FLOAT32: dict[str, tuple[Tiles, ...]] = {
    "sm_90a": (
        Tiles(64, 64, 64, 1, 128),
        Tiles(96, 128, 64, 1, 256, in_memory=True),
        Tiles(128, 64, 64, 2, 256, in_memory=True),
        Tiles(256, 64, 64, 1, 256, in_memory=True),
    ),
    "cuda": (Tiles(64, 64, 64, 1, 128), Tiles(128, 64, 32, 1, 128), Tiles(256, 32, 16, 1, 128)),
    "hip": (Tiles(256, 32, 32, 0, 128),),
}


#: Keys that one tile holds, all seen by every query, for heads of up to so many elements: queries of one warp group, of which
#: several blocks are beside each other. H200, float16, us, so, by TABLE's, torch: 2x8 heads of 64, 4096 by 77 15.4, 18.9, 13.8,
#: 2x20 heads, 1024 by 77 12.2, 14.8, 10.9, 256 by 77 4.7, 5.7, 6.2; by 128 keys 4096 by 120 16.9, 19.2, 13.7; but heads of 128
#: by 96, 4096 by 77 22.5, 20.2, 16.9 (30 November 2026).
ONE_TILE = {"sm_90a": (Tiles(64, 64, 96, 1, 128), Tiles(64, 64, 128, 1, 128))}


def plan(problem: AttentionProblem, target: Target) -> Plan:
    """One kernel for all shapes of a head dimension, a type and a mask; on a CPU for few tokens another, on a GPU for one query
    by many keys those that take the keys in runs."""
    if target.kind != "cpu" and problem.tokens == 1 and problem.keys > ONE_RUN and problem.dim_v == problem.dim:
        return plan_rows(one_query(problem), target)
    tiles, source = choose(problem.dim, problem.dim_v, problem.dtype, target)
    if target.kind == "cpu":
        tiles, source = _of_a_cpu(problem, tiles, target), "measured: COST in attention/configs.py"
    if row := _staying(problem, target):
        return _by_blocks_that_stay(problem, tiles, row)
    if of_all := next((some for some in _one_tile(problem, target) if problem.keys <= some.block_N), None):
        tiles, source = of_all, "measured: ONE_TILE in attention/configs.py"
    spec = forward(problem, tiles, target)
    why = f"{problem.mask} mask, {tiles.block_M} queries by {tiles.block_N} keys"
    if (runs := _runs(problem, tiles, target)) > 1:
        kernels = {"forward": in_runs(spec), "join": _join(problem, runs)}
        return Plan.of(kernels, f"{why} in {runs} runs", source, runs=runs)
    return Plan.of({"forward": spec}, why, source)


def _one_tile(problem: AttentionProblem, target: Target) -> Iterator[Tiles]:
    """Those that few keys of such heads and such a mask may have."""
    if problem.mask == "full" and problem.dtype != "float32":
        yield from (some for some in ONE_TILE.get(target.arch, ()) if max(problem.dim, problem.dim_v) <= some.up_to)


def _runs(problem: AttentionProblem, tiles: Tiles, target: Target) -> int:
    """In how many runs a GPU takes the keys. The other sequences have no part in that, as a result is the same in any batch."""
    if target.kind == "cpu":
        return 1
    rows = min(problem.tokens, tiles.block_M)
    keys = min(problem.keys, problem.left + problem.right + rows)
    blocks = -(-problem.tokens // tiles.block_M) * problem.heads
    kind = "float32" if problem.dtype == "float32" else "halves"
    return max(min(BLOCKS // max(blocks, 1), keys // max(SHORTEST_RUN[kind], KEYS_OF_A_ROW[kind] * rows)), 1)


def in_runs(spec: KernelSpec) -> KernelSpec:
    """The kernel of parts of the keys."""
    changed = dict(spec.arguments) | {"in_runs": True, "sinks": False}
    return replace(spec, arguments=tuple(sorted(changed.items())))


def _join(problem: AttentionProblem, runs: int) -> KernelSpec:
    function, tile = ("join", JOINED) if runs <= ONE_AFTER_THE_OTHER else ("join_many", JOINED_AT_ONCE)
    sizes: dict[str, Scalar] = {**tile}
    return KernelSpec.of(
        "attention", function, None, dtype=problem.dtype, dim_v=problem.dim_v, sinks=problem.sinks, **sizes
    )


def one_query(problem: AttentionProblem) -> DecodeProblem:
    """Of one token, which sees no key behind it, as there is none: a cache of one page for each sequence."""
    sizes = (problem.batch, problem.heads, problem.heads_kv, problem.dim, problem.keys, 1)
    return DecodeProblem(*sizes, problem.dtype, problem.left, problem.scale, problem.softcap, problem.sinks, splits=0)


def _of_a_cpu(problem: AttentionProblem, tiles: Tiles, target: Target) -> Tiles:
    """The table's tiles, with the keys that the number of keys calls for and the queries that take least time."""
    if (side := _least(problem.keys)) is not None:
        return replace(tiles, block_M=side, block_N=side)
    some = problem.keys <= SOME_KEYS
    block_N = 64 if some else tiles.block_N
    registers = in_registers(problem, target)
    if registers:
        wide = KEYS_IN_REGISTERS < problem.keys <= SOME_KEYS
        wide = wide and problem.mask == "full" and problem.tokens > FEW_IN_REGISTERS
        block_N = KEYS_IN_REGISTERS * (2 if wide else 1)
        if problem.tokens <= MOST_QUERIES_BESIDE_REGISTERS:
            block_N = 64
    cost = COST_IN_REGISTERS if registers else COST
    return replace(
        tiles, block_M=min(cost, key=lambda rows: _work(problem, rows, block_N) * cost[rows]), block_N=block_N
    )


def in_registers(problem: AttentionProblem, target: Target) -> bool:
    """Whether a CPU multiplies by tile registers."""
    return problem.dtype == "bfloat16" and target.has("amx")


def _least(keys: int) -> int | None:
    """The side of a square tile for few keys."""
    return next((side for side in FEW_KEYS if keys <= side), None)


def _work(problem: AttentionProblem, rows: int, block_N: int) -> float:
    """What tiles of `rows` queries by `block_N` keys compute, in products of a query and `block_N` keys, and what threads wait
    for those that have one more of them."""
    past = problem.keys - problem.tokens
    steps = 0
    for row in range(0, min(problem.tokens, LOOKED_AT), rows):
        end = max(min(row + rows + past + problem.right, problem.keys), 0)
        steps += max(-(-end // block_N) - max(row + past - problem.left, 0) // block_N, 0)
    tiles = max(-(-problem.tokens // rows) * problem.heads * problem.batch, 1)
    return steps * rows * (-(-tiles // problem.threads) * problem.threads / tiles)


def _staying(problem: AttentionProblem, target: Target) -> Staying | None:
    """What the table has for the problem, if blocks stay for it."""
    square = problem.mask == "causal" and problem.tokens == problem.keys
    row = STAYING.get((target.arch, problem.dim))
    return row if square and problem.dim_v == problem.dim and problem.dtype != "float32" else None


def _by_blocks_that_stay(problem: AttentionProblem, tiles: Tiles, row: Staying) -> Plan:
    heads, rows = problem.batch * problem.heads, -(-problem.tokens // tiles.block_M)
    usual, most = SECTIONS
    sections = [n for n in range(1, most + 1) if heads % n == 0] if heads else [1]
    best = min(sections, key=lambda n: (_most_work(heads, rows, n, row.blocks), max(n / usual, usual / n)))
    why = (
        f"causal mask, {heads * rows} tiles of {tiles.block_M} queries by {tiles.block_N} keys, of {best} heads at a time, "
        f"for {row.blocks} blocks that stay"
    )
    kernels = {"staying": staying(problem, tiles, row)}
    numbers = {"launched": min(row.blocks, heads * rows), "section": best}
    return Plan.of(kernels, why, "measured: STAYING in attention/configs.py", **numbers)


def _most_work(heads: int, rows: int, section: int, blocks: int) -> int:
    """The work of the block that has most, in steps over keys and one more for each tile: the order of `forward_staying`."""
    tile = torch.arange(min(heads * rows, COUNTED), device="cpu")
    turn, number = tile // blocks, tile % blocks
    place = tile % (section * rows) // section
    row = torch.where((heads // section - tile // (section * rows)) % 2 == 0, place, rows - 1 - place)
    block = torch.where(turn % 2 == 0, number, blocks - 1 - number)
    return int(torch.zeros(blocks, dtype=torch.int64, device="cpu").index_add_(0, block, row + 2).max())


def plan_packed(problem: PackedProblem, target: Target) -> Plan:
    """The tiles for sequences of one length; on a CPU fewer keys, and no more queries than the longest sequence has."""
    call = problem.call
    tiles, source = choose(call.dim, call.dim_v, call.dtype, target)
    if target.kind == "cpu":
        rows = next((rows for rows in PACKED_QUERIES if problem.longest <= rows), tiles.block_M)
        tiles, source = replace(tiles, block_M=rows, block_N=64), "rule: PACKED_QUERIES in attention/configs.py"
    spec = forward(call, tiles, target, "forward_packed")
    why = f"{call.mask} mask, {tiles.block_M} queries by {tiles.block_N} keys of one sequence"
    return Plan.of({"forward": spec}, why, source)


def choose(dim: int, dim_v: int, dtype: str, target: Target) -> tuple[Tiles, str]:
    """The table's row for the head dimensions of keys and values, and the row's name."""
    table = FLOAT32 if dtype == "float32" and target.kind != "cpu" else TABLE
    key = target.arch if target.arch in table else target.kind
    tiles = next(row for row in table[key] if dim <= row.up_to and dim_v <= (row.values or row.up_to))
    return tiles, f"table: {key}, head dimension up to {tiles.up_to}, attention/configs.py"


def forward(call: AttentionProblem, tiles: Tiles, target: Target, function: str = "forward") -> KernelSpec:
    """The kernel's name.

    A GPU begins with the longest tiles of all heads, so that the shortest fill its end: 1.25 times as fast for 256 tiles
    on 132 multiprocessors, as fast for thousands (measured on the H200, docs/performance/cuda.md). A CPU goes head by
    head, whose keys then stay in its caches.
    """
    more: dict[str, int] = {"heads_first": True} if target.kind != "cpu" and call.mask == "causal" else {}
    if tiles.in_memory:
        more["in_memory"] = True
    if target.kind == "cpu":  # 0 to 8 % faster (docs/performance/cpu.md)
        more["steady"] = True
    if target.arch == "x86-64-v3" and call.dtype == "float32":
        more["pad"] = PAD
    return _spec(function, call, tiles, target.kind, **more)


def _options(call: AttentionProblem, kind: str) -> dict[str, Scalar] | None:
    """Blocks that stay by the compiler's choice are as fast in float32 (37.2 and 37.2, 40.8 and 40.6 TFLOP/s of an H100), and
    compile for ten times as long, as their walk over tiles is checked."""
    if kind == "cpu":
        return None
    leaving: dict[str, Scalar] = {"tl.disable_staying_blocks": True} if call.dtype == "float32" else {}
    return {"tl.enable_fast_math": True, **leaving, **BY_THREE.get((kind, call.dtype), {})}


def staying(call: AttentionProblem, tiles: Tiles, row: Staying) -> KernelSpec:
    return _spec("forward_staying", call, tiles, "cuda", lag=row.lag, blocks=row.blocks)


def _spec(function: str, call: AttentionProblem, tiles: Tiles, kind: str, **more: int) -> KernelSpec:
    return KernelSpec.of(
        "attention",
        function,
        _options(call, kind),
        dtype=call.dtype,
        dim=call.dim,
        dim_v=call.dim_v,
        mask=call.mask,
        softcap=call.softcap is not None,
        sinks=call.sinks,
        block_M=tiles.block_M,
        block_N=tiles.block_N,
        stages=tiles.stages,
        threads=tiles.threads,
        **more,
    )


#: Head dimensions of keys and values that wheels hold kernels for, and their masks; 192 by 128 is latent attention.
SHIPPED = ((64, 64, ("full", "causal", "window")), (128, 128, ("full", "causal", "window")), (192, 128, ("causal",)))
#: On GPUs also: vision and smaller language models, and Gemma.
SHIPPED_GPU = ((80, 80, ("full", "causal")), (96, 96, ("full", "causal")), (256, 256, ("full", "causal", "window")))
#: With sinks on GPUs (gpt-oss), as with a cap of scores: causal, and with a window.
SHIPPED_SINKS = (64,)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """What a wheel of prebuilt kernels holds: the usual types, head dimensions and masks."""
    kind = target.kind
    for dtype in SHIPPED_DTYPES[kind]:
        for call, function in product(shipped_calls(dtype, kind), ("forward", "forward_packed")):
            tiles, _ = choose(call.dim, call.dim_v, dtype, target)
            if kind != "cpu" and call.dim == call.dim_v:
                one = plan_rows(one_query(replace(call, keys=ONE_RUN + 1)), target)
                yield from (spec for _, spec in one.kernels)
            for some in _all_of_a_cpu(call, tiles, target, function) if kind == "cpu" else (tiles,):
                spec = forward(call, some, target, function)
                yield spec
                if kind != "cpu" and function == "forward":
                    yield from (in_runs(spec), *(_join(call, runs) for runs in (1, BLOCKS)))
            if function == "forward":
                yield from (forward(call, some, target) for some in _one_tile(call, target))
                if row := _staying(call, target):
                    yield staying(call, tiles, row)


def shipped_calls(dtype: str, kind: str) -> Iterator[AttentionProblem]:
    """One of each head dimension and mask that wheels for a kind of targets serve; their gradients, too."""
    sides = {"full": (UNLIMITED, UNLIMITED), "causal": (UNLIMITED, 0), "window": (1, 0)}
    for dim, dim_v, masks in (*SHIPPED, *(() if kind == "cpu" else SHIPPED_GPU)):
        for mask in masks:
            plain = AttentionProblem(1, 1, 1, 1, 1, dim, dim_v, dtype, *sides[mask], 1.0, None, False)
            yield plain
            if kind != "cpu" and mask != "full":
                if dim in SHIPPED_SINKS:
                    yield replace(plain, sinks=True)
                if dim in SHIPPED_SOFTCAP:
                    yield replace(plain, softcap=1.0)


def _all_of_a_cpu(call: AttentionProblem, tiles: Tiles, target: Target, function: str) -> Iterator[Tiles]:
    """Every answer of `_of_a_cpu` and `plan_packed`."""
    if function == "forward_packed":
        yield from (replace(tiles, block_M=rows, block_N=64) for rows in (*PACKED_QUERIES, tiles.block_M))
        return
    yield from (replace(tiles, block_M=side, block_N=side) for side in FEW_KEYS)
    registers = in_registers(call, target)
    keys = (
        (64, KEYS_IN_REGISTERS, *([2 * KEYS_IN_REGISTERS] * (call.mask == "full")))
        if registers
        else (64, tiles.block_N)
    )
    for rows, some in product(COST_IN_REGISTERS if registers else COST, dict.fromkeys(keys)):
        yield replace(tiles, block_M=rows, block_N=some)
