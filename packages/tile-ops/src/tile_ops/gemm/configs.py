"""Which kernel, with which tiles, does a product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tile_ops.kernel import KernelSpec, Target
from tile_ops.operator import Plan

from .problem import GemmProblem


@dataclass(frozen=True)
class Tiles:
    """A block's tile of C and the depth of a step in bytes; stages of the pipeline, threads, blocks of a panel walk."""

    block_m: int
    block_n: int
    step_bytes: int
    stages: int
    threads: int
    panel: int

    def arguments(self, itemsize: int) -> dict[str, int]:
        """As kernels take them."""
        return {
            "block_m": self.block_m,
            "block_n": self.block_n,
            "block_k": self.step_bytes // itemsize,
            "stages": self.stages,
            "threads": self.threads,
            "panel": self.panel,
        }


#: By architecture (or kind) and class. "large" was measured (docs/performance/cuda.md: the tile of sm_90a and that of
#: mma.sync; cpu.md: 256 x 256 x 256 of float32); "small" is a rule: the smallest tile with all warps at work.
TILES = {
    ("sm_90a", "large"): Tiles(128, 256, 128, 4, 256, 16),
    ("sm_90a", "small"): Tiles(64, 64, 128, 4, 128, 0),
    ("cuda", "large"): Tiles(128, 128, 64, 3, 128, 8),
    ("cuda", "small"): Tiles(64, 64, 64, 3, 128, 0),
    ("hip", "large"): Tiles(128, 128, 64, 2, 256, 8),
    ("hip", "small"): Tiles(64, 64, 64, 2, 256, 0),
    ("cpu", "large"): Tiles(256, 256, 1024, 0, 128, 0),
    ("cpu", "small"): Tiles(64, 64, 1024, 0, 128, 0),
}
#: Blocks that fill half of a chip (of 132, 108, 304 multiprocessors, of a CPU's cores): fewer large tiles than this, and
#: small ones are taken.
ENOUGH = {"cuda": 66, "hip": 152, "cpu": 1}
ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "int8": 1}


def plan(problem: GemmProblem, target: Target) -> Plan:
    """Large tiles where they fill the chip, else small ones."""
    large = _tiles(target, "large")
    blocks = problem.batch * (problem.m // large.block_m) * (problem.n // large.block_n)
    size = "large" if blocks >= ENOUGH[target.kind] else "small"
    why = f"{size} tiles, {blocks} whole large ones"
    return Plan.of({"product": _spec(problem, target, size)}, why, "table: TILES in gemm/configs.py")


def shipped(kind: str) -> Iterator[KernelSpec]:
    """Plain products of one matrix, or of as many on both sides, by b or by a transposed b (a layer's weight)."""
    for arch in ("sm_80", "sm_90a") if kind == "cuda" else ("",):
        for dtype, transpose_b, size in product(("float16", "bfloat16", "float32"), (False, True), ("large", "small")):
            problem = GemmProblem(1, 1, 1, 1, dtype, dtype, False, transpose_b, "each", "each", None, None, False)
            yield _spec(problem, Target(kind, arch), size)


def _tiles(target: Target, size: str) -> Tiles:
    return TILES.get((target.arch, size)) or TILES[target.kind, size]


def _spec(problem: GemmProblem, target: Target, size: str) -> KernelSpec:
    return KernelSpec.of(
        "gemm",
        "matmul",
        {"tl.allow_tf32": True} if problem.tf32 and target.kind == "cuda" else None,
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        transpose_a=problem.transpose_a,
        transpose_b=problem.transpose_b,
        batch_a=problem.batch_a,
        batch_b=problem.batch_b,
        bias=problem.bias,
        activation=problem.activation,
        **_tiles(target, size).arguments(ITEMSIZE[problem.dtype]),
    )
