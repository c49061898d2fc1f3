"""Which kernel, with which tiles, does a product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

from .model import Division, Rates, best, whole
from .problem import BLOCK, GemmProblem


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
    ("sm_90a", "staying"): Tiles(128, 256, 128, 3, 256, 8),  # and a tile of the result beside them
    ("sm_90a", "wide"): Tiles(128, 192, 128, 4, 256, 16),
    ("sm_90a", "medium"): Tiles(128, 128, 128, 4, 256, 16),
    ("sm_90a", "small"): Tiles(64, 64, 128, 4, 128, 0),
    ("cuda", "large"): Tiles(128, 128, 64, 3, 128, 8),
    ("cuda", "small"): Tiles(64, 64, 64, 3, 128, 0),
    ("hip", "large"): Tiles(128, 128, 64, 2, 256, 8),
    ("hip", "small"): Tiles(64, 64, 64, 2, 256, 0),
    ("cpu", "large"): Tiles(256, 256, 1024, 0, 128, 0),
    ("cpu", "small"): Tiles(64, 64, 1024, 0, 128, 0),
    ("sm_90a", "thin"): Tiles(64, 128, 128, 4, 128, 0),
    ("cuda", "thin"): Tiles(16, 128, 128, 4, 128, 0),
    ("hip", "thin"): Tiles(16, 128, 64, 2, 256, 0),
    # One scale along n for each block, and two tiles of sums.
    ("sm_90a", "blocks"): Tiles(128, 128, 128, 4, 256, 8),
    ("cuda", "blocks"): Tiles(64, 128, 128, 2, 128, 8),
    ("hip", "blocks"): Tiles(64, 128, 128, 2, 256, 8),
    ("cpu", "blocks"): Tiles(64, 128, 128, 0, 128, 0),
}
#: What a tile of 16-bit elements, or of bytes, takes on a chip; for the others the rules of `plan` decide. Fitted to 24
#: shapes of a sweep on an H200 (docs/performance/cuda.md, "Products of any shape"): one wave of 64 steps, large to small,
#: 44, 35, 29, 26 and 23 us, of 256 steps 156, 120, 97, 88 and 73 us.
RATES = {
    ("sm_90a", "large"): Rates(0.62, 6.0, 132),
    ("sm_90a", "wide"): Rates(0.46, 6.5, 132),
    ("sm_90a", "medium"): Rates(0.36, 6.5, 132),
    ("sm_90a", "thin"): Rates(0.32, 5.5, 132),
    ("sm_90a", "small"): Rates(0.28, 6.0, 264),
}
#: Waves of large tiles from which on blocks stay: the loads of a tile begin under the stores of the one before. Measured
#: there, 0.89 to 0.98 of the time of a block for each tile from 1.8 waves on.
STAYING = 1
#: Waves of large tiles from which on no others are weighed: the last wave counts for little, the tiles' rate for all.
LONG = 3
#: Rows up to which a product is thin: it lasts as long as B takes to read.
THIN = 64
#: Rows that kernels of multiplications are written for; the least that holds all is taken. More are for matrix instructions.
GEMV_ROWS = (1, 2, 4, 8)
#: Most rows of them by kind. Measured on an H200, 16384 x 16384, float16: 1 row 0.133 ms against 0.175 by split matrix
#: instructions (torch 0.132), 4 rows 0.137 against 0.171, 8 rows 0.222 against 0.160 (22 November 2026).
FEW_ROWS = {"cpu": 8, "cuda": 4, "hip": 0}
#: Columns and rows of B that a CPU's block reads at once. Best of six for 1 and 4 rows of 4096 x 4096, float32 and bfloat16,
#: on a shared Sapphire Rapids: 8.6 to 13.9 GB/s, 8 rows of 1024 7.6 to 10.8 (22 November 2026).
COLUMNS, COLUMNS_STEP = 4096, 8
#: Blocks of columns and parts of k that a CPU's product of few rows has at least, for its cores.
CPU_BLOCKS = 16
#: Steps along k that a part of a split product has at least: fewer, and starting costs more than it brings.
PART_STEPS = 8
#: Blocks that fill half of a chip (of 132, 108, 304 multiprocessors, of a CPU's cores): fewer large tiles than this, and
#: small ones are taken.
ENOUGH = {"cuda": 66, "hip": 152, "cpu": 1}
ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "int8": 1, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1}


def plan(problem: GemmProblem, target: Target) -> Plan:
    """Large tiles where they fill the chip, else small ones; thin products by tiles of few rows, split along k if there
    are too few of them."""
    source = "table: TILES in gemm/configs.py"
    if problem.scales == "blocks":
        return Plan.of({"product": _spec(problem, target, "blocks")}, f"scales of {BLOCK} x {BLOCK} blocks", source)
    if kernels := _few_rows(problem, target):
        why = f"{problem.m} rows: B streams through registers"
        steps = max(1, -(-problem.k // COLUMNS_STEP))
        each = -(-steps // _cpu_parts(problem, steps))
        return Plan.of(kernels, why, "measured: FEW_ROWS in gemm/configs.py", splits=-(-steps // each), steps=each)
    if any(arch == target.arch for arch, _ in RATES) and ITEMSIZE[problem.dtype] <= 2:
        return _by_model(problem, target)
    if problem.m <= THIN and (target.kind, "thin") in TILES:
        tiles, division = _count(problem, _tiles(target, "thin")), _split(problem, target)
        if division.whole < tiles:
            why = f"{problem.m} rows, k in {division.parts} parts of {division.steps} steps"
            return _divided(problem, target, "thin", division, why, source)
        return Plan.of({"product": _spec(problem, target, "thin")}, f"{problem.m} rows", source)
    large = _tiles(target, "large")
    blocks = problem.batch * (problem.m // large.block_m) * (problem.n // large.block_n)
    size = "large" if blocks >= ENOUGH[target.kind] else "small"
    why = f"{size} tiles, {blocks} whole large ones"
    return Plan.of({"product": _spec(problem, target, size)}, why, source)


def _few_rows(problem: GemmProblem, target: Target) -> dict[str, KernelSpec] | None:
    """Kernels that multiply without matrix instructions: where B is read row by row, and on a CPU column by column too."""
    if problem.m > FEW_ROWS[target.kind]:
        return None
    plain = problem.batch == 1 and not (problem.transpose_a or problem.scales or problem.gradient)
    if not plain or problem.dtype not in ("float16", "bfloat16", "float32"):
        return None
    if problem.transpose_b:
        return {"gemv": _gemv_spec(problem, target.kind)}
    return {"parts": _columns_spec(problem), "combine": _combine_spec(problem)} if target.kind == "cpu" else None


def _cpu_parts(problem: GemmProblem, steps: int) -> int:
    blocks = -(-problem.n // COLUMNS)
    return max(1, min(CPU_BLOCKS // blocks, steps // PART_STEPS))


def _by_model(problem: GemmProblem, target: Target) -> Plan:
    """The tiles, and for plain products of one matrix their parts along k, that take least time by the model."""
    plain = _divisible(problem)
    long = _count(problem, _tiles(target, "large")) >= LONG * RATES[target.arch, "large"].slots
    found: dict[str, Division] = {}
    for arch, size in RATES:
        if arch != target.arch or (long and size != "large"):
            continue
        tiles, rates = _tiles(target, size), RATES[arch, size]
        count, steps, area = _count(problem, tiles), _steps(problem, tiles), tiles.block_m * tiles.block_n
        found[size] = best(count, steps, area, rates) if plain and not long else whole(count, steps, rates)
    size, chosen = min(found.items(), key=lambda item: item[1].microseconds)
    source = "model: RATES in gemm/configs.py"
    tiles, rates = _tiles(target, size), RATES[target.arch, size]
    count, steps = _count(problem, tiles), _steps(problem, tiles)
    waves = f"{count} {size} tiles where {rates.slots} run at once"
    if chosen.whole == count > STAYING * rates.slots and plain and size == "large" and _is_narrow(problem):
        why = f"{waves}, by blocks that stay: {chosen.microseconds:.0f} us"
        return Plan.of({"staying": _staying_spec(problem, target)}, why, source)
    if chosen.whole == count:
        return Plan.of({"product": _spec(problem, target, size)}, f"{waves}: {chosen.microseconds:.0f} us", source)
    alone = whole(count, steps, rates).microseconds
    why = (
        f"{waves}: {chosen.whole} whole ones, the others in {chosen.parts} parts along k, {chosen.microseconds:.0f} us "
    )
    return _divided(problem, target, size, chosen, why + f"(all whole: {alone:.0f})", source)


def _divided(problem: GemmProblem, target: Target, size: str, division: Division, why: str, source: str) -> Plan:
    tiles = _tiles(target, size)
    return Plan.of(
        _split_specs(problem, target, size),
        why,
        source,
        whole=division.whole,
        parts=division.parts,
        steps=division.steps,
        pieces=division.pieces(_count(problem, tiles)),
        block_m=tiles.block_m,
        block_n=tiles.block_n,
    )


def _is_narrow(problem: GemmProblem) -> bool:
    """Whether a tile of the result fits into shared memory beside the stages."""
    return problem.out_dtype in ("float16", "bfloat16")


def _divisible(problem: GemmProblem) -> bool:
    """Whether `split_matmul` can do it."""
    return problem.batch == 1 and not (problem.scales or problem.gradient or problem.dtype == "int8")


def _count(problem: GemmProblem, tiles: Tiles) -> int:
    return problem.batch * -(-problem.m // tiles.block_m) * -(-problem.n // tiles.block_n)


def _steps(problem: GemmProblem, tiles: Tiles) -> int:
    return -(-problem.k * ITEMSIZE[problem.dtype] // tiles.step_bytes)


def _split(problem: GemmProblem, target: Target) -> Division:
    """Thin tiles, all of them in as many parts as fill the chip twice."""
    tiles = _tiles(target, "thin")
    steps, count = _steps(problem, tiles), _count(problem, tiles)
    parts = max(1, min(4 * ENOUGH[target.kind] // count, steps // PART_STEPS)) if _divisible(problem) else 1
    each = max(1, -(-steps // parts))
    return Division(0 if parts > 1 else count, -(-steps // each), each, 0.0)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Plain products of one matrix, or of as many on both sides, by b or by a transposed b (a layer's weight)."""
    own = target.arch if (target.arch, "large") in TILES else target.kind
    sizes = [size for name, size in TILES if name == own and size not in ("blocks", "staying")]
    for dtype, transpose_b, size in product(("float16", "bfloat16", "float32"), (False, True), sizes):
        if size in ("wide", "medium") and ITEMSIZE[dtype] > 2:
            continue  # `_by_model` alone takes these
        problem = GemmProblem(1, 1, 1, 1, dtype, dtype, False, transpose_b, "each", "each", None, None, False)
        yield _spec(problem, target, size)
        for rows in GEMV_ROWS:
            yield from (_few_rows(replace(problem, m=rows), target) or {}).values()
        if size == "thin" or ((target.arch, size) in RATES and ITEMSIZE[dtype] <= 2):
            yield from _split_specs(problem, target, size).values()
        if (target.arch, "staying") in TILES and size == "large" and _is_narrow(problem):
            yield _staying_spec(problem, target)


