"""Which kernels multiply with packed weights."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

from .formats import FORMATS
from .problem import DequantProblem

#: Tokens of a tile; the least that holds all is taken.
TOKENS = (8, 16, 32, 64, 128)
#: Multiprocessors of a card of the architecture (vendors' datasheets); a product is split along k until these are busy.
PROCESSORS = {"sm_80": 108, "sm_86": 84, "sm_89": 128, "sm_90a": 132, "gfx942": 304}
BLOCK_K = 128
#: Tokens up to which a CPU multiplies by vectors of words: 2048 x 2048 in bfloat16 took 39.6 ms so, 38.8 ms by `product`
#: at 16 tokens, and 7.7 ms against 84 ms at one token of 4096 x 4096 (one core of a shared EPYC, 22 November 2026).
CPU_TOKENS = 16
#: Tiles of k that are on their way, by tokens: what fits into the 99 KB of shared memory of sm_86 and sm_89.
STAGES = {8: 4, 16: 4, 32: 4, 64: 3, 128: 2}
WEIGHTS = 128  # rows of weights of a tile on a GPU: two warpgroups of 64 rows
SOURCE = "rule in dequantize/configs.py"


def plan(problem: DequantProblem, target: Target) -> Plan:
    """One token: a kernel that reads weights and nothing else much. More: matrix instructions, k in splits if n is small."""
    if problem.dtype == "int8":
        tokens = _tokens(problem.m, target)
        why = f"{tokens} tokens in a tile of integer matrix instructions, weights decoded in registers"
        return Plan.of({"product": _product_int8(problem, target, tokens)}, why, SOURCE)
    if target.kind == "cpu" and problem.m <= CPU_TOKENS:
        return Plan.of({"product": _words(problem)}, f"at most {CPU_TOKENS} tokens: vectors of words", SOURCE)
    if problem.m == 1:
        return Plan.of({"product": _gemv(problem)}, "one token: weights stream through registers", SOURCE)
    tokens = _tokens(problem.m, target)
    splits = _splits(problem, target, tokens)
    kernels = {"product": _product(problem, target, tokens, split=splits > 1)}
    why = f"{tokens} tokens in a tile of matrix instructions, weights decoded in registers"
    if splits > 1:
        kernels["sum"] = _sum(problem)
        why += f"; k in {splits} splits, as tiles alone leave multiprocessors idle"
    return Plan.of(kernels, why, SOURCE, splits=splits)


def _tokens(m: int, target: Target) -> int:
    least = 16 if target.kind == "hip" else TOKENS[0]  # MFMA has 16 columns
    return next((t for t in TOKENS if t >= max(m, least)), TOKENS[-1])


def _splits(problem: DequantProblem, target: Target, tokens: int) -> int:
    """The most splits, a power of two, with no more than two blocks to a multiprocessor and 4 steps each."""
    if target.kind == "cpu":
        return 1
    blocks = -(-problem.n // WEIGHTS) * -(-problem.m // tokens)
    steps = -(-problem.k // BLOCK_K)
    splits = 1
    while blocks * splits * 2 <= 2 * PROCESSORS.get(target.arch, 108) and steps >= splits * 2 * 4 and splits < 16:
        splits *= 2
    return splits


def _common(problem: DequantProblem) -> dict[str, Scalar]:
    kind = FORMATS[problem.format]
    return {
        "dtype": problem.dtype,
        "scale_dtype": kind.scale or problem.dtype,
        "bits": kind.bits,
        "signed": kind.signed,
        "group": problem.group,
        "zeros": problem.zeros,
        "table": kind.table is not None,
    }


def _product(problem: DequantProblem, target: Target, tokens: int, split: bool) -> KernelSpec:
    cpu = target.kind == "cpu"
    return KernelSpec.of(
        "dequantize",
        "product",
        None,
        **_common(problem),
        out_dtype="float32" if split else problem.out_dtype,
        bias=problem.bias and not split,
        block_M=tokens,
        block_N=64 if cpu else WEIGHTS,
        block_K=BLOCK_K,
        stages=STAGES[tokens] if target.kind == "cuda" else 2,
        threads=128 if cpu else 256,
    )


def _product_int8(problem: DequantProblem, target: Target, tokens: int) -> KernelSpec:
    cpu = target.kind == "cpu"
    return KernelSpec.of(
        "dequantize",
        "product_int8",
        out_dtype=problem.out_dtype,
        bits=FORMATS[problem.format].bits,
        bias=problem.bias,
        block_M=tokens,
        block_N=64 if cpu else WEIGHTS,
        block_K=BLOCK_K,
        stages=STAGES[tokens] if target.kind == "cuda" else 2,
        threads=128 if cpu else 256,
    )


def _sum(problem: DequantProblem) -> KernelSpec:
    return KernelSpec.of(
        "dequantize", "sum_splits", dtype=problem.dtype, out_dtype=problem.out_dtype, bias=problem.bias
    )


def _words(problem: DequantProblem) -> KernelSpec:
    return KernelSpec.of(
        "dequantize",
        "words",
        None,
        **_common(problem),
        out_dtype=problem.out_dtype,
        bias=problem.bias,
        block_N=16,
        block_W=64,
    )


def _gemv(problem: DequantProblem) -> KernelSpec:
    return KernelSpec.of(
        "dequantize",
        "gemv",
        None,
        **_common(problem),
        out_dtype=problem.out_dtype,
        bias=problem.bias,
        block_N=4,
        block_W=256,
        threads=64,
    )


def shipped(kind: str) -> Iterator[KernelSpec]:
    """4-bit weights against float16: with zero points and groups of 128, and nf4 with groups of 64; 1, 16 and 64 tokens."""
    target = Target(kind, "")
    for name, group in (("uint4", 128), ("nf4", 64)):
        problem = DequantProblem(1, 1, 1024, name, group, "float16", "float16", name == "uint4", False)
        yield _words(problem) if kind == "cpu" else _gemv(problem)
        for tokens in (16, 64)[kind == "cpu" :]:
            yield _product(problem, target, tokens, split=False)
            if kind != "cpu":
                yield _product(problem, target, tokens, split=True)
        if kind != "cpu":
            yield _sum(problem)
