"""Which kernels multiply with packed weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from math import ceil, inf

from tile_ops.dequantize_cpu import configs as cpu
from tile_ops.gemm.configs import plan as dense
from tile_ops.gemm.problem import GemmProblem
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

from .formats import FORMATS
from .problem import DequantProblem

#: Tokens of a tile; the least that holds all is taken.
TOKENS = (8, 16, 32, 64, 128)
#: Multiprocessors of a card of the architecture (vendors' datasheets); a product is split along k until these are busy.
PROCESSORS = {"sm_80": 108, "sm_86": 84, "sm_89": 128, "sm_90a": 132, "gfx942": 304}


@dataclass(frozen=True)
class Tile:
    """Rows of W and columns of a block's step, and steps that are on their way."""

    block_N: int
    block_K: int
    stages: int


#: By architecture (or kind) and tokens. sm_90a: measured (docs/performance/cuda.md); other GPUs: a rule, what fits into
#: the 99 KB of shared memory of sm_86 and sm_89.
TILES = {
    ("sm_90a", 8): Tile(64, 256, 4),
    ("sm_90a", 16): Tile(64, 256, 4),
    ("sm_90a", 64): Tile(128, 128, 4),
    ("sm_90a", 128): Tile(128, 128, 3),
    **{("cuda", tokens): Tile(128, 128, stages) for tokens, stages in ((16, 4), (32, 4), (64, 3), (128, 2))},
    **{("hip", tokens): Tile(128, 128, 2 if tokens < 128 else 1) for tokens in TOKENS},  # 64 KB of shared memory
    **{("cpu", tokens): Tile(64, 128, 2) for tokens in TOKENS},  # of int8
}
#: The same for int8 activations, and for codes that are looked up.
INT8_TILES = {("sm_90a", 8): Tile(64, 512, 4), ("gfx942", 128): Tile(128, 128, 2)}
LOOKED_UP_TILES = {("sm_90a", 64): Tile(128, 128, 3)}
#: Bytes of W that are read while a second kernel starts and adds the splits: 3 us, measured on the H200.
SUM_BYTES = 7e6
#: How much longer blocks take that have a multiprocessor for themselves (68 to 62 us on the H200: nothing hides their
#: waits).
ALONE = 1.1
#: How much longer a byte of W takes than to read it, where products and decoding bound the kernel: 85 for 38 us, measured on
#: the H200.
PACE = {("sm_90a", 64): 2.0}
#: Copies of the table of all pairs of codes, by architecture: one for each lane, where 32 KB of shared memory are to spare
#: (16384 x 16384 in nf4 for one token on the H200: 59 us, with a table of single codes 86 us).
COPIES = {"sm_90a": 32}
#: Bytes of W from which x is dealt before a product, by architecture and tokens of a tile: measured on the H200, decoding
#: costs less then (64 tokens of 28672 x 8192: 69.7 us for 75.7), and a launch 2 to 4 us.
DEALT_BYTES = {("sm_90a", 64): 6e7}
#: For int8 activations of one token on CUDA, by words of a row from which it is taken: 16384 x 16384 in int2 took 23.1 us
#: on the H200 with the first, 25.0 us with the second; by `product_int8` 31.2 us.
ONE_INT8 = {
    512: {"block_N": 8, "block_W": 512, "threads": 128},
    0: {"block_N": 8, "block_W": 128, "threads": 32},
}
#: Tokens from which W is decoded into memory and multiplied by the dense kernel: on the H200 decoding 16384 x 16384 took
#: 205 us, and 128 tokens more 117 us by `product`, 90 us by the dense kernel. On an EPYC (one thread, 4096 x 4096 in uint4, of
#: torch's speed) 512 tokens of bfloat16 take 0.98 so, 0.995 tile by tile, 1024 1.02, 1.01.
MANY = 1024
#: Rows of W that a GPU's block decodes. Measured on the H200, 28672 x 8192 in uint4: 1 row 162 us, 2 rows 148, 4 151, 8 155.
ROWS = 2
#: Bytes of decoded rows that are held at a time: large enough to keep the dense kernel's tiles many, on a CPU small enough for
#: its caches (48 tokens of bfloat16 by 4096 x 4096 by 4, 8, 32 MB 6.2, 5.6, 5.4 ms, and 19 where the system gives 32 MB of fresh
#: memory for each call).
PANEL = {"cpu": 8 << 20, "cuda": 128 << 20, "hip": 128 << 20}
#: For int8 on a CPU: tokens of a tile that multiplies by planes of codes, its rows of W and columns of a step. 4096 x 4096 in
#: int2, a core of an EPYC with AVX-512, ms: 1, 4, 8, 16 tokens 0.29, 0.69, 1.2, 1.3 (by `product_int8` for 16 tokens 2.0); 64
#: tokens 3.9 (by tiles of 64 3.6).
FEW_INT8 = {1: (64, 512), 4: (64, 512), 8: (64, 512), 16: (128, 1024)}
#: With AMX tiles of these are as good for 4 and 8 tokens: 1, 4, 8, 16 tokens 0.84, 1.71, 1.90, 2.34 (2.9).
ROWS_OF_AMX = (1, 16)
SOURCE = "rule in dequantize/configs.py"


