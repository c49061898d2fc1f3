"""Which kernels multiply with packed weights on CPUs."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tile_ops.dequantize.formats import FORMATS
from tile_ops.dequantize.problem import DequantProblem
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

FAMILY = "dequantize_cpu"
SOURCE = "measured: dequantize_cpu/configs.py"

#: Tokens that are multiplied by vectors of words, the least that holds all, with the codes of a row in a step: long pieces,
#: as memory gives them faster, and fewer for more tokens, whose x fills the caches. More tokens go through a product of
#: float32. 4096 x 4096 in uint4, a core of an EPYC with AVX-512, by 4096, 2048, 1024, 512 codes, ms: 4 tokens 2.3, 1.3, 1.6,
#: 2.1, 8 tokens 8.8, 6.5, 2.3, 2.9 (3.7 by that product), 16 tokens 18.7, 15.6, 9.2, 5.6 (3.6).
WORDS = {1: 4096, 2: 4096, 4: 2048, 8: 1024}
#: Without AVX-512, whose registers hold the sums of more: 4 tokens in nf4 6 ms so, 8 ms by that product.
WORDS_OF_AVX2 = {1: 4096, 2: 4096, 4: 2048}
#: Tokens of a tile of the product of float32, and codes of a row in a step. 256 tokens by 64 and 128, of the speed of torch's
#: product with halves: EPYC 6.4, 6.9, Intel Xeon 0.78, 0.87.
COLUMNS = (8, 16, 32, 64, 128)
STEP_CODES = 512

#: Tokens of a tile of pairs of bfloat16, codes of a row in a step, and rows of W, for groups of 32, few and many tokens.
#: 4096 x 4096, one thread, of the speed of torch's product with halves by pairs and the best other way, 27 November 2026.
#: float16, Intel Xeon with AMX: 8 tokens in uint4 1.9 to 2.3, 1.27, uint1 2.6, 0.86, int2 2.5, 1.38, fp4 1.7, 1.27, int4 in
#: groups of 32 1.5, 1.28, mxfp4 1.1, 1.25; 16 tokens in uint4 1.8 to 2.0, 1.0, uint1 2.2, 1.2, fp4 1.5, 1.0, int4 1.4, 1.0, mxfp4
#: 1.2, 1.0; 256 tokens in uint4 1.4 to 1.6, 0.87, fp4 1.1, 0.85, int4 0.9, 0.87, mxfp4 0.73, 0.84. EPYC with AVX-512 and BF16: 4
#: tokens in uint4 3.1, 4.5, 8 tokens 5.1, 4.3, uint1 5.7, 2.4, fp4 4.5, 3.3, int4 4.0, 4.3; 16 tokens 5.9, 5.0; 6.4, 5.7; 5.5,
#: 5.0; 5.0, 5.0; 32 tokens in uint4 6.0, 6.0, 256 6.4, 6.9. bfloat16 in uint4: EPYC 16 tokens 1.18, 0.65, Xeon 1.37, 0.56.
PAIRS, PAIR_CODES, PAIR_ROWS = (8, 16, 32, 48, 64), 1024, (64, 128, 256)
#: Tokens from which on pairs are taken, in groups of 32 and others; up to so many of float16 for groups of 32 with AMX, and
#: without it, where they are two products instead of one.
LEAST_PAIRS, LEAST_PAIRS_OF_32, MOST_PAIRS_OF_32, MOST_PAIRS_OF_FLOAT16 = 5, 9, 64, 16
#: Words of a group, which are the lanes of a vector that decodes, at least.
LEAST_WORDS = 4
#: For bfloat16 where pairs of it are multiplied: up to how many tokens codes are such pairs, in groups of SHORT_GROUP and more
#: and, with AMX, in shorter ones. Others are multiplied by weights that are rounded to bfloat16, as the dense kernel does.
#: Tokens, rows of W and codes of a row in a step there; without AMX up to FEW tokens are rows of scalar products. 4096 x 4096
#: on one thread of an EPYC, ms by pairs, so, and torch's product with halves: 8 tokens in uint4 2.1, 1.6 (as columns 1.8), 2.3,
#: 16 1.8, 2.2, 2.8, nf4 2.4, 2.3, int4 in groups of 32 2.7, 2.5, 64 tokens 6.1, 5.6, 5.9; 6.8, 5.7; 7.4, 5.8, 256 in uint4
#: 23, 19, 18. Intel Xeon with AMX, of torch's speed, as pairs and so: 32 tokens in uint4 0.99, 0.90, nf4 0.81, 0.87, int4 0.86,
#: 0.88, 64 tokens in nf4 0.59, 0.92, int4 0.51, 0.86.
SHORT_GROUP, MOST_PAIRS_OF_BFLOAT16, MOST_PAIRS_OF_SHORT_GROUPS, FEW = 128, 32, 16, 8
ROUNDED, ROUNDED_ROWS, ROUNDED_CODES = (8, 16, 32, 48, 64, 96, 128, 192, 256), (128, 256), 1024
#: Tokens from which W is decoded into memory and multiplied by the dense kernel, in float16 and in such bfloat16.
MANY, MANY_ROUNDED = 1024, 257


def plan(problem: DequantProblem, target: Target) -> Plan:
    """For fewer tokens than `many`; x is float16 or bfloat16."""
    if by_pairs(problem, target):
        return _plan_pairs(problem)
    if _by_rounded(problem, target):
        return _plan_rounded(problem, target)
    if problem.m <= (most := max(_codes(target))):
        return Plan.of({"product": _words(problem, target)}, f"at most {most} tokens: vectors of words", SOURCE)
    steps = _steps(problem, target, STEP_CODES)
    why = "weights decoded to float32, tile by tile"
    return Plan.of(_by_float32(problem, steps), why, SOURCE, words=steps["block_W"])


def many(problem: DequantProblem, target: Target) -> int:
    """Tokens from which on W is decoded into memory."""
    return MANY_ROUNDED if problem.dtype == "bfloat16" and _multiplies_pairs(target) else MANY


def decode(problem: DequantProblem) -> KernelSpec:
    """The kernel that decodes rows of W."""
    return KernelSpec.of(FAMILY, "decode", None, **problem.codes(), block_W=256)


def by_pairs(problem: DequantProblem, target: Target) -> bool:
    """Whether codes are multiplied as pairs of bfloat16: float16 in formats that it holds exactly."""
    kind, narrow = FORMATS[problem.format], problem.group == 32
    least = LEAST_PAIRS_OF_32 if narrow else LEAST_PAIRS
    if not _multiplies_pairs(target) or problem.m < least or problem.dtype == "int8":
        return False
    if 0 < problem.group * kind.bits < LEAST_WORDS * 32:
        return False
    short = 0 < problem.group < SHORT_GROUP
    if problem.dtype == "bfloat16" and _in_registers(target):
        return problem.m <= (MOST_PAIRS_OF_SHORT_GROUPS if short else MOST_PAIRS_OF_BFLOAT16)
    if kind.table is not None and not all(_is_exact(value) for value in kind.table):
        return False
    if problem.dtype == "bfloat16":
        return FEW < problem.m <= MOST_PAIRS_OF_BFLOAT16 and not short
    if _in_registers(target):
        return not narrow or problem.m <= MOST_PAIRS_OF_32
    return not narrow and problem.m <= MOST_PAIRS_OF_FLOAT16


def _by_rounded(problem: DequantProblem, target: Target) -> bool:
    """Whether weights are rounded to bfloat16, x's type, tile by tile."""
    return problem.dtype == "bfloat16" and _multiplies_pairs(target) and problem.m >= LEAST_PAIRS


