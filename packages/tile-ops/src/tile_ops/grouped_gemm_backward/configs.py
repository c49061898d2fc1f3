"""Which kernels make the gradients of groups' weights."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tile_ops.gemm.tiles import ITEMSIZE, Tiles
from tile_ops.grouped_gemm.problem import SIZES
from tile_ops.kernel import KernelSpec, Target
from tile_ops.operator import Plan

from .problem import WeightGradientProblem

FAMILY = "grouped_gemm_backward"
#: By architecture or kind: rows and columns of a tile of a gradient, bytes of a step's tokens. Rules: what registers and, with
#: one more step beside the stages, shared memory leave. float32 takes no tensor core: tiles of half the side.
TILES = {
    "sm_90a": Tiles(128, 128, 128, 3, 256, 0),
    "cuda": Tiles(128, 128, 64, 2, 128, 0),
    "hip": Tiles(128, 128, 64, 1, 256, 0),
    "cpu": Tiles(64, 256, 256, 0, 128, 0),
}
SOURCE = "rule: grouped_gemm_backward/configs.py"


def plan(problem: WeightGradientProblem, target: Target) -> Plan:
    """Where groups begin, then a block for each tile of each group's gradient."""
    tiles = TILES.get(target.arch) or TILES[target.kind]
    side = 2 if problem.dtype == "float32" and target.kind != "cpu" else 1
    gradient = KernelSpec.of(
        FAMILY,
        "weight_gradient",
        None,
        dtype=problem.dtype,
        block_k=tiles.block_m // side,
        block_n=tiles.block_n // side,
        block_t=tiles.step_bytes // ITEMSIZE[problem.dtype],
        stages=tiles.stages,
        threads=tiles.threads,
    )
    kernels = {"starts": KernelSpec.of(FAMILY, "starts", dtype=problem.sizes), "gradient": gradient}
    return Plan.of(kernels, f"tiles of {tiles.block_m // side} x {tiles.block_n // side} of each group", SOURCE)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Half precision, on a CPU float32 too, as forward."""
    dtypes = ("float16", "bfloat16", *(("float32",) if target.kind == "cpu" else ()))
    for dtype, sizes in product(dtypes, SIZES):
        yield from (spec for _, spec in plan(WeightGradientProblem(1, 1, 1, 1, dtype, sizes), target).kernels)
