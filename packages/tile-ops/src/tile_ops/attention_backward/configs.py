"""Which kernels compute the gradients of an attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tile_ops.attention.configs import BY_THREE, in_registers, shipped_calls
from tile_ops.attention.problem import AttentionProblem
from tile_ops.dtypes import SHIPPED_DTYPES
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

from .problem import AttentionBackwardProblem, PackedBackwardProblem

#: Rows of a block of the kernel `prepare`: tiles of queries divide it. The same as ROWS in kernels.py.
ROWS = 128


@dataclass(frozen=True)
class Tiles:
    """Queries and keys of a block's tiles, for dQ and for dK and dV, the stages and threads of both, and how many such blocks a
    multiprocessor holds; `up_to` is the largest head dimension. `values`: tile, stages and threads of a kernel for dV alone,
    where dK has one of its own too. `in_memory`: as in kernels.py. `whole`: masks with which dQ's walk is not cut into runs, as
    that kernel spills."""

    up_to: int
    queries: tuple[int, int]
    keys: tuple[int, int]
    stages: tuple[int, int]
    threads: tuple[int, int]
    values: tuple[int, int, int, int] | None = None
    in_memory: bool = False
    beside: tuple[int, int] = (1, 1)
    whole: tuple[str, ...] = ()


#: By architecture, else by kind; rows by head dimension, the first that fits. All by rule: what the registers of the
#: accumulators leave, and shared memory; the stages of sm_90a measured on an H200 (dQ with 2: 1.31 ms, with 3: 1.15; dK and
#: dV with 2: 1.77, with 3: 1.86; batch 4, 32 heads, 4096 tokens, causal).
TABLE: dict[str, tuple[Tiles, ...]] = {
    "sm_90a": (
        # One warp group by 64 queries and keys, of which several blocks are beside each other. Batch 4, 16 heads, 4096 tokens,
        # causal, us, dQ, and dK and dV, so, and by 128 queries or keys of two groups in steps of 64 (32 for heads of 96): heads
        # of 64 361, 551 and 415, 621; of 80 623, 841 and 461, 979 (by 48); of 96 510, 904 and 691, 973 (dQ by 48 552), of which
        # by 64 dQ, and dK and dV of 80 and 96 spill; of 128 627, 1044 and 574, 929 (30 November 2026).
        Tiles(64, (64, 64), (64, 64), (2, 2), (128, 128), beside=(2, 2)),
        Tiles(80, (128, 64), (64, 64), (3, 2), (256, 128), beside=(1, 2), whole=("causal",)),
        Tiles(96, (64, 64), (64, 64), (2, 2), (128, 128), beside=(2, 2)),
        Tiles(128, (128, 64), (64, 128), (3, 2), (256, 256)),
        # Registers hold the sums of dK or of dV. Batch 4, 16 heads, 4096 tokens, causal and full, ms, dQ, dK, dV: heads of 192
        # 0.97, 1.05, 0.67 and 1.71, 1.86, 1.06, by 64 queries and keys 1.04, 1.18, 0.82 and 1.88, 2.07, 1.46; of 256 1.31, 1.42,
        # 0.83 and 2.41, 2.59, 1.41, by 128 queries or keys in steps of 32 1.38, 1.51 and 2.53, 2.71 (and dQ spills).
        Tiles(192, (128, 64), (64, 128), (2, 2), (256, 256), (64, 128, 2, 256)),
        Tiles(256, (64, 64), (64, 64), (2, 2), (128, 128), (64, 128, 2, 256)),
    ),
    "cuda": (Tiles(128, (64, 32), (32, 64), (1, 1), (128, 128)), Tiles(256, (32, 32), (32, 32), (1, 1), (128, 128))),
    "hip": (Tiles(128, (32, 32), (32, 32), (1, 1), (128, 128)), Tiles(256, (16, 16), (16, 16), (1, 1), (64, 64))),
    "cpu": (Tiles(256, (64, 64), (64, 64), (1, 1), (128, 128)),),
}

#: float32 by three products of tf32. Of sm_90a measured on an H200, dQ, and dK and dV, of 2x16 heads of 64, 96, 128, 256 and
#: 2048 tokens, causal, ms: 0.50, 0.69; 0.80, 1.15; 0.95, 1.38; 2.33, 3.09 (torch all 1.7, 2.7, 2.9, 5.8; each thread alone 0.98,
#: 1.27; 1.45, 1.86; 1.86, 2.34; 5.5, 5.9). Eight warps share 64 rows: with 16 rows each by all columns, heads of 128 and 256
#: took 0.99, 1.65 and 2.8, 4.1, and spilled (docs/performance/cuda.md, "Three products of tf32"). By rule elsewhere: what fits
#: 99 KiB without spills, on AMD 64.
FLOAT32: dict[str, tuple[Tiles, ...]] = {
    "sm_90a": (
        Tiles(96, (64, 64), (64, 64), (2, 2), (256, 256), in_memory=True),
        Tiles(128, (64, 64), (64, 64), (2, 1), (256, 256), in_memory=True),
        Tiles(256, (64, 32), (32, 64), (1, 1), (256, 256), in_memory=True),
    ),
    "cuda": (
        Tiles(64, (64, 32), (32, 64), (1, 1), (128, 128)),
        Tiles(128, (64, 32), (16, 64), (1, 1), (128, 128)),
        Tiles(256, (32, 16), (16, 32), (1, 1), (128, 128), (16, 32, 1, 128)),
    ),
    "hip": (Tiles(256, (16, 16), (16, 16), (0, 0), (64, 64)),),
}

#: On a CPU: sides of square tiles, and what a weight of each costs; what a tile's edge or a mask leaves out of short sequences
#: is most of it. Kernels, one thread of an EPYC with AVX-512, dQ and dK with dV, of 2 heads of 64, us, by 16, 32, 64: causal
#: float32 16 tokens 5.4, 8.0, 16.4 and 6.2, 9.1, 18.4, 64 tokens 16.8, 17.6, 20.4 and 20.4, 21.8, 25.9, 512 tokens 620, 551, 546
#: and 784, 707, 711; full bfloat16 32 tokens 7.4, 6.6, 12.2 and 8.6, 8.0, 14.4, 512 tokens 730, 550, 532 and 917, 722, 714; an
#: Intel Xeon by tile registers, causal bfloat16, 16 tokens 14.5, 18.2, 28.8 and 17.0, 21.4, 36.6, 96 tokens 51, 47, 59 and 77,
#: 61, 79, 512 tokens 825, 629, 532 and 1272, 885, 721 (30 November 2026).
COST = {16: 1.3, 32: 1.07, 64: 1.0}
COST_IN_REGISTERS = {16: 1.8, 32: 1.27, 64: 1.0}
#: Queries of a call that the choice looks at.
LOOKED_AT = 1 << 12
#: In float32 a CPU computes all gradients of a head of keys by one walk, which takes 0.7 of the time of two, where no more of its
#: threads than this would wait, in rounds of heads; and where there are no more weights than of a short sequence's tile.
ROUNDS, SHORT = 1.4, 64 * 64

#: Multiprocessors that a GPU has. Where there are less than half as many blocks as these hold, each one's walk is cut into runs
#: of LEAST steps or more, which other blocks walk, and a kernel adds them up, if that leaves out of a walk so many steps by
#: elements of a head, of which one of float32 counts for four.
#: Kernels of an H200, us, in one walk, in runs, torch: one head of 128, 10 by 8128 129, 22, 12.5; 8 heads, 64 by 32768 551, 131,
#: 113; 2x8 heads of 64, 4096 by 77 91, 43, 123; one head, 6888 by 6888, causal, 194, 137, 174; 600 by 600 37, 24 (runs of 4 steps
#: 31), 32; but 2x4 heads of 64, 512 by 512, 22.0, 24.2 (30 November 2026).
BLOCKS, LEAST, WORTH = 132, 2, 512
#: The kernels whose walks can be cut.
CUT = ("queries", "keys", "values")
#: The largest head with a window and a cap whose dK and dV can be: others spill 28 bytes.
MOST_CUT_WITH_CAP = 192
#: Columns and runs of a block of the kernel that adds them up, and its threads.
ADDED = {"columns": 128, "rows": 8, "threads": 128}


def plan(problem: AttentionBackwardProblem, target: Target) -> Plan:
    """A kernel for rows, one for dQ, one for dK and dV, or one for all three, one for the sinks if there are any; and those that
    add up runs."""
    call = problem.attention
    tiles, source = choose(call.dim, call.dtype, target)
    if target.kind == "cpu":
        tiles, source = _of_a_cpu(call, tiles, target), "measured: COST in attention_backward/configs.py"
    kernels = specs(call, tiles, target.kind)
    if not call.sinks:
        del kernels["sinks"]
    if target.kind == "cpu" and call.dtype == "float32" and _by_one_walk(call):
        kernels["together"] = _together(call, tiles)
        del kernels["queries"], kernels["keys"]
        why = f"{call.mask} mask, dQ, dK and dV of a head together by {tiles.keys[0]}x{tiles.keys[1]}"
        return Plan.of(kernels, why, source)
    why = f"{call.mask} mask, dQ by {tiles.queries[0]}x{tiles.queries[1]}, dK and dV by {tiles.keys[0]}x{tiles.keys[1]}"
    if target.kind == "cpu":
        return Plan.of(kernels, why, source)
    of_queries, of_keys = _in_runs(call, tiles, kernels)
    why += f", walks over keys in runs: {of_queries}, over queries: {of_keys}"
    return Plan.of(kernels, why, source, query_runs=of_queries, key_runs=of_keys)


def _in_runs(call: AttentionProblem, tiles: Tiles, kernels: dict[str, KernelSpec]) -> tuple[int, int]:
    """In how many runs a GPU's walks over keys, for dQ, and over queries, for dK and dV, go; and in `kernels` those for more than
    one."""
    (rows, step), (row_step, columns) = tiles.queries, tiles.keys
    reach, width = call.left + call.right, call.dim * (4 if call.dtype == "float32" else 1)
    blocks = -(-call.tokens // rows) * call.heads * call.batch
    of_queries = _runs(blocks, -(-min(call.keys, reach + rows) // step), width, tiles.beside[0])
    steps = -(-min(call.tokens, reach + columns) // row_step) * (call.heads // max(call.heads_kv, 1))
    of_keys = _runs(-(-call.keys // columns) * call.heads_kv * call.batch, steps, width, tiles.beside[1])
    of_queries = of_queries if _is_cut("queries", call, tiles) else 1
    of_keys = of_keys if _is_cut("keys", call, tiles) else 1
    for role in CUT:
        runs, add = (of_queries, "add_queries") if role == "queries" else (of_keys, "add_keys")
        if runs > 1 and role in kernels:
            kernels[role], kernels[add] = cut(kernels[role]), _add(call.dtype)
    return of_queries, of_keys


def _is_cut(role: str, call: AttentionProblem, tiles: Tiles) -> bool:
    """Whether a kernel can go in runs."""
    if role == "queries":
        return call.mask not in tiles.whole
    return call.dim <= MOST_CUT_WITH_CAP or call.mask != "window" or call.softcap is None


def _runs(blocks: int, steps: int, width: int, beside: int) -> int:
    runs = max(min(BLOCKS * beside // max(blocks, 1), steps // LEAST), 1)
    return runs if (steps - -(-steps // runs)) * width >= WORTH else 1


def cut(spec: KernelSpec) -> KernelSpec:
    """The kernel whose walks go in runs."""
    return replace(spec, arguments=tuple(sorted((*spec.arguments, ("in_runs", True)))))


def _add(dtype: str) -> KernelSpec:
    return KernelSpec.of("attention_backward", "add", None, dtype=dtype, **ADDED)


def plan_packed(problem: PackedBackwardProblem, target: Target) -> Plan:
    """The same tiles as for sequences of one length; on a CPU those of the longest."""
    call = problem.packed.call
    tiles, source = choose(call.dim, call.dtype, target)
    if target.kind == "cpu":
        longest = replace(call, batch=1, tokens=problem.packed.longest, keys=problem.packed.longest)
        tiles, source = _of_a_cpu(longest, tiles, target), "measured: COST in attention_backward/configs.py"
    kernels = specs(call, tiles, target.kind, "_packed")
    if not call.sinks:
        del kernels["sinks"]
    why = f"{call.mask} mask, sequences apart, dQ by {tiles.queries[0]}x{tiles.queries[1]}"
    return Plan.of(kernels, f"{why}, dK and dV by {tiles.keys[0]}x{tiles.keys[1]}", source)


def choose(dim: int, dtype: str, target: Target) -> tuple[Tiles, str]:
    """The table's row for a head dimension, and the row's name."""
    table = FLOAT32 if dtype == "float32" and target.kind != "cpu" else TABLE
    key = target.arch if target.arch in table else target.kind
    tiles = next(row for row in table[key] if dim <= row.up_to)
    return tiles, f"rule: {key}, head dimension up to {tiles.up_to}, attention_backward/configs.py"


def _of_a_cpu(call: AttentionProblem, tiles: Tiles, target: Target) -> Tiles:
    """The table's, with the side that takes least time."""
    cost = COST_IN_REGISTERS if in_registers(call, target) else COST
    return _square(tiles, min(cost, key=lambda side: _weights(call, side) * cost[side]))


