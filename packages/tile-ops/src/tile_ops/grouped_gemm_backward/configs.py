"""Which kernels make the gradients of groups' weights."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tile_ops.gemm.configs import plan as dense
from tile_ops.gemm.problem import GemmProblem
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
}
SOURCE = "rule: grouped_gemm_backward/configs.py"


def plan(problem: WeightGradientProblem, target: Target) -> Plan:
    """Where groups begin, then a block for each tile of each group's gradient. On a CPU, which knows the sizes, a product for
    each group: one kernel for all is at 0.7 of these (cpu.md)."""
    if target.kind == "cpu":
        rows = max(1, problem.tokens // max(1, problem.groups))
        chosen = dense(_of_group(problem, rows), target)
        why = f"a product for each group, of {rows} rows on average: {chosen.why}"
        return Plan.of(dict(chosen.kernels), why, chosen.source)
    tiles = TILES.get(target.arch) or TILES[target.kind]
    side = 2 if problem.dtype == "float32" else 1
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
        panel=tiles.panel,
    )
    kernels = {"starts": KernelSpec.of(FAMILY, "starts", dtype=problem.sizes), "gradient": gradient}
    return Plan.of(kernels, f"tiles of {tiles.block_m // side} x {tiles.block_n // side} of each group", SOURCE)


def _of_group(problem: WeightGradientProblem, rows: int) -> GemmProblem:
    return GemmProblem(
        batch=1,
        m=problem.k,
        n=problem.n,
        k=rows,
        dtype=problem.dtype,
        out_dtype=problem.dtype,
        transpose_a=True,
        transpose_b=False,
        batch_a="each",
        batch_b="each",
        bias=None,
        activation=None,
        tf32=False,
    )


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Half precision, as forward; what a CPU takes is shipped as products."""
    if target.kind != "cpu":
        for dtype, sizes in product(("float16", "bfloat16"), SIZES):
            yield from (spec for _, spec in plan(WeightGradientProblem(1, 1, 1, 1, dtype, sizes), target).kernels)
