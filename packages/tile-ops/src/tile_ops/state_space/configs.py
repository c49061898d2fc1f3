"""Which kernels, with which tiles, make a scan."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tile_ops.dtypes import SHIPPED_DTYPES
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

from .problem import ChunkScanProblem, ChunkStateProblem, Model, ScanProblem, StepProblem

FAMILY = "state_space"
RULE = "rule: state_space/configs.py"

#: Bytes of shared memory that tiles of a block on Hopper may take, of 227 KiB.
SHARED = 225 * 1024

#: Heads of a group whose kernels are shipped. Those of 24 (Mamba-2 of 130 million parameters) and of 32 serve all numbers that
#: 8 divides: 48, 64 and 80 of the larger ones, 16 of Codestral's.
SHIPPED_HEADS = (2, 24, 32)

#: exp2 by the GPU's own instruction, with an error of two units in the last place.
FAST: dict[str, Scalar] = {"tl.enable_fast_math": True}
#: And a block for each tile: of blocks that stay, addresses divide by what a call decides, and states are not stored by TMA.
FAST_LEAVING: dict[str, Scalar] = {**FAST, "tl.disable_staying_blocks": True}
#: Products of float32 by three of tf32 (docs/decisions/0023).
BY_THREE: dict[str, Scalar] = {"tl.allow_tf32x3": True}


def plan_chunk_state(problem: ChunkStateProblem, target: Target) -> Plan:
    """One kernel: the states of all chunks."""
    spec = chunk_state(problem.model, target, problem.out_dtype, packed=False)
    return Plan.of({"forward": spec}, _why(problem.model, spec), RULE)


def plan_chunk_scan(problem: ChunkScanProblem, target: Target) -> Plan:
    """One kernel: the outputs of all chunks."""
    spec = chunk_scan(problem.model, target, problem.skip, problem.gate, packed=False)
    return Plan.of({"forward": spec}, _why(problem.model, spec), RULE)


def plan_scan(problem: ScanProblem, target: Target) -> Plan:
    """Steps, states of chunks, states before chunks, products within chunks, outputs; a table first if packed."""
    model, packed = problem.model, problem.packed
    kernels = {"table": KernelSpec.of(FAMILY, "chunk_table", chunk_size=model.chunk_size)} if packed else {}
    kernels["steps"] = steps(model, target, problem.dt_dtype, problem.softplus, packed)
    kernels["chunk_state"] = chunk_state(model, target, "float32", packed)
    kernels["pass_states"] = pass_states(model, problem.initial, packed)
    kernels["products"] = products(model, target, packed)
    kernels["chunk_scan"] = chunk_scan(model, target, problem.skip, problem.gate, packed)
    return Plan.of(kernels, _why(model, kernels["chunk_scan"]), RULE)


def steps(model: Model, target: Target, dtype: str, softplus: bool, packed: bool) -> KernelSpec:
    """16 heads of a chunk to a block: 32 bytes of a row of dt."""
    return KernelSpec.of(
        FAMILY,
        "steps",
        dtype=dtype,
        chunk_size=model.chunk_size,
        block_heads=16,
        softplus=softplus,
        packed=packed,
    )


def pass_states(model: Model, initial: bool, packed: bool, reverse: bool = False) -> KernelSpec:
    """1024 elements of a state to a block."""
    return KernelSpec.of(
        FAMILY,
        "pass_states",
        dtype=model.dtype,
        chunk_size=model.chunk_size,
        headdim=model.headdim,
        dstate=model.dstate,
        block=1024,
        initial=initial,
        packed=packed,
        reverse=reverse,
    )


def products(model: Model, target: Target, packed: bool) -> KernelSpec:
    """Tiles of 128 tokens on Hopper (64 rows for each of two warpgroups), of 64 elsewhere and of float32, which has no wgmma."""
    wide = hopper(target) and model.chunk_size >= 128 and model.dtype != "float32"
    return KernelSpec.of(
        FAMILY,
        "products",
        BY_THREE if target.kind == "cuda" and model.dtype == "float32" else None,
        dtype=model.dtype,
        chunk_size=model.chunk_size,
        dstate=model.dstate,
        block_m=128 if wide else 64,
        block_k=min(64, -(-model.dstate // 16) * 16) if hopper(target) else 32,
        stages=2,
        threads=256 if wide else 128,
        packed=packed,
    )


def chunk_state(model: Model, target: Target, out_dtype: str, packed: bool, reverse: bool = False) -> KernelSpec:
    """Two heads of a group at a time where their features are at most 128, on Hopper up to 8 one after the other.

    A CPU takes heads one by one, all states and 64 tokens: 0.65 to 0.85 of the time of two by 64 states and 32 tokens (AVX2).
    """
    cpu = target.kind == "cpu"
    together = 2 if model.heads_per_group % 2 == 0 and model.headdim <= 64 and not cpu else 1
    rows, block_n = model.headdim * together, min(128 if hopper(target) or cpu else 64, -(-model.dstate // 16) * 16)
    size, made = itemsize(model.dtype), itemsize(out_dtype)
    shared = (
        size * (model.chunk_size * block_n + 4 * 64 * rows) + made * rows * block_n + 20 * together * model.chunk_size
    )
    if size == 4:  # no tensor core reads what is weighted in registers
        shared += size * 64 * rows
    resident = hopper(target) and shared <= SHARED
    block_k, stages = (
        (64, 4)
        if resident
        else (64, 2)
        if cpu
        else _steps(target, size * (block_n + rows), size * rows, 12 * together * model.chunk_size)
    )
    return KernelSpec.of(
        FAMILY,
        "chunk_state",
        options(model.dtype, target, FAST_LEAVING if resident else FAST),
        dtype=model.dtype,
        out_dtype=out_dtype,
        chunk_size=model.chunk_size,
        headdim=model.headdim,
        dstate=model.dstate,
        heads=together,
        turns=turns(model.heads_per_group // together) if resident else 1,
        block_n=block_n,
        block_k=block_k,
        stages=stages,
        threads=256 if hopper(target) and rows >= 128 else 128,
        resident=resident,
        packed=packed,
        reverse=reverse,
    )


def chunk_scan(model: Model, target: Target, skip: bool, gate: bool, packed: bool) -> KernelSpec:
    """64 tokens of a head to a block; on Hopper of up to 8 heads, with cb and C, which they share, read once.

    Measured on an H200 (docs/performance/cuda.md): two such blocks to a multiprocessor beat one of 128 tokens.
    """
    columns, dstate = -(-model.headdim // 16) * 16, -(-model.dstate // 16) * 16
    tiles = 64 * (dstate + model.chunk_size + columns) + 2 * columns * dstate + 2 * 64 * columns
    size = itemsize(model.dtype)
    weights = 64 if size == 4 else 0  # no tensor core reads them in registers
    resident = hopper(target) and size * (tiles + 64 * weights) + 28 * model.chunk_size <= SHARED
    # Two loops, whose tiles do not share memory.
    block_k, stages = (
        (64, 2)
        if resident
        else (32, 2)
        if target.kind == "cpu"
        else _steps(target, 2 * size * (64 + columns), size * weights, 24 * model.chunk_size)
    )
    return KernelSpec.of(
        FAMILY,
        "chunk_scan",
        options(model.dtype, target),
        dtype=model.dtype,
        chunk_size=model.chunk_size,
        headdim=model.headdim,
        dstate=model.dstate,
        heads=turns(model.heads_per_group) if resident else 1,
        block_m=64,
        block_k=block_k,
        stages=stages,
        threads=128,
        resident=resident,
        skip=skip,
        gate=gate,
        packed=packed,
    )


def options(dtype: str, target: Target, fast: dict[str, Scalar] = FAST) -> dict[str, Scalar] | None:
    """Of kernels that multiply tiles of such elements."""
    if target.kind != "cuda":
        return None
    return {**fast, **BY_THREE} if dtype == "float32" else fast


def _steps(target: Target, staged: int, once: int, held: int) -> tuple[int, int]:
    """Tokens of a step on a GPU and its stages: of the usual ones those that fit. `staged` and `once` are bytes for each token
    of a step, in each stage and beside them, `held` other ones."""
    usual = 64 if hopper(target) else 32
    for block_k, stages in ((usual, 2), (usual, 0), (usual // 2, 0)):
        if block_k * (max(1, stages) * staged + once) + held <= target.shared_memory:
            break
    return block_k, stages


def plan_step(problem: StepProblem, target: Target) -> Plan:
    """One kernel. A block of a GPU takes 16 rows of a head, so that one sequence makes blocks for every processor."""
    model = problem.model
    rows = 16 if target.kind != "cpu" else min(64, model.headdim)
    spec = KernelSpec.of(
        FAMILY,
        "step",
        dtype=model.dtype,
        dt_dtype=problem.dt_dtype,
        headdim=model.headdim,
        dstate=model.dstate,
        rows=rows,
        softplus=problem.softplus,
        skip=problem.skip,
        gate=problem.gate,
    )
    return Plan.of({"forward": spec}, f"{rows} rows of a head's state to a block", RULE)


def turns(heads: int) -> int:
    """How many of a group's heads a block takes one after the other: what they share is then read an eighth as often."""
    return next(count for count in (8, 4, 2, 1) if heads % count == 0)


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    return 4 if dtype == "float32" else 2


