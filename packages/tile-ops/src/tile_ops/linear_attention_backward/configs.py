"""Which kernels make the gradients of linear attention."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.linear_attention import configs as forward
from tile_ops.linear_attention.problem import AttentionProblem
from tile_ops.operator import Plan
from tile_ops.state_space import configs as scan
from tile_ops.state_space.problem import Model
from tile_ops.state_space_backward import configs as scan_backward

FAMILY = "linear_attention_backward"
RULE = "rule: linear_attention_backward/configs.py"


def plan(problem: AttentionProblem, target: Target) -> Plan:
    """States once more, gradients of states backward in time, then those of all operands by chunks."""
    table = KernelSpec.of(scan.FAMILY, "chunk_table", chunk_size=problem.model.chunk_size)
    kernels = {"table": table} if problem.packed else {}
    if problem.decay == "channel":
        kernels |= _decay_per_channel(problem, target)
        return Plan.of(kernels, f"a decay for each channel: {problem.model.chunk_size} tokens, by blocks of 16", RULE)
    kernels |= _one_decay(problem, target)
    return Plan.of(kernels, f"one decay for a state: chunks of {problem.model.chunk_size} tokens", RULE)


def _one_decay(problem: AttentionProblem, target: Target) -> dict[str, KernelSpec]:
    """The kernels of Mamba-2's scan, with steps of 1 and scale do in place of dy."""
    model, packed = problem.model, problem.packed
    kernels = {
        "scaled": KernelSpec.of(FAMILY, "scaled", dtype=model.dtype, block=1024),
        "decays": forward.decays(problem),
        "chunk_state": scan.chunk_state(model, target, "float32", packed),
        "pass_states": scan.pass_states(model, problem.initial, packed),
        "chunk_gradient": scan.chunk_state(model, target, "float32", packed, reverse=True),
        "pass_gradients": scan.pass_states(model, True, packed, reverse=True),
        "values": scan_backward.products("inputs_backward", model, target, skip=False, packed=packed),
        "queries": scan_backward.products("factors_backward", model, target, packed=packed, reverse=False),
        "keys": scan_backward.products("factors_backward", model, target, packed=packed, reverse=True),
    }
    if problem.decay != "none":
        per_token = problem.decay == "token"
        kernels["edges"] = scan_backward.edges(model)
        kernels["decays_backward"] = KernelSpec.of(
            FAMILY,
            "decays_backward",
            dtype=problem.decay_dtype,
            chunk_size=model.chunk_size,
            block_heads=16,
            per_token=per_token,
            packed=packed,
        )
        if not per_token:
            kernels["sum"] = scan_backward.sum_chunks()
    return kernels


def _decay_per_channel(problem: AttentionProblem, target: Target) -> dict[str, KernelSpec]:
    """Kernels of their own."""
    model, packed = problem.model, problem.packed
    dims = {"chunk_size": model.chunk_size, "dim_k": model.dstate, "dim_v": model.headdim}
    depth, width = (-(-dim // 16) * 16 for dim in (model.dstate, model.headdim))
    tiles = {"block": 16, "block_v": min(_values(model, target), width), "threads": 128}
    by_blocks = {**dims, **tiles, "packed": packed}
    cpu = target.kind == "cpu"
    by_vectors = {"by_vectors": cpu}

    def spec(function: str, **arguments: Scalar) -> KernelSpec:
        return KernelSpec.of(FAMILY, function, scan.FAST if target.kind == "cuda" else None, **arguments)

    def chunk_state(reverse: bool) -> KernelSpec:
        tiles = {"block_k": min(128, depth), "block_v": min(64, width), "threads": 128}
        return spec("gated_chunk_state", dtype=model.dtype, **dims, **tiles, packed=packed, reverse=reverse)

    def pass_states(initial: bool, reverse: bool) -> KernelSpec:
        elements = max(1, 1024 // model.dstate) * model.dstate if cpu else 1024
        how = {"block": elements, "initial": initial, "packed": packed, "reverse": reverse, **by_vectors}
        return spec("gated_pass_states", dtype=model.dtype, **dims, **how)

    return {
        "sums": spec(
            "gate_sums",
            gate_dtype=problem.decay_dtype,
            chunk_size=model.chunk_size,
            dim_k=model.dstate,
            block=min(64, depth),
            threads=128,
            packed=packed,
        ),
        "chunk_state": chunk_state(reverse=False),
        "pass_states": pass_states(problem.initial, reverse=False),
        "chunk_gradient": chunk_state(reverse=True),
        "pass_gradients": pass_states(True, reverse=True),
        "queries": spec("queries_backward", dtype=model.dtype, **by_blocks, **by_vectors),
        "keys_values": spec("keys_values_backward", dtype=model.dtype, **by_blocks, **by_vectors),
        "gates": spec(
            "gates_backward",
            dtype=model.dtype,
            gate_dtype=problem.decay_dtype,
            **dims,
            block=min(64, depth),
            block_v=16,
            threads=128,
            packed=packed,
        ),
    }


def _values(model: Model, target: Target) -> int:
    """Channels of values at a time: 32, or 16 where those leave no shared memory for the keys of a chunk."""
    if target.kind == "cpu":
        return 32
    depth, block, chunk = -(-model.dstate // 16) * 16, 16, model.chunk_size
    tiles = (chunk + 3 * block) * depth + block * chunk + 32 * (block + chunk + depth)
    sums = (block + 2) * depth + block * chunk
    return 32 if scan.itemsize(model.dtype) * tiles + 4 * sums <= target.shared_memory else 16


def shipped(target: Target) -> Iterator[KernelSpec]:
    """What training needs of what is shipped forward."""
    for problem in forward.shipped_calls(target):
        yield from (spec for _, spec in plan(problem, target).kernels)
