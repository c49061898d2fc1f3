"""Which kernels make linear attention."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tile_ops.dtypes import SHIPPED_DTYPES
from tile_ops.kernel import KernelSpec, Target
from tile_ops.operator import Plan
from tile_ops.state_space import configs as scan
from tile_ops.state_space.problem import Model

from .problem import AttentionProblem

FAMILY = "linear_attention"
RULE = "rule: linear_attention/configs.py"


def plan(problem: AttentionProblem, target: Target) -> Plan:
    """One decay for a state: the chunks of Mamba-2's scan. A decay per channel: token blocks one after the other."""
    model, packed = problem.model, problem.packed
    if problem.decay == "channel":
        spec = KernelSpec.of(
            FAMILY,
            "gated",
            dtype=model.dtype,
            gate_dtype=problem.decay_dtype,
            dim_k=model.dstate,
            dim_v=model.headdim,
            block_v=min(128 if target.kind == "cpu" else 64, -(-model.headdim // 16) * 16),
            block=16,
            threads=128,
            initial=problem.initial,
            packed=packed,
            by_vectors=target.kind == "cpu",
        )
        return Plan.of({"gated": spec}, "a decay for each channel: 16 tokens at a time", RULE)
    kernels = {"table": KernelSpec.of(scan.FAMILY, "chunk_table", chunk_size=model.chunk_size)} if packed else {}
    kernels["decays"] = decays(problem)
    kernels["chunk_state"] = scan.chunk_state(model, target, "float32", packed)
    kernels["pass_states"] = scan.pass_states(model, problem.initial, packed)
    kernels["products"] = scan.products(model, target, packed)
    kernels["chunk_scan"] = scan.chunk_scan(model, target, False, False, packed)
    return Plan.of(kernels, f"one decay for a state: chunks of {model.chunk_size} tokens", RULE)


def decays(problem: AttentionProblem) -> KernelSpec:
    """16 heads of a chunk to a block."""
    return KernelSpec.of(
        FAMILY,
        "decays",
        dtype=problem.decay_dtype,
        chunk_size=problem.model.chunk_size,
        block_heads=16,
        per_token=problem.decay == "token",
        packed=problem.packed,
    )


def shipped(target: Target) -> Iterator[KernelSpec]:
    """The kernels of `shipped_calls`."""
    for problem in shipped_calls(target):
        yield from (spec for _, spec in plan(problem, target).kernels)


def shipped_calls(target: Target) -> Iterator[AttentionProblem]:
    """What wheels serve: 128 channels of keys and values, without decay, with one of each head (retention), of each of its tokens
    and of each of its channels."""
    for dtype, decay in product(SHIPPED_DTYPES[target.kind], ("none", "head", "token", "channel")):
        model = Model(dtype, 64, 128, 128, heads_per_group=1)
        yield AttentionProblem(model, decay, "float32", False, False)