def _tiles(target: Target, size: str) -> Tiles:
    return TILES.get((target.arch, size)) or TILES[target.kind, size]


def _spec(problem: GemmProblem, target: Target, size: str) -> KernelSpec:
    return KernelSpec.of(
        "gemm",
        "matmul",
        _options(problem, target),
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        transpose_a=problem.transpose_a,
        transpose_b=problem.transpose_b,
        batch_a=problem.batch_a,
        batch_b=problem.batch_b,
        scales=problem.scales,
        bias=_bias(problem),
        gradient=problem.activation if problem.gradient else None,
        **_tiles(target, size).arguments(ITEMSIZE[problem.dtype]),
    )


def _bias(problem: GemmProblem) -> str | None:
    """The type of the vector that kernels take, which is empty where there is no bias. Integers have none."""
    return None if problem.out_dtype == "int32" else problem.bias or problem.out_dtype


def _split_specs(problem: GemmProblem, target: Target, size: str) -> dict[str, KernelSpec]:
    ends = {"out_dtype": problem.out_dtype, "bias": _bias(problem)}
    tiles = _tiles(target, size)
    parts = KernelSpec.of(
        "gemm",
        "split_matmul",
        _options(problem, target),
        dtype=problem.dtype,
        transpose_a=problem.transpose_a,
        transpose_b=problem.transpose_b,
        **ends,
        **replace(tiles, panel=max(1, tiles.panel)).arguments(ITEMSIZE[problem.dtype]),
    )
    areas = {"block_m": tiles.block_m, "block_n": tiles.block_n, "panel": max(1, tiles.panel)}
    return {"parts": parts, "finish": KernelSpec.of("gemm", "finish", None, **ends, **areas)}