def plan(problem: DequantProblem, target: Target) -> Plan:
    """Matrix instructions, also for one token: they leave the time to decoding. Along k in splits if n is small."""
    if problem.dtype == "int8" and problem.m == 1 and target.kind == "cuda":
        return Plan.of(
            {"product": _one_int8(problem)}, "one token: four products at a time, W read at full width", SOURCE
        )
    if problem.dtype == "int8" and target.kind == "cpu" and problem.m <= max(FEW_INT8):
        why = f"at most {max(FEW_INT8)} tokens: vectors of bytes, decoded plane by plane"
        return Plan.of({"product": _few_int8(problem, target)}, why, SOURCE)
    if problem.dtype == "int8":
        tokens = _tokens(problem.m, target)
        why = f"{tokens} tokens in a tile of integer matrix instructions, weights decoded in registers"
        return Plan.of({"product": _product_int8(problem, False, _arguments(problem, target, tokens))}, why, SOURCE)
    if problem.m >= MANY and not (target.kind == "cpu" and cpu.by_split(problem, target)):
        return _in_two(problem, target)
    if target.kind == "cpu":
        return cpu.plan(problem, target)
    tokens = _tokens(problem.m, target)
    splits = _splits(problem, target, tokens)
    dealt = _dealt(problem, target, tokens)
    kernels = {"deal": KernelSpec.of("dequantize", "deal", None, block=128, threads=128)} if dealt else {}
    kernels["product"] = _product(problem, target, tokens, split=splits > 1, dealt=dealt)
    why = f"{tokens} tokens in a tile of matrix instructions, weights decoded in registers"
    if dealt:
        why += "; x is first put in the order in which threads find codes"
    if splits > 1:
        kernels["sum"] = _sum(problem)
        why += f"; k in {splits} splits, as tiles alone leave multiprocessors idle"
    return Plan.of(kernels, why, SOURCE, splits=splits)