def _multiplies_pairs(target: Target) -> bool:
    return "bf16" in target.arch.split("+")


def _in_registers(target: Target) -> bool:
    return "amx" in target.arch.split("+")


def _is_exact(value: float) -> bool:
    """Whether bfloat16 holds this number."""
    return float(torch.tensor(value, dtype=torch.float64).bfloat16()) == value


def _plan_pairs(problem: DequantProblem) -> Plan:
    tokens = next((t for t in PAIRS if t >= problem.m), PAIRS[-1])
    few, some, most = PAIR_ROWS
    per = 32 // FORMATS[problem.format].bits
    words = PAIR_CODES // per
    span = min(problem.group // per, words) if problem.group else words
    rows = few if problem.group == 32 else most if tokens == PAIRS[-1] else some
    shape: dict[str, Scalar] = {"block_M": tokens, "span": span}
    columns = KernelSpec.of(FAMILY, "columns_of_pairs", None, dtype=problem.dtype, per=per, **shape)
    tile: dict[str, Scalar] = {**shape, "block_N": rows, "block_W": words, "out_dtype": problem.out_dtype}
    product = KernelSpec.of(FAMILY, "product_pairs", None, **problem.codes(), **tile)
    why = f"codes as pairs of bfloat16, {tokens} tokens at a time"
    numbers = {"words": words, "span": span, "tokens": tokens, "copies": 2 if problem.dtype == "float16" else 1}
    return Plan.of({"columns": columns, "product": product}, why, SOURCE, **numbers)


def _plan_rounded(problem: DequantProblem, target: Target) -> Plan:
    tokens = next((t for t in ROUNDED if t >= problem.m), ROUNDED[-1])
    few = tokens <= FEW and not _in_registers(target)
    words = ROUNDED_CODES * FORMATS[problem.format].bits // 32
    tile: dict[str, Scalar] = {"block_M": tokens, "block_N": ROUNDED_ROWS[not few], "block_W": words, "few": few}
    tile["out_dtype"] = problem.out_dtype
    product = KernelSpec.of(FAMILY, "product_rounded", None, **problem.codes(), **tile)
    return Plan.of({"product": product}, f"weights rounded to {problem.dtype}, {tokens} tokens at a time", SOURCE)


def _words(problem: DequantProblem, target: Target) -> KernelSpec:
    tokens, codes = next(item for item in _codes(target).items() if item[0] >= problem.m)
    tile: dict[str, Scalar] = {"out_dtype": problem.out_dtype, "tokens": tokens, "block_N": 128}
    return KernelSpec.of(FAMILY, "words", None, **problem.codes(), **tile, **_steps(problem, target, codes))


def _codes(target: Target) -> dict[int, int]:
    return WORDS_OF_AVX2 if target.arch == "x86-64-v3" else WORDS


def _by_float32(problem: DequantProblem, steps: dict[str, int]) -> dict[str, KernelSpec]:
    tokens = next((t for t in COLUMNS if t >= problem.m), COLUMNS[-1])
    of_x: dict[str, Scalar] = {"dtype": problem.dtype, "per": 32 // FORMATS[problem.format].bits}
    columns = KernelSpec.of(FAMILY, "columns", None, **of_x, block_M=tokens, block_W=steps["block_W"])
    tile: dict[str, Scalar] = {"out_dtype": problem.out_dtype, "block_M": tokens, "block_N": 128}
    return {
        "columns": columns,
        "product": KernelSpec.of(FAMILY, "product_float32", None, **problem.codes(), **tile, **steps),
    }


def _steps(problem: DequantProblem, target: Target, codes: int) -> dict[str, int]:
    """Words of a step of so many codes, and of a vector: as many as a register holds."""
    bits = FORMATS[problem.format].bits
    return {"block_W": codes * bits // 32, "lanes": 16 if target.arch.startswith("x86-64-v4") else 8}


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Those of the weights that `dequantize` ships, for any number of tokens."""
    from tile_ops.dequantize.configs import shipped_problems

    if target.kind != "cpu":
        return
    for name, group, dtype in shipped_problems():
        for m in sorted({*WORDS, *COLUMNS, *PAIRS, *ROUNDED}):
            problem = DequantProblem(m, 512, 8192, name, group, dtype, dtype, name == "uint4", False)
            if m < many(problem, target):
                yield from (spec for _, spec in plan(problem, target).kernels)
        yield decode(problem)