def _staying_spec(problem: GemmProblem, target: Target) -> KernelSpec:
    return KernelSpec.of(
        "gemm",
        "staying_matmul",
        _options(problem, target),
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        transpose_a=problem.transpose_a,
        transpose_b=problem.transpose_b,
        bias=_bias(problem),
        blocks=RATES[target.arch, "large"].slots,
        **_tiles(target, "staying").arguments(ITEMSIZE[problem.dtype]),
    )


def _combine_spec(problem: GemmProblem) -> KernelSpec:
    return KernelSpec.of(
        "gemm",
        "combine",
        out_dtype=problem.out_dtype,
        bias=_bias(problem),
        block_n=512,
    )


def _gemv_spec(problem: GemmProblem, kind: str) -> KernelSpec:
    """On a GPU two rows of B by 16 bytes twice for each thread. On a CPU eight rows by 64: of seven shapes none was better for
    1, 2 and 4 rows of 4096 x 4096 in float32 and bfloat16 on a shared Sapphire Rapids (7.6 to 13.8 GB/s); 1 to 4 rows at
    once are slower (22 November 2026)."""
    rows = next(r for r in GEMV_ROWS if problem.m <= r)
    vector = 16 // ITEMSIZE[problem.dtype]
    gpu = {"block_n": 2, "block_k": 256 * vector, "lanes": 256, "vector": vector, "threads": 128}
    return KernelSpec.of(
        "gemm",
        "gemv_rows" if kind == "cpu" else "gemv",
        None,
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        bias=_bias(problem),
        rows=rows,
        **({"block_n": 8, "block_k": 64} if kind == "cpu" else gpu),
    )


def _columns_spec(problem: GemmProblem) -> KernelSpec:
    rows = next(r for r in GEMV_ROWS if problem.m <= r)
    return KernelSpec.of(
        "gemm", "gemv_columns", None, dtype=problem.dtype, rows=rows, block_n=COLUMNS, block_k=COLUMNS_STEP
    )


def _options(problem: GemmProblem, target: Target) -> dict[str, Scalar] | None:
    return {"tl.allow_tf32": True} if problem.tf32 and target.kind == "cuda" else None
