"""Which kernels multiply with packed weights on CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ops.dequantize.formats import FORMATS, held_exactly
from tile_ops.dequantize.problem import DequantProblem
from tile_ops.dequantize_vectors import configs as vectors
from tile_ops.gemm_halves.configs import PAD, TURNED_ROWS
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

FAMILY = "dequantize_cpu"
SOURCE = "measured: dequantize_cpu/configs.py"

#: Tokens that go as in `dequantize_vectors` where tile registers multiply the others. 4096 x 4096, a core of a Xeon with AMX,
#: 28 November 2026, ms so and by tile registers: 6 tokens of bfloat16 in uint4 2.2, 2.3, int4 in groups of 32 2.2, 2.6, of
#: float16 in uint4 2.0, 2.4, int2 2.05, 2.08; 8 tokens of float16 2.6, 2.8, 2.8, 2.4; in groups of 32 (mxfp4) 2.9, 5.2.
MOST_VECTORS_WITH_AMX = 6
#: Tokens of a tile of the product of float32, and codes of a row in a step. 256 tokens by 64 and 128, of the speed of torch's
#: product with halves: EPYC 6.4, 6.9, Intel Xeon 0.78, 0.87.
COLUMNS = (8, 16, 32, 64, 128)
STEP_CODES = 512

#: Tokens of a tile of pairs of bfloat16, codes of a row in a step, and rows of W, for groups of 32 and others. 4096 x 4096, one
#: thread, of the speed of torch's product with halves by pairs and the best other way, 27 November 2026. float16, Intel Xeon
#: with AMX: 8 tokens in uint4 1.9 to 2.3, 1.27, uint1 2.6, 0.86, int2 2.5, 1.38, fp4 1.7, 1.27, int4 in groups of 32 1.5, 1.28,
#: mxfp4 1.1, 1.25; 16 tokens in uint4 1.8 to 2.0, 1.0, uint1 2.2, 1.2, fp4 1.5, 1.0, int4 1.4, 1.0, mxfp4 1.2, 1.0. EPYC with
#: AVX-512 and BF16: 4 tokens in uint4 3.1, 4.5, 8 tokens 5.1, 4.3, uint1 5.7, 2.4, fp4 4.5, 3.3, int4 4.0, 4.3; 16 tokens 5.9,
#: 5.0; 6.4, 5.7; 5.5, 5.0; 5.0, 5.0; 32 tokens in uint4 6.0, 6.0, 256 6.4, 6.9.
PAIRS, PAIR_CODES, PAIR_ROWS = (8, 16), 1024, {True: 64, False: 128}
#: Tokens from which on with AMX pairs are taken for groups of 32.
LEAST_PAIRS_OF_32 = 9
#: With AMX, of more tokens of float16, weights are sums of two of bfloat16 (`product_split`): tokens of a tile, rows of W and
#: codes of a row in a step. 4096 x 4096, one thread, 29 November 2026, ms so, by pairs, and torch's product with halves: 16
#: tokens in uint4 3.3, 2.6, 5.9, fp4 3.4, 3.0, 6.3, int4 in groups of 32 3.9, 3.3, 6.0, mxfp4 4.1, 4.7, 6.3; 32 tokens in uint4
#: 4.4, 4.5, 8.4, uint1 3.7, 4.3, 9.3, int4 4.9, 5.4, 9.0; 256 tokens in uint4 -, 34, 46. Numbers that bfloat16 does not hold,
#: by float32: 12 tokens in nf4 3.8, 3.8, 5.3, 16 tokens 3.4, 5.7, 6.4, 64 6.7, 13.7, 13.7, 128 12.6, 26.4, 24.8, 256 24, 56,
#: 46; 1024 100, decoded and multiplied by `gemm_pairs` 128, 170. By 256 rows of 256 and 512 codes, 512 of 128: 32 tokens in
#: int4 5.1, 4.9, 5.1 (4.9), 192 in nf4 18.9, 20.4, 17.9 (17.6), 512 by 256 at a time 50.6, 56.2, 47.5 (47.0).
SPLIT, SPLIT_TILE = (16, 32, 48, 64, 96, 128, 192, 256), (512, 256)
#: Words of a group, which are the lanes of a vector that decodes, at least.
LEAST_WORDS = 4
#: Where pairs of bfloat16 are multiplied, weights of x in bfloat16 are rounded to it, as the dense kernel has them: tokens of a
#: tile; rows of W and codes of a row in a step for up to FEW tokens and for more. 4096 x 4096 on one thread, of the speed of
#: torch's product with halves, in uint4, nf4 and int4 in groups of 32, 27 November 2026. EPYC, in random order with W out of
#: the caches, 8 tokens by 128 rows of 512, 1024, 2048 codes 1.40, 1.55, 1.20; 1.38, 1.54, 1.21; 1.28, 1.38, 1.18; by 128 rows
#: of 1024, 256 of 512, 512 of 512 16 tokens 1.29, 1.27, 1.25; 1.31, 1.24, 1.14; 1.18, 1.17, 1.17, 64 tokens 1.09, 1.11, 1.10;
#: 1.07, 1.07, 1.07; 1.04, 1.06, 1.06, 256 tokens 0.94, 0.96, 0.97; 0.94, 0.98, 0.98; 0.93, 0.96, 0.97. Codes as pairs, as of
#: float16, are slower: 16 tokens 1.20 and, on a Xeon with AMX, 1.54; 1.32; 1.07. Fetching the next step's words while one is
#: multiplied is no faster.
FEW = 12
ROUNDED = (8, 12, 16, 20, 24, 32, 36, 40, 48, 56, 64, 96, 128, 192, 256)
#: Without AMX: columns, of which vectors hold 16, and rows of scalar products. EPYC, of torch's speed, as columns alone and so:
#: 12 tokens in uint4 1.06, 1.29, int4 in groups of 32 0.86, 1.09, 20 tokens 0.93, 1.20; 0.85, 1.15, 24 tokens 1.00, 1.16; 0.95,
#: 1.12, 36 tokens 0.92, 1.20; 0.91, 1.10, 40 tokens 0.99, 1.14; 0.94, 1.09, 52 tokens 0.95, 1.02; 0.92, 0.99; but 16 tokens
#: 1.23, 1.15.
AS_ROWS = {12: (0, 12), 20: (16, 4), 24: (16, 8), 36: (32, 4), 40: (32, 8), 56: (48, 8)}
ROUNDED_FEW, ROUNDED_MORE = (128, 1024), (256, 512)
#: With AMX, for up to so many tokens and for more: 512 rows of 256 codes take half of the second cache with 256 tokens and
#: their sums, 32 of the rows a third of the first. Kernels on a Xeon with AMX, ms, 29 November 2026, by 256 rows of 512 codes
#: and 512 of 256, W read where it lies: 8 tokens in int4 in groups of 32 1.82, 2.03, 16 tokens 1.71, 1.71, 24 tokens 2.17, 2.28,
#: in uint4 1.75, 1.75, 32 tokens 1.67, 1.62, int4 2.03, 1.99, 48 tokens 2.13, 2.14, int4 2.56, 2.37, 64 tokens 2.88, 2.68, 256
#: tokens 9.04, 8.10; of a copy of W 8 tokens 2.05, 32 2.30, 64 3.12, 256 8.6. Another Xeon with AMX, a GPU's host, has 128 and
#: more tokens alike, few ones the other way round (of a copy; 8 tokens in uint4 3.13, by 128 rows of 1024 2.92).
TILES_OF_REGISTERS, SOME = ((256, 512), (512, 256)), 24
#: Rows of W and codes of a step where columns are one vector, without AMX: by more rows products are slower. Kernels on another
#: EPYC, 28 November 2026, by 256 rows of 512 codes, 128 of 1024, 64 of 512, 64 of 1024, 32 of 1024, 16 tokens in uint4 1.02,
#: 1.00, 1.23, 1.27, 1.27, nf4 0.97, 0.94, 1.17, 1.22, 1.23, int4 in groups of 32 0.93, 0.92, 1.10, 1.13, 1.12, 20 tokens in
#: uint4 0.99, 0.96, 1.15, 1.19, 1.17, 24 tokens in nf4 0.93, 0.92, 1.05, 1.09, 1.07; but 32 tokens in uint4 1.12, 1.10, 1.06,
#: 1.10, 1.08, 256 tokens 0.98, 0.96, 0.94, 0.96, 0.95.
ROUNDED_VECTOR = (64, 1024)


def plan(problem: DequantProblem, target: Target) -> Plan:
    """For fewer tokens than are worth decoding W into memory; x is float16 or bfloat16."""
    pairs, rounded = _by_pairs(problem, target), _by_rounded(problem, target)
    most = MOST_VECTORS_WITH_AMX if target.has("amx") and (pairs or rounded) else None
    if (few := vectors.plan(problem, target, most)) is not None:
        return few
    if pairs:
        return _plan_pairs(problem)
    if by_split(problem, target):
        return _plan_split(problem)
    if rounded:
        return _plan_rounded(problem, target)
    steps = _steps(problem, target, STEP_CODES)
    why = "weights decoded to float32, tile by tile"
    return Plan.of(_by_float32(problem, steps), why, SOURCE, words=steps["block_W"])


def decode(problem: DequantProblem, target: Target) -> KernelSpec:
    """The kernel that decodes rows of W."""
    return KernelSpec.of(FAMILY, "decode", None, **problem.codes(), block_W=256, halves=_looks_up_halves(target))


def _by_pairs(problem: DequantProblem, target: Target) -> bool:
    """Whether codes are multiplied as pairs of bfloat16: few tokens of float16 in formats that it holds exactly."""
    kind, narrow = FORMATS[problem.format], problem.group == 32
    if not target.has("bf16") or problem.dtype != "float16" or problem.m > PAIRS[-1]:
        return False
    if 0 < problem.group * kind.bits < LEAST_WORDS * 32 or not held_exactly(kind):
        return False
    if target.has("amx"):
        return not narrow or (problem.m >= LEAST_PAIRS_OF_32 and kind.table is None)
    return not narrow


def by_split(problem: DequantProblem, target: Target) -> bool:
    """Whether weights are sums of two of bfloat16, for any number of tokens that goes no other way."""
    return problem.dtype == "float16" and target.has("amx")


def _by_rounded(problem: DequantProblem, target: Target) -> bool:
    """Whether weights are rounded to bfloat16, x's type, tile by tile."""
    return problem.dtype == "bfloat16" and target.has("bf16")


