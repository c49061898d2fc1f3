"""Which kernels make the gradients of a scan."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tile_ops.dtypes import SHIPPED_DTYPES
from tile_ops.kernel import KernelSpec, Target
from tile_ops.operator import Plan
from tile_ops.state_space import configs as forward
from tile_ops.state_space.problem import Model, ScanProblem

FAMILY = "state_space_backward"


def plan(problem: ScanProblem, target: Target) -> Plan:
    """Steps and states once more, gradients of states backward in time, then those of all operands by chunks."""
    model, packed = problem.model, problem.packed
    kernels = {"table": KernelSpec.of(forward.FAMILY, "chunk_table", chunk_size=model.chunk_size)} if packed else {}
    kernels["steps"] = forward.steps(model, target, problem.dt_dtype, problem.softplus, packed)
    kernels["chunk_state"] = forward.chunk_state(model, target, "float32", packed)
    kernels["pass_states"] = forward.pass_states(model, problem.initial, packed)
    if problem.gate:
        kernels["products"] = forward.products(model, target, packed)
        kernels["chunk_scan"] = forward.chunk_scan(model, target, problem.skip, False, packed)
        kernels["gate"] = KernelSpec.of(FAMILY, "gate_backward", dtype=model.dtype, block=1024)
    kernels["chunk_gradient"] = forward.chunk_state(model, target, "float32", packed, reverse=True)
    kernels["pass_gradients"] = forward.pass_states(model, True, packed, reverse=True)
    kernels["inputs"] = products("inputs_backward", model, target, skip=problem.skip, packed=packed)
    kernels["c_factors"] = products("factors_backward", model, target, packed=packed, reverse=False)
    kernels["b_factors"] = products("factors_backward", model, target, packed=packed, reverse=True)
    kernels["edges"] = edges(model)
    kernels["steps_backward"] = KernelSpec.of(
        FAMILY,
        "steps_backward",
        dtype=problem.dt_dtype,
        chunk_size=model.chunk_size,
        block_heads=16,
        softplus=problem.softplus,
        packed=packed,
    )
    kernels["sum"] = sum_chunks()
    return Plan.of(
        kernels,
        f"chunks of {model.chunk_size} tokens, tiles of {dict(kernels['inputs'].arguments)['block']}",
        "rule: state_space_backward/configs.py",
    )


def shipped(target: Target) -> Iterator[KernelSpec]:
    """What training of Mamba-2 needs: chunks of 256, headdim 64, dstate 128, softplus, D, a gate."""
    for dtype, heads in product(SHIPPED_DTYPES[target.kind], forward.SHIPPED_HEADS):
        model = Model(dtype, 256, 64, 128, heads_per_group=heads)
        problem = ScanProblem(model, dtype, True, True, True, False, False)
        for _, spec in plan(problem, target).kernels:
            if spec.family == FAMILY or ("reverse", True) in spec.arguments:
                yield spec


def edges(model: Model) -> KernelSpec:
    """1024 elements of a state at a time."""
    return KernelSpec.of(
        FAMILY,
        "edges",
        dtype=model.dtype,
        chunk_size=model.chunk_size,
        headdim=model.headdim,
        dstate=model.dstate,
        block=1024,
    )


def sum_chunks() -> KernelSpec:
    """128 heads to a block."""
    return KernelSpec.of(FAMILY, "sum_chunks", block=128)


def products(function: str, model: Model, target: Target, **flags: bool) -> KernelSpec:
    """64 tokens to a block of a GPU: a warpgroup of Hopper. Without wgmma a thread that has two results of `factors_backward`,
    all columns of some rows, has no registers left: two warps share the columns; of float32 those of `inputs_backward`, too."""
    paired = (function == "factors_backward" and not forward.hopper(target)) or model.dtype == "float32"
    threads = 256 if paired and target.kind == "cuda" else 128
    block, stages, part = _tiles(function, model, target, threads)
    return KernelSpec.of(
        FAMILY,
        function,
        forward.options(model.dtype, target),
        dtype=model.dtype,
        chunk_size=model.chunk_size,
        headdim=model.headdim,
        dstate=model.dstate,
        block=block,
        stages=stages,
        part=part,
        threads=threads,
        **flags,
    )


def _tiles(function: str, model: Model, target: Target, threads: int) -> tuple[int, int, int]:
    """Tokens of a block, stages, and rows (`factors_backward`) or columns of a state that lie in shared memory at a time: all
    of them, with 64 tokens, where they fit.

    A CPU takes fewer: long sequences cost as much, and the last block of a short one is not computed for tokens that are not
    there. 16 where the state is small beside what it is multiplied by.
    """
    columns, depth = (-(-dim // 16) * 16 for dim in (model.headdim, model.dstate))
    along, across = (columns, depth) if function == "factors_backward" else (depth, columns)
    # Of float32 without: loads ahead take registers that 64 tokens by two tiles do not leave, and the compiler minutes.
    usual = 2 if forward.hopper(target) and (model.dtype != "float32" or function != "factors_backward") else 0
    if target.kind == "cpu":
        return 16 if model.chunk_size == 64 and columns <= 64 and depth <= 64 else 32, usual, along
    size = forward.itemsize(model.dtype)
    parts = [along, *(part for part in (128, 64, 32, 16) if part < along and along % part == 0)]
    for block, stages, part in product((64, 32, 16), sorted({usual, 0}, reverse=True), parts):
        row = columns + depth
        step = max(1, stages) * block * row
        state = part * across
        if function == "factors_backward":
            shared = threads > 2 * block or model.dtype == "float32"  # the weights lie there
            elements = block * row + step + state + (block * block if shared else 0)
        else:
            # Without stages the state lies where the steps' tiles come.
            elements = block * depth + (step + state if stages else max(step, state))
        if size * elements <= target.shared_memory:
            break
    return block, stages, part
