"""Which kernels multiply few tokens with packed weights on CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ops.dequantize.formats import FORMATS, held_exactly
from tile_ops.dequantize.problem import DequantProblem
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

FAMILY = "dequantize_vectors"
SOURCE = "measured: dequantize_vectors/configs.py"

#: Rows of W.
ROWS = 128
#: Tokens of a kernel that multiplies pairs, the least that holds all is taken; more tokens go another way. 4096 x 4096, a core
#: of an EPYC with AVX-512 and BF16, 28 November 2026, whole calls, ms: bfloat16 in uint4 of 8 tokens 2.4, weights rounded to
#: memory 2.6; 10 tokens 2.9, 3.2; 12 tokens 3.8, 3.3; nf4 1.9, 2.6; 3.8, 3.2; 4.1, 3.2; int4 in groups of 32 2.0, 2.9; 2.6,
#: 3.5; 3.2, 3.5. float16, of which a token is two numbers of bfloat16, in uint4 of 5, 8, 10, 12 tokens 2.3, 3.6, 4.7, 6.0, by
#: `product_pairs` 4.7, 4.8, 6.6, 6.7.
PAIRS = {"bfloat16": (1, 2, 3, 4, 5, 6, 7, 8), "float16": (1, 2, 3, 4, 5, 6, 8, 10, 12)}
#: Tokens of a kernel that multiplies float32. 9, 12, 16 tokens, ms by tiles of float32 and so: EPYC with AVX-512 float16 in nf4
#: 6.6, 6.7, 6.3; 4.4, 5.5, 8.2, as without BF16 uint4 6.6, 6.6, 6.1; 4.1, 4.8, 7.1. EPYC with AVX2, 6, 8, 10, 12 tokens,
#: bfloat16 in uint4 7.8, 7.7, 10.0, 9.8; 4.8, 6.4, 7.5, 9.1 (torch's product of four bits 6.1 and 9.5 for 6 and 8), float16 in
#: nf4 9.0, 8.7, 12.6, 12.5; 5.2, 6.8, 8.3, 10.1, int2 9.2, 6.5, 9.2, 9.4; 3.1, 5.0, 6.0, 8.0, bfloat16 in int4 in groups of 32
#: 7.9, 7.7, 10.4, 10.3; 4.5, 5.5, 7.2, 10.5, mxfp4 6 and 8 tokens 10.3, 9.7; 6.8, 7.2; but 16 tokens in nf4 12.8, 16, int2 8.6,
#: 14. Numbers that are scaled in a table, which is two registers there, are slower than sums: uint4 6, 8 tokens 5.4, 7.5.
FLOATS = (1, 2, 3, 4, 6, 8, 10, 12)
#: Tokens of float32 from which on numbers of a table are scaled, less their zero points, for all words of a vector, instead of
#: sums of products: in uint4 1, 2, 3, 4, 8 tokens EPYC 0.91, 1.13 (sums 0.67, 1.01), 3 and more 1.6 (1.8), 3.1 (3.5), Xeon with
#: AMX 1.7, 1.9, 2.0, 2.2 (0.9, 1.8, 2.7, 2.6), 6 tokens 2.6 (3.8). Without zero points nothing is gained.
SCALED = 3


def plan(problem: DequantProblem, target: Target, most: int | None = None) -> Plan | None:
    """None for tokens that are too many, or more than `most`. Numbers: those of the vectors of x, and of sums of x, if there
    are zero points."""
    kind, pairs = FORMATS[problem.format], _by_pairs(problem, target)
    lanes = 16 if target.arch.startswith("x86-64-v4") else 8
    served = PAIRS[problem.dtype] if pairs else FLOATS
    if problem.m > (served[-1] if most is None else most):
        return None
    tokens = next(tokens for tokens in served if tokens >= problem.m)
    parts = 2 if pairs and problem.dtype == "float16" else 1
    places, vectors = (16 if pairs else 32) // kind.bits, -(-problem.k * kind.bits // (32 * lanes))
    shared: dict[str, Scalar] = {"tokens": tokens, "pairs": pairs, "lanes": lanes}
    x: dict[str, Scalar] = {"dtype": problem.dtype, "bits": kind.bits, "sums": problem.zeros}
    tile: dict[str, Scalar] = {"block_N": ROWS, "block_W": _codes(tokens * parts, pairs) * kind.bits // 32}
    tile |= {"looked_up": lanes == 16 or kind.table is not None, "out_dtype": problem.out_dtype}
    words = problem.group * kind.bits // 32  # of a group
    alike = lanes == 16 and words > 0 and words % lanes == 0  # those of a vector have one scale
    tile["scaled"] = alike and not pairs and problem.zeros and tokens >= SCALED
    how = "two at a time, and multiplied as pairs of bfloat16" if pairs else "and multiplied"
    numbers = {"vectors": vectors, "places": places, "tokens": tokens, "parts": parts, "lanes": lanes}
    return Plan.of(
        {
            "vectors": KernelSpec.of(FAMILY, "vectors_of_x", None, **x, **shared),
            "product": KernelSpec.of(FAMILY, "product", None, **problem.codes(), **shared, **tile),
        },
        f"at most {tokens} tokens: codes looked up in registers, {how}",
        SOURCE,
        **numbers,
        sums=vectors * problem.zeros,
    )


def _by_pairs(problem: DequantProblem, target: Target) -> bool:
    """Whether codes are multiplied as pairs of bfloat16. VDPBF16PS takes a Xeon with AMX four times as long as an EPYC: 4096 x
    4096 in uint4, 1, 2, 3, 4 tokens 1.6, 2.6, 3.4, 4.4 ms, by float32 0.9 to 1.3, 1.8, 2.0, 2.2; EPYC 0.4, 0.6, 0.9, 1.1; 0.7,
    1.0, 1.4, 1.6."""
    if not target.has("bf16") or target.has("amx"):
        return False
    return problem.dtype == "bfloat16" or held_exactly(FORMATS[problem.format])


def _codes(rows: int, pairs: bool) -> int:
    """Codes of a row of W in a step, by rows of x, which a step holds in the first cache: 8 of bfloat16 by 2048 codes take
    twice the time that they take by 1024."""
    if pairs:
        return 2048 if 1 < rows <= 4 else 1024 if rows <= 8 else 512
    return 1024 if rows <= 6 else 512


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Those of the weights that `dequantize` ships."""
    from tile_ops.dequantize.configs import shipped_problems
    from tile_ops.dequantize_cpu.configs import plan as planned

    if target.kind != "cpu":
        return
    for name, group, dtype in shipped_problems():
        for m in range(1, FLOATS[-1] + 1):
            problem = DequantProblem(m, 512, 8192, name, group, dtype, dtype, name == "uint4", False)
            yield from (spec for _, spec in planned(problem, target).kernels if spec.family == FAMILY)