def hopper(target: Target) -> bool:
    """Whether the target has TMA and wgmma."""
    return target.kind == "cuda" and target.arch.startswith("sm_90")


def shipped(target: Target) -> Iterator[KernelSpec]:
    """What Mamba-2 models need: chunks of 256, headdim 64, dstate 128, softplus, D with and without gate, from
    zeros and from states; and the outputs of chunks alone."""
    for dtype, heads in product(SHIPPED_DTYPES[target.kind], SHIPPED_HEADS):
        model = Model(dtype, 256, 64, 128, heads_per_group=heads)
        for packed, gate, initial in product((False, True), repeat=3):
            problem = ScanProblem(model, dtype, True, True, gate, initial, packed)
            yield from (spec for _, spec in plan_scan(problem, target).kernels)
        for gate in (False, True):
            step = plan_step(StepProblem(model, dtype, True, True, gate), target)
            yield from (spec for _, spec in step.kernels)
        for skip in (False, True):
            yield from (spec for _, spec in plan_chunk_scan(ChunkScanProblem(model, skip, False), target).kernels)


def _why(model: Model, spec: KernelSpec) -> str:
    heads = dict(spec.arguments)["heads"]
    return f"chunks of {model.chunk_size} tokens, {heads} of the {model.heads_per_group} heads of a group to a block"
