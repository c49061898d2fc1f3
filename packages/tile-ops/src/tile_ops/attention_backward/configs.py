"""Which kernels compute the gradients of an attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tile_ops.attention.configs import BY_THREE, shipped_calls
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
    """Queries and keys of a block's tiles, for dQ and for dK and dV, and the stages of both; `up_to` is the largest head
    dimension. `values`: tile, stages and threads of a kernel for dV alone, where dK has one of its own too. `in_memory`: as in
    kernels.py."""

    up_to: int
    queries: tuple[int, int]
    keys: tuple[int, int]
    stages: tuple[int, int]
    threads: int
    values: tuple[int, int, int, int] | None = None
    in_memory: bool = False


#: By architecture, else by kind; rows by head dimension, the first that fits. All by rule: what the registers of the
#: accumulators leave, and shared memory; the stages of sm_90a measured on an H200 (dQ with 2: 1.31 ms, with 3: 1.15; dK and
#: dV with 2: 1.77, with 3: 1.86; batch 4, 32 heads, 4096 tokens, causal).
TABLE: dict[str, tuple[Tiles, ...]] = {
    "sm_90a": (
        Tiles(64, (128, 64), (64, 128), (3, 2), 256),
        # By 64 a step dQ of heads of 96, and dK and dV of 80 and 96 spill.
        Tiles(96, (128, 32), (32, 128), (3, 2), 256),
        Tiles(128, (128, 64), (64, 128), (3, 2), 256),
        # Registers hold the sums of dK or of dV. Batch 4, 16 heads, 4096 tokens, causal and full, ms, dQ, dK, dV: heads of 192
        # 0.97, 1.05, 0.67 and 1.71, 1.86, 1.06, by 64 queries and keys 1.04, 1.18, 0.82 and 1.88, 2.07, 1.46; of 256 1.31, 1.42,
        # 0.83 and 2.41, 2.59, 1.41, by 128 queries or keys in steps of 32 1.38, 1.51 and 2.53, 2.71 (and dQ spills).
        Tiles(192, (128, 64), (64, 128), (2, 2), 256, (64, 128, 2, 256)),
        Tiles(256, (64, 64), (64, 64), (2, 2), 128, (64, 128, 2, 256)),
    ),
    "cuda": (Tiles(128, (64, 32), (32, 64), (1, 1), 128), Tiles(256, (32, 32), (32, 32), (1, 1), 128)),
    "hip": (Tiles(128, (32, 32), (32, 32), (1, 1), 128), Tiles(256, (16, 16), (16, 16), (1, 1), 64)),
    "cpu": (Tiles(256, (64, 64), (64, 64), (1, 1), 128),),
}

#: float32 by three products of tf32. Of sm_90a measured on an H200, dQ, and dK and dV, of 2x16 heads of 64, 96, 128, 256 and
#: 2048 tokens, causal, ms: 0.50, 0.69; 0.80, 1.15; 0.95, 1.38; 2.33, 3.09 (torch all 1.7, 2.7, 2.9, 5.8; each thread alone 0.98,
#: 1.27; 1.45, 1.86; 1.86, 2.34; 5.5, 5.9). Eight warps share 64 rows: with 16 rows each by all columns, heads of 128 and 256
#: took 0.99, 1.65 and 2.8, 4.1, and spilled (docs/performance/cuda.md, "Three products of tf32"). By rule elsewhere: what fits
#: 99 KiB without spills, on AMD 64.
FLOAT32: dict[str, tuple[Tiles, ...]] = {
    "sm_90a": (
        Tiles(96, (64, 64), (64, 64), (2, 2), 256, in_memory=True),
        Tiles(128, (64, 64), (64, 64), (2, 1), 256, in_memory=True),
        Tiles(256, (64, 32), (32, 64), (1, 1), 256, in_memory=True),
    ),
    "cuda": (
        Tiles(64, (64, 32), (32, 64), (1, 1), 128),
        Tiles(128, (64, 32), (16, 64), (1, 1), 128),
        Tiles(256, (32, 16), (16, 32), (1, 1), 128, (16, 32, 1, 128)),
    ),
    "hip": (Tiles(256, (16, 16), (16, 16), (0, 0), 64),),
}

#: Heads of keys, of all sequences, from which on a CPU computes all gradients of a head by one walk, in float32: 1.2 to 2.2 of
#: torch where two walks are at 0.8 to 1.3 (cpu.md). Fewer would leave cores without work.
HEADS = 8


def plan(problem: AttentionBackwardProblem, target: Target) -> Plan:
    """A kernel for rows, one for dQ, one for dK and dV, or one for all three, one for the sinks if there are any."""
    call = problem.attention
    tiles, source = choose(call.dim, call.dtype, target)
    kernels = specs(call, tiles, target.kind)
    if not call.sinks:
        del kernels["sinks"]
    if target.kind == "cpu" and call.dtype == "float32" and call.batch * call.heads_kv >= HEADS:
        kernels["together"] = _together(call, tiles)
        del kernels["queries"], kernels["keys"]
        why = f"{call.mask} mask, dQ, dK and dV of a head together by {tiles.keys[0]}x{tiles.keys[1]}"
        return Plan.of(kernels, why, "measured: HEADS in attention_backward/configs.py")
    why = f"{call.mask} mask, dQ by {tiles.queries[0]}x{tiles.queries[1]}, dK and dV by {tiles.keys[0]}x{tiles.keys[1]}"
    return Plan.of(kernels, why, source)


def plan_packed(problem: PackedBackwardProblem, target: Target) -> Plan:
    """The same tiles as for sequences of one length."""
    call = problem.packed.call
    tiles, source = choose(call.dim, call.dtype, target)
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
        "queries": walk("queries", tiles.queries, tiles.stages[0], tiles.threads),
        "sinks": KernelSpec.of("attention_backward", "sinks"),
    }
    if tiles.values is None:
        return found | {"keys": walk("keys_and_values", tiles.keys, tiles.stages[1], tiles.threads, **late)}
    block_m, block_n, stages, threads = tiles.values
    found["keys"] = walk("keys_and_values", tiles.keys, tiles.stages[1], tiles.threads, only="keys", **late)
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
        threads=tiles.threads,
    )


def shipped(target: Target) -> Iterator[KernelSpec]:
    """What a wheel of prebuilt kernels holds: the gradients of every attention that is shipped."""
    for dtype, packed in product(SHIPPED_DTYPES[target.kind], ("", "_packed")):
        for call in shipped_calls(dtype, target.kind):
            tiles, _ = choose(call.dim, dtype, target)
            for role, spec in specs(call, tiles, target.kind, packed).items():
                if role != "sinks" or call.sinks:
                    yield spec
            if target.kind == "cpu" and dtype == "float32" and not packed:
                yield _together(call, tiles)