def _looks_up_halves(target: Target) -> bool:
    """Whether 32 numbers of 16 bits are looked up at once."""
    return target.arch.startswith("x86-64-v4")


def _plan_pairs(problem: DequantProblem) -> Plan:
    tokens = next((t for t in PAIRS if t >= problem.m), PAIRS[-1])
    per = 32 // FORMATS[problem.format].bits
    words = PAIR_CODES // per
    span = min(problem.group // per, words) if problem.group else words
    rows = PAIR_ROWS[problem.group == 32]
    shape: dict[str, Scalar] = {"block_M": tokens, "span": span}
    columns = KernelSpec.of(FAMILY, "columns_of_pairs", None, per=per, **shape)
    tile: dict[str, Scalar] = {**shape, "block_N": rows, "block_W": words, "out_dtype": problem.out_dtype}
    product = KernelSpec.of(FAMILY, "product_pairs", None, **problem.codes(), **tile)
    why = f"codes as pairs of bfloat16, {tokens} tokens at a time"
    numbers = {"words": words, "span": span, "tokens": tokens}
    return Plan.of({"columns": columns, "product": product}, why, SOURCE, **numbers)


def _plan_split(problem: DequantProblem) -> Plan:
    tokens = next((t for t in SPLIT if t >= problem.m), SPLIT[-1])
    rows, codes = SPLIT_TILE
    # The parts of x lie as the dense kernel of float16 has them.
    split = KernelSpec.of("gemm_pairs", "split", transposed=False, block_m=TURNED_ROWS, block_k=codes, pad=PAD)
    tile: dict[str, Scalar] = {"columns": tokens, "block_N": rows, "out_dtype": problem.out_dtype, "pad": PAD}
    tile["block_W"] = codes * FORMATS[problem.format].bits // 32
    product = KernelSpec.of(FAMILY, "product_split", None, **problem.codes(), **tile)
    why = f"weights as sums of two of bfloat16, {tokens} tokens at a time"
    return Plan.of({"split": split, "product": product}, why, SOURCE, codes=codes)


def _plan_rounded(problem: DequantProblem, target: Target) -> Plan:
    amx = target.has("amx")
    tokens = next((t for t in ROUNDED if t >= problem.m), ROUNDED[-1])
    columns, rows = (tokens, 0) if amx else AS_ROWS.get(tokens, (tokens, 0))
    if amx:
        block_N, codes = TILES_OF_REGISTERS[tokens > SOME]
    elif columns == 16:
        block_N, codes = ROUNDED_VECTOR
    else:
        block_N, codes = ROUNDED_FEW if tokens <= FEW else ROUNDED_MORE
    tile: dict[str, Scalar] = {"columns": columns, "rows": rows, "out_dtype": problem.out_dtype, "block_N": block_N}
    tile |= {"block_W": codes * FORMATS[problem.format].bits // 32, "halves": _looks_up_halves(target)}
    product = KernelSpec.of(FAMILY, "product_rounded", None, **problem.codes(), **tile)
    return Plan.of({"product": product}, f"weights rounded to {problem.dtype}, {tokens} tokens at a time", SOURCE)


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
        for m in sorted({*COLUMNS, *PAIRS, *SPLIT, *ROUNDED}):
            problem = DequantProblem(m, 512, 8192, name, group, dtype, dtype, name == "uint4", False)
            yield from (spec for _, spec in plan(problem, target).kernels if spec.family == FAMILY)
        yield decode(problem, target)