def _square(tiles: Tiles, side: int) -> Tiles:
    return replace(tiles, queries=(side, side), keys=(side, side))


def _weights(call: AttentionProblem, side: int) -> int:
    """Those that the tiles of a head compute, which have whole sides."""
    past, tiles = call.keys - call.tokens, 0
    for row in range(0, min(call.tokens, LOOKED_AT), side):
        end = max(min(row + side + past + call.right, call.keys), 0)
        tiles += max(-(-end // side) - max(row + past - call.left, 0) // side, 0)
    return tiles * side * side


def _by_one_walk(call: AttentionProblem) -> bool:
    heads = call.batch * call.heads_kv
    if call.tokens * call.keys <= SHORT or not heads:
        return True
    return -(-heads // call.threads) * call.threads <= ROUNDS * heads


def specs(call: AttentionProblem, tiles: Tiles, kind: str, packed: str = "") -> dict[str, KernelSpec]:
    """The kernels' names by role; `packed` ends those of packed sequences."""
    options: dict[str, Scalar] | None = {"tl.enable_fast_math": True} if kind != "cpu" else None
    by_three = BY_THREE.get((kind, call.dtype))
    late: dict[str, Scalar] = {}
    if options is not None and by_three is not None:
        options, late = options | by_three, {"late": True}

    def walk(function: str, block: tuple[int, int], stages: int, threads: int, **more: Scalar) -> KernelSpec:
        if tiles.in_memory:
            more["in_memory"] = True
        return KernelSpec.of(
            "attention_backward",
            function + packed,
            options,
            dtype=call.dtype,
            dim=call.dim,
            mask=call.mask,
            softcap=call.softcap is not None,
            block_M=block[0],
            block_N=block[1],
            stages=stages,
            threads=threads,
            **more,
        )

    found = {
        "prepare": KernelSpec.of("attention_backward", f"prepare{packed}", dtype=call.dtype, dim=call.dim),
        "queries": walk("queries", tiles.queries, tiles.stages[0], tiles.threads[0]),
        "sinks": KernelSpec.of("attention_backward", "sinks"),
    }
    if tiles.values is None:
        return found | {"keys": walk("keys_and_values", tiles.keys, tiles.stages[1], tiles.threads[1], **late)}
    block_m, block_n, stages, threads = tiles.values
    found["keys"] = walk("keys_and_values", tiles.keys, tiles.stages[1], tiles.threads[1], only="keys", **late)
    found["values"] = walk("keys_and_values", (block_m, block_n), stages, threads, only="values")
    return found


def _together(call: AttentionProblem, tiles: Tiles) -> KernelSpec:
    return KernelSpec.of(
        "attention_backward",
        "together",
        dtype=call.dtype,
        dim=call.dim,
        mask=call.mask,
        softcap=call.softcap is not None,
        block_M=tiles.keys[0],
        block_N=tiles.keys[1],
        stages=tiles.stages[1],
        threads=tiles.threads[1],
    )


def shipped(target: Target) -> Iterator[KernelSpec]:
    """What a wheel of prebuilt kernels holds: the gradients of every attention that is shipped."""
    if target.kind != "cpu":
        yield from (_add(dtype) for dtype in SHIPPED_DTYPES[target.kind])
    for dtype, packed in product(SHIPPED_DTYPES[target.kind], ("", "_packed")):
        for call in shipped_calls(dtype, target.kind):
            chosen, _ = choose(call.dim, dtype, target)
            for tiles in [_square(chosen, side) for side in COST] if target.kind == "cpu" else [chosen]:
                for role, spec in specs(call, tiles, target.kind, packed).items():
                    if role != "sinks" or call.sinks:
                        yield spec
                    if role in CUT and target.kind != "cpu" and not packed and _is_cut(role, call, tiles):
                        yield cut(spec)
                if target.kind == "cpu" and dtype == "float32" and not packed:
                    yield _together(call, tiles)