def _in_two(problem: DequantProblem, target: Target) -> Plan:
    """Panels of rows of W are decoded, each of as many rows as the others up to a multiple of 256, and multiplied."""
    panels = -(-2 * problem.n * problem.k // PANEL[target.kind])
    panel = -(-problem.n // panels // 256) * 256
    same = problem.dtype == problem.out_dtype
    product = GemmProblem(
        batch=1,
        m=problem.m,
        n=min(panel, problem.n),
        k=problem.k,
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        transpose_a=False,
        transpose_b=True,
        batch_a="each",
        batch_b="each",
        bias=(problem.dtype if same else "float32") if problem.bias else None,
        activation=None,
        tf32=False,
        threads=problem.threads,
    )
    chosen = dense(product, target)
    why = f"many tokens: W decoded in panels of {panel} rows, then {chosen.why}"
    return Plan.of({"decode": _decode(problem, target), **dict(chosen.kernels)}, why, SOURCE, panel=panel)


def plan_backward(problem: DequantProblem, target: Target) -> Plan:
    """W is decoded, then multiplied by the gradient of the result."""
    product = GemmProblem(
        batch=1,
        m=problem.m,
        n=problem.k,
        k=problem.n,
        dtype=problem.dtype,
        out_dtype=problem.dtype,
        transpose_a=False,
        transpose_b=False,
        batch_a="each",
        batch_b="each",
        bias=None,
        activation=None,
        tf32=False,
        threads=problem.threads,
    )
    chosen = dense(product, target)
    why = f"all of W decoded, then {chosen.why}"
    return Plan.of({"decode": _decode(problem, target), **dict(chosen.kernels)}, why, SOURCE)


def _tokens(m: int, target: Target) -> int:
    least = TOKENS[0] if target.arch == "sm_90a" else TOKENS[1]  # MFMA has 16 columns; elsewhere one tile serves both
    return next((t for t in TOKENS if t >= max(m, least)), TOKENS[-1])


def _tile(target: Target, tokens: int, special: dict[tuple[str, int], Tile]) -> Tile:
    return special.get((target.arch, tokens)) or TILES.get((target.arch, tokens)) or TILES[target.kind, tokens]


def _special(problem: DequantProblem) -> dict[tuple[str, int], Tile]:
    """Tiles that come before those of TILES."""
    if problem.dtype == "int8":
        return INT8_TILES
    return LOOKED_UP_TILES if FORMATS[problem.format].table is not None else {}


def _arguments(problem: DequantProblem, target: Target, tokens: int) -> dict[str, Scalar]:
    """A tile as kernels take it. A warpgroup has 64 rows."""
    tile = _tile(target, tokens, _special(problem))
    return {"block_M": tokens, **asdict(tile), "threads": 2 * tile.block_N}


def _splits(problem: DequantProblem, target: Target, tokens: int) -> int:
    """The power of two, with at least 4 steps in each split, that gives the least bytes: those of W, times the rounds of
    blocks rounded up over what they are, and those of the parts."""
    tile = _tile(target, tokens, _special(problem))
    blocks = -(-problem.n // tile.block_N) * -(-problem.m // tokens)
    steps = -(-problem.k // tile.block_K)
    packed = problem.n * problem.k * FORMATS[problem.format].bits / 8 * PACE.get((target.arch, tokens), 1)

    def bytes_with(splits: int) -> float:
        rounds = blocks * splits / PROCESSORS.get(target.arch, 108)
        time = packed * ceil(rounds) / rounds * (ALONE if rounds <= 1 else 1)
        return time + (4 * splits * problem.m * problem.n + SUM_BYTES if splits > 1 else 0)

    return min((s for s in (1, 2, 4, 8, 16) if s == 1 or steps >= 4 * s), key=bytes_with)


def _dealt(problem: DequantProblem, target: Target, tokens: int) -> bool:
    """Whether x is dealt before it is multiplied: for integers of four bits, eight of which are a word, and tokens that fill
    a tile (33 of 64 took 91 us so, 77 us as they are)."""
    kind = FORMATS[problem.format]
    if kind.bits != 4 or kind.table is not None or problem.m % tokens:
        return False
    return problem.n * problem.k / 2 >= DEALT_BYTES.get((target.arch, tokens), inf)


def _decode(problem: DequantProblem, target: Target) -> KernelSpec:
    if target.kind == "cpu":
        return cpu.decode(problem, target)
    return KernelSpec.of("dequantize", "decode", None, **problem.codes(), rows=ROWS, block_W=256)


def _product(problem: DequantProblem, target: Target, tokens: int, split: bool, dealt: bool) -> KernelSpec:
    looked_up = FORMATS[problem.format].table is not None
    return KernelSpec.of(
        "dequantize",
        "product",
        {"tl.disable_staying_blocks": True} if target.arch == "sm_90a" else None,  # the table's figures are without
        **problem.codes(),
        out_dtype="float32" if split else problem.out_dtype,
        copies=COPIES.get(target.arch, 0) if looked_up else 0,
        dealt=dealt,
        **_arguments(problem, target, tokens),
    )


def _product_int8(problem: DequantProblem, by_planes: bool, tile: dict[str, Scalar]) -> KernelSpec:
    return KernelSpec.of(
        "dequantize",
        "product_int8",
        None,
        out_dtype=problem.out_dtype,
        bits=FORMATS[problem.format].bits,
        by_planes=by_planes,
        **tile,
    )


def _few_int8(problem: DequantProblem, target: Target) -> KernelSpec:
    heights = ROWS_OF_AMX if target.has("amx") else tuple(FEW_INT8)
    rows = next(rows for rows in heights if problem.m <= rows)
    block_N, block_K = FEW_INT8[rows]
    tile: dict[str, Scalar] = {"block_M": rows, "block_N": block_N, "block_K": block_K, "stages": 1, "threads": 128}
    return _product_int8(problem, True, tile)


def _one_int8(problem: DequantProblem) -> KernelSpec:
    bits = FORMATS[problem.format].bits
    width = next(least for least in ONE_INT8 if problem.k * bits // 32 >= least)
    return KernelSpec.of(
        "dequantize",
        "one_int8",
        None,
        out_dtype=problem.out_dtype,
        bits=bits,
        **ONE_INT8[width],
    )


def _sum(problem: DequantProblem) -> KernelSpec:
    return KernelSpec.of("dequantize", "sum_splits", dtype=problem.dtype, out_dtype=problem.out_dtype)


#: Formats with the group of their scales that wheels hold kernels for, and rows of x that together meet every tile.
#: A group of 0 are whole rows.
SHIPPED = (*product(("uint4", "int4"), (128, 64, 32, 0)), ("nf4", 64), ("fp4", 64), ("mxfp4", 32))
SHIPPED_ROWS = (1, 2, 4, *TOKENS, MANY)


def shipped_problems() -> Iterator[tuple[str, int, str]]:
    """Formats, their groups, and types of x that wheels hold kernels for."""
    return ((name, group, dtype) for (name, group), dtype in product(SHIPPED, ("float16", "bfloat16")))


def shipped(target: Target) -> Iterator[KernelSpec]:
    """4-bit weights against float16 and bfloat16 for any number of tokens, as GPTQ, AWQ, bitsandbytes and gpt-oss store them;
    weights of 2 and 4 bits against int8."""
    rounds = 256 * PROCESSORS.get(target.arch, 108)  # rows that are whole rounds of blocks, for which k is not split
    problems = [
        DequantProblem(m, n, k, name, group, dtype, dtype, name == "uint4", False)
        for m, (name, group, dtype) in product(SHIPPED_ROWS, shipped_problems())
        for n, k in ((512, 8192), (rounds, 2048), (4096, 32768), (rounds, 8192))  # x is dealt for the last two
    ]
    problems += [
        DequantProblem(m, 512, k, name, 0, "int8", "float32", False, False)
        for name, m, k in product(("int2", "int4"), SHIPPED_ROWS, (1024, 8192))  # short rows and long ones
    ]
    for problem in problems:
        yield from (spec for _, spec in plan(problem, target).kernels if spec.family == "dequantize")
