"""Which kernel, with which tiles, does a product."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tile_ops.gemm_halves import configs as halves
from tile_ops.gemm_halves.tile import Tile as HalvesTile
from tile_ops.gemm_in_place import configs as in_place
from tile_ops.gemm_pairs import configs as pairs
from tile_ops.gemm_panels import configs as panels
from tile_ops.gemm_thin import configs as thin
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

from . import few_rows, padding
from .chips import ALONE, RATES, TILES
from .model import Division, Rates, best, least, staying, whole
from .problem import BLOCK, FLOAT8, GemmProblem
from .tiles import (
    ITEMSIZE,
    Tiles,
    all_tiles_of_a_cpu,
    padding_of_a_cpu,
    tiles_of_a_cpu,
)

#: Of halves by "tiny" tiles, which no wgmma multiplies: products of whole rows with so many tiles and steps at most. Elsewhere
#: microseconds of a beginning and end, of a step and a result by single elements, where so many blocks run at once: less than
#: what else is done there takes (padding.py). An H200, us, two events around a call, so, by the best of the others, by cuBLAS:
#: 64x448x128 6.2, 7.2, 6.7, 16x1024x1024 9.4, 9.7, 8.7; 14 of 24x36x32 6.7, 8.4, 7.0, 18x454x32 6.8, 9.2, 7.1, 197x452x244
#: 10.4, 13.9, 9.5, 100x7622x1 10.5, 13.7, 8.0, 100x1000x100 8.4, 11.2, 8.6. Tiles of 32x32, 16x64, 64x32 are as good or up to
#: a sixth slower, of 16x16 and 16x128 up to a half; 23 of 181x233x160 as a kernel 19.4, 14.9, 11.9 (30 November 2026).
TINY_WHOLE_TILES, TINY_WHOLE_STEPS = 264, 2
#: The same of float32 that is not rounded, whole rows or not: us, so, by the best of the others, by cuBLAS, 2 of 36x202x8 6.8,
#: 8.7, 7.3, 36x8x202 13.4, 23.5, 12.8, 160x6x208 13.6, 23.8, 12.6, 8 of 32x32x88 7.1, 10.9, 9.4, 100x1000x100 8.3, 13.3, 10.3;
#: but 157x715x480 28.1, 21.5, 16.7, 157x480x715 33.8, 20.9, 16.9.
TINY_ALONE_TILES, TINY_ALONE_STEPS = 264, 8
TINY_START, TINY_STEP, TINY_STORED, TINY_BLOCKS = 1.5, 1.25, 0.8, 528
#: Waves from which on blocks stay: the loads of a tile begin under the stores of the one before. Measured, of the time of
#: a block for each tile: 0.89 to 0.98 for large ones from 1.8 waves on, 0.95 to 0.985 for 256 x 160.
STAYING = 1
#: Tiles by which blocks stay, and the tiles that take the place of them there.
STAYERS = {"large": "staying8", "256x160": "256x160"}
#: Steps along k up to which the model counts what blocks that stay, with a tile of the result beside the stages, save: all that a
#: tile of a short sum takes is its beginning and its end. Microseconds of such a turn. Measured on an H200, us, by blocks that
#: stay, by the best of twelve tiles with a block each, by cuBLAS: 8192x4096x16 27.5, 45.5, 28.7, 8192x4096x64 25.3, 42.5, 27.7,
#: 2800x11328x144 32.7, 53.6, 36.1 (30 November 2026).
SHORT, TURN = 4, 1.65
#: Of the time of whole tiles: what blocks that stay must come below with their last tiles in parts. Measured: where the model
#: sees 0.96 or less, 0.95 to 0.96; where it sees 0.98, 1.00 to 1.01 (cuda.md, "Products of any shape").
CLEAR = 0.96
#: Waves of large tiles from which on no others are weighed: the last wave counts for little, the tiles' rate for all.
LONG = 8
#: Elements of a tile that is cut along k at most: the parts of larger ones cost more than they bring.
CUT = 128 * 128
#: Tiles of products that an activation's gradient is made of: few, as they are kernels of their own.
SLOPES = ("large", "128x128", "small")
#: Those of sm_90a where B is read row by row: with "large" ones, registers do not hold the gradient beside the sums and the
#: addresses of the variant for operands at any address.
SLOPES_BY_ROWS = ("128x192", "128x128", "small")
#: Those of sm_90a for tf32. Steps of 128 bytes take as long as those of halves, whose RATES they have.
TF32 = ("large", "128x192", "128x128", "64x128", "small")
#: tf32 by matrices of which neither has contiguous rows along k: from so many rows and columns, and so many products, on
#: a copy of the smaller one that has costs less than warps lose that multiply without `wgmma` (512 x 512 x 512 10 us, with a
#: copy 19; 1024 x 1024 x 1024 24 and 15).
TURNED, TURNED_PRODUCTS = 64, 1 << 30
TRANSPOSE = KernelSpec.of("gemm", "transpose", None, dtype="float32")
#: Types of scaled bytes that wheels hold products of, where matrix instructions take them.
SHIPPED_FLOAT8 = {"sm_89": "float8_e4m3fn", "sm_90a": "float8_e4m3fn", "gfx942": "float8_e4m3fnuz"}


def plan(problem: GemmProblem, target: Target) -> Plan:
    """On GPUs the tiles that take least time by a model; on CPUs panels for large products, else tiles by the rows. Few rows
    go without matrix instructions."""
    if problem.scales == "blocks":
        product = _spec(problem, target, _tiles(problem, target, "blocks"))
        return Plan.of({"product": product}, f"scales of {BLOCK} x {BLOCK} blocks", "table: TILES in gemm/chips.py")
    if (of_sums := _scaled_sums(problem, target)) is not None:
        return of_sums
    if (pair := _pairs(problem, target)) is not None:
        why = f"{problem.m} x {problem.n} by tiles of {pair.block_m} x {pair.block_n}, each number as two of bfloat16"
        why += ", as the transpose of c" if pair.transposed else ""
        return Plan.of(_kernels_of_pairs(problem, pair), why, "measured: TILES in gemm_pairs/configs.py", **vars(pair))
    if _is_column(problem, target):
        ends = (problem.dtype, problem.out_dtype, few_rows.bias(problem) or problem.out_dtype)
        batches = (problem.batch_a, problem.batch_b)
        kernel = in_place.column(target, problem.k, *ends, problem.transpose_a, batches)
        return Plan.of(
            {"direct": kernel}, "one column: sums of a where it lies", "measured: COLUMN in gemm_in_place/configs.py"
        )
    if _is_shallow(problem, target):
        turned, batches = (problem.transpose_a, problem.transpose_b), (problem.batch_a, problem.batch_b)
        why = f"{problem.k} steps along k: c's rows are written one by one"
        direct = in_place.shallow(problem.k, turned, batches)
        return Plan.of({"direct": direct}, why, "measured: SHALLOW in gemm_in_place/configs.py")
    half = _halves(problem, target)
    few = None if half is not None and half.transposed else _few_in_place(problem, target)
    if (tile := few) is not None:
        of_types = (problem.dtype, problem.out_dtype, few_rows.bias(problem) or problem.out_dtype)
        why = f"{problem.m} rows: b is read once, where it lies"
        direct = in_place.kernel_of_few(target, tile, *of_types, (problem.batch_a, problem.batch_b))
        return Plan.of({"direct": direct}, why, "measured: ROWS in gemm_in_place/configs.py")
    if (tile := _tile_in_place(problem, target)) is not None:
        turned, batches = (problem.transpose_a, problem.transpose_b), (problem.batch_a, problem.batch_b)
        why = f"{problem.m} x {problem.n} by register tiles of a and b where they lie"
        return Plan.of({"direct": in_place.kernel(tile, *turned, *batches)}, why, "rule: gemm_in_place/configs.py")
    if half is not None:
        why = f"{problem.m} x {problem.n} by tiles of {half.block_m} x {half.block_n}, a and b where they lie"
        why += ", as the transpose of c" if half.transposed else ""
        return Plan.of(_kernels_of_halves(problem, half), why, "measured: gemm_halves/configs.py", **vars(half))
    if (found := _thin(problem, target)) is not None:
        return found
    if _is_turned(problem, target):
        b_is_smaller = problem.n < problem.m
        along_k = plan(replace(problem, transpose_a=b_is_smaller, transpose_b=b_is_smaller), target)
        why = f"{'b' if b_is_smaller else 'a'} gets contiguous rows along k, then {along_k.why}"
        kernels = {"transpose_b" if b_is_smaller else "transpose_a": TRANSPOSE, **dict(along_k.kernels)}
        return Plan.of(kernels, why, along_k.source, **dict(along_k.numbers))
    if kernels := _few_rows(problem, target):
        why = f"{problem.m} rows: " + ("scalar products" if "product" in kernels else "B streams through registers")
        return Plan.of(kernels, why, "measured: FEW_ROWS in gemm/few_rows.py", **few_rows.numbers(problem))
    if target.kind == "cpu":
        return _on_cpu(problem, target)
    if _is_tiny(problem, target):
        tiles = _tiles(problem, target, "tiny")
        why = f"{_count(problem, tiles)} tiny tiles"
        return Plan.of({"product": _spec(problem, target, tiles)}, why, "measured: TINY_START in gemm/configs.py")
    by_tiles, copies = _by_model(problem, target), padding.kernels(problem, target)
    why = f"{by_tiles.why}; rows get places at multiples of {padding.ROW} bytes" if copies else by_tiles.why
    return replace(by_tiles, kernels=(*by_tiles.kernels, *copies.items()), why=why)


def _is_column(problem: GemmProblem, target: Target) -> bool:
    """Whether a CPU multiplies by one column, which lies along k."""
    floats = problem.dtype in ("float16", "bfloat16", "float32") and not (problem.scales or problem.gradient)
    return target.kind == "cpu" and floats and problem.n == 1 < problem.m * problem.batch and problem.transpose_b


def _is_shallow(problem: GemmProblem, target: Target) -> bool:
    """Whether a CPU has as good as nothing to add up."""
    if target.kind != "cpu" or not problem.k or not _is_plain_float32(problem):
        return False
    ended = problem.bias is not None or problem.activation is not None
    return in_place.is_shallow(problem.m, problem.n, problem.k, ended)


def _is_plain_float32(problem: GemmProblem) -> bool:
    return problem.dtype == problem.out_dtype == "float32" and not (problem.scales or problem.gradient)


def _thin(problem: GemmProblem, target: Target) -> Plan | None:
    """One column, or few rows, on a GPU."""
    bias, source = few_rows.bias(problem) or problem.out_dtype, "measured: gemm_thin/configs.py"
    if thin.is_column(problem, target):
        return Plan.of({"direct": thin.column(problem, bias)}, "one column: sums of a's rows", source)
    if thin.is_row(problem, target):
        kernels, numbers = {"parts": thin.row(problem), "combine": few_rows.combine(problem)}, thin.parts(problem)
        return Plan.of(kernels, f"{problem.m} rows: b is read down its columns", source, **numbers)
    return None


def _is_tiny(problem: GemmProblem, target: Target) -> bool:
    """Whether the smallest tiles take least time."""
    if not _has_tiny(problem, target):
        return False
    tiles = _tiles(problem, target, "tiny")
    count, steps = _count(problem, tiles), _steps(problem, tiles)
    if problem.dtype == "float32":
        return count <= TINY_ALONE_TILES and steps <= TINY_ALONE_STEPS
    if padding.is_whole(problem):
        return count <= TINY_WHOLE_TILES and steps <= TINY_WHOLE_STEPS
    time = TINY_START + max(1.0, count / TINY_BLOCKS) * (steps * TINY_STEP + TINY_STORED)
    return time < min(padding.alone(problem), padding.copied(problem) if problem.batch == 1 else math.inf)


def _has_tiny(problem: GemmProblem, target: Target) -> bool:
    """Whether there are such tiles for it."""
    plain = not (problem.scales or problem.gradient or problem.tf32)
    return target.arch == "sm_90a" and problem.dtype in thin.FLOATS and plain


def _scaled_sums(problem: GemmProblem, target: Target) -> Plan | None:
    """On a CPU the product of integers where they lie, then what scales it: 1x4096x4096 T on an EPYC 0.31 ms, by copied tiles
    that do both 1.37 (torch 0.31 to 0.45), 1024x1024x1024 T 2.55, 2.88 (2.82)."""
    if target.kind != "cpu" or problem.scales is None or problem.dtype != "int8":
        return None
    sums = plan(replace(problem, scales=None, bias=None, activation=None, out_dtype="int32"), target)
    if "product" in dict(sums.kernels):
        return None
    kernels = {**dict(sums.kernels), "scaled": few_rows.scaled(problem)}
    return Plan.of(kernels, f"{sums.why}; then the scales", sums.source, **dict(sums.numbers))


def _on_cpu(problem: GemmProblem, target: Target) -> Plan:
    if (chosen := _panels(problem, target)) is not None:
        why = f"{problem.m} rows by panels of b, of which {chosen.block_m} share each"
        return Plan.of(_panel_kernels(problem, chosen), why, "measured: gemm_panels/configs.py", **vars(chosen))
    m, n, k_bytes = problem.m, problem.n, problem.k * ITEMSIZE[problem.dtype]
    tiles = tiles_of_a_cpu(target, problem.dtype, m, n, k_bytes, problem.transpose_b, problem.gradient)
    why = f"{m} x {n} by tiles of {tiles.block_m} x {tiles.block_n}"
    return Plan.of({"product": _spec(problem, target, tiles)}, why, "measured: LIMITS in gemm/tiles.py")


def _few_in_place(problem: GemmProblem, target: Target) -> in_place.Tile | None:
    plain = not (problem.transpose_a or problem.scales or problem.gradient)
    known = problem.dtype in ("float16", "bfloat16", "float32", "int8")
    if target.kind != "cpu" or not (plain and known and problem.transpose_b) or few_rows.of_large(problem, target):
        return None
    return in_place.few(target, problem.dtype, problem.m, problem.n, problem.k, problem.batch)


def _halves(problem: GemmProblem, target: Target) -> HalvesTile | None:
    if problem.scales or problem.gradient:
        return None
    sizes, turned = (problem.m, problem.n, problem.k), (problem.transpose_a, problem.transpose_b)
    plain = problem.bias is None and problem.activation is None and problem.out_dtype in halves.AT_ONCE
    return halves.tile(target, problem.dtype, *sizes, turned, problem.threads, problem.batch, plain)


def _kernels_of_halves(problem: GemmProblem, chosen: HalvesTile) -> dict[str, KernelSpec]:
    turned, batches = (problem.transpose_a, problem.transpose_b), (problem.batch_a, problem.batch_b)
    bias = few_rows.bias(problem) or problem.out_dtype
    return halves.kernels(chosen, problem.dtype, problem.out_dtype, bias, turned, batches)


def _pairs(problem: GemmProblem, target: Target) -> HalvesTile | None:
    if problem.scales or problem.gradient:
        return None
    sizes, turned = (problem.m, problem.n, problem.k), (problem.transpose_a, problem.transpose_b)
    return pairs.tile(target, problem.dtype, problem.out_dtype, *sizes, turned)


def _kernels_of_pairs(problem: GemmProblem, chosen: HalvesTile) -> dict[str, KernelSpec]:
    turned, batches = (problem.transpose_a, problem.transpose_b), (problem.batch_a, problem.batch_b)
    return pairs.kernels(chosen, problem.out_dtype, few_rows.bias(problem) or problem.out_dtype, turned, batches)


def _tile_in_place(problem: GemmProblem, target: Target) -> in_place.Tile | None:
    plain = problem.dtype == problem.out_dtype == "float32" and not problem.gradient
    if target.kind != "cpu" or not plain:
        return None
    m, n, k = problem.m, problem.n, problem.k
    alone = problem.batch == 1 and problem.transpose_b and not (problem.transpose_a or problem.scales)
    if alone and (found := in_place.small(target, m, n, k)) is not None:
        return found
    by_panels = _panels(problem, target) is not None
    return in_place.tile(target, m, n, k, problem.transpose_b, by_panels, problem.batch, problem.transpose_a)


def _few_rows(problem: GemmProblem, target: Target) -> dict[str, KernelSpec]:
    """Kernels that multiply without matrix instructions, by their role; none where these are better."""
    if not few_rows.suits(problem, target):
        return {}
    tiles = few_rows.dot_tiles(problem, target)
    return few_rows.kernels(problem, target) if tiles is None else {"product": _spec(problem, target, tiles)}


def _panels(problem: GemmProblem, target: Target) -> panels.Tile | None:
    """Of any matrices; those whose sums are not the result, of one."""
    other_sums = problem.out_dtype not in ("float32", "int32")
    if problem.scales or problem.gradient or (other_sums and problem.batch > 1):
        return None
    m, n, k = problem.m, problem.n, problem.k
    turned = problem.transpose_a, problem.transpose_b
    return panels.tile(target, problem.dtype, m, n, k, problem.threads, problem.batch, turned)


def _panel_kernels(problem: GemmProblem, chosen: panels.Tile) -> dict[str, KernelSpec]:
    """Another type of the result takes a kernel of its own."""
    turned, batches = (problem.transpose_a, problem.transpose_b), (problem.batch_a, problem.batch_b)
    found = {"panels": panels.kernel(chosen, *turned, *batches, problem.dtype)}
    if problem.out_dtype not in ("float32", "int32"):
        found["combine"] = few_rows.combine(problem)
    return found


def _by_model(problem: GemmProblem, target: Target) -> Plan:
    """The tiles, and for plain products of one matrix their parts along k, that take least time by the model."""
    known = _rates(problem, target)
    large = "large" in known and _suits(problem, target, "large")
    long = large and _count(problem, _tiles(problem, target, "large")) >= LONG * known["large"].slots
    found: dict[str, Division] = {}
    cut: dict[str, Division] = {}  # of blocks that stay
    for size, rates in known.items():
        tiles = _tiles(problem, target, size)
        if (long and size != "large") or not _suits(problem, target, size):
            continue
        count, steps, area = _count(problem, tiles), _steps(problem, tiles), tiles.block_m * tiles.block_n
        bytes_read = (problem.m + problem.n) * problem.k * problem.batch * ITEMSIZE[problem.dtype]
        if (
            steps <= SHORT
            and count > STAYING * rates.slots
            and _stays(problem, target, size)
            and _staged(problem, size)
        ):
            found[size] = staying(count, steps, rates, TURN, bytes_read)
        elif _divisible(problem) and area <= CUT:
            found[size] = best(count, steps, area, rates, bytes_read)
        else:
            found[size] = whole(count, steps, rates, bytes_read)
        if count > STAYING * rates.slots and _divisible(problem) and _stays(problem, target, size):
            division = least(count, steps, area, rates, bytes_read)
            cut |= {size: division} if division is not None else {}
    size, chosen = min(found.items(), key=lambda item: item[1].microseconds)
    other, division = min(cut.items(), key=lambda item: item[1].microseconds, default=(size, chosen))
    stays = division.microseconds < CLEAR * chosen.microseconds
    if stays:
        size, chosen = other, division
    source = "model: RATES in gemm/chips.py"
    tiles, rates = _tiles(problem, target, size), known[size]
    count, steps = _count(problem, tiles), _steps(problem, tiles)
    waves = f"{count} {size} tiles where {rates.slots} run at once"
    if chosen.whole == count:
        why = f": {chosen.microseconds:.0f} us"
        if cut:
            why += f" ({other} ones, the last in {division.parts} parts along k: {division.microseconds:.0f})"
        if count > STAYING * rates.slots and _stays(problem, target, size):
            kernels = {"staying": _staying_spec(problem, target, size)}
            return Plan.of(kernels, f"{waves}, by blocks that stay{why}", source)
        return Plan.of({"product": _spec(problem, target, _tiles(problem, target, size))}, waves + why, source)
    alone = whole(count, steps, rates).microseconds
    why = (
        f"{waves}{', by blocks that stay' if stays else ''}: {chosen.whole} whole ones, the others in {chosen.parts} parts "
        f"along k, {chosen.microseconds:.0f} us (all whole: {alone:.0f})"
    )
    return _divided(problem, target, size, chosen, stays, why, source)


def _divided(
    problem: GemmProblem, target: Target, size: str, division: Division, stays: bool, why: str, source: str
) -> Plan:
    tiles = _tiles(problem, target, size)
    return Plan.of(
        _split_specs(problem, target, size, stays),
        why,
        source,
        whole=division.whole,
        parts=division.parts,
        steps=division.steps,
        pieces=division.pieces(_count(problem, tiles)),
        block_m=tiles.block_m,
        block_n=tiles.block_n,
    )


def _row(target: Target) -> str:
    """Under which name the tables have a target: its architecture, or its kind."""
    return target.arch if (target.arch, "large") in TILES else target.kind


def _rates(problem: GemmProblem, target: Target) -> dict[str, Rates]:
    """The tiles that there are for such a product."""
    if _alone(problem, target):
        return ALONE[problem.transpose_a, problem.transpose_b]
    return {size: rates for (arch, size), rates in RATES.items() if arch == _row(target)}


def _alone(problem: GemmProblem, target: Target) -> bool:
    """Whether no matrix instruction of a chip with tiles for that takes the operands."""
    return target.arch == "sm_90a" and problem.dtype == "float32" and not problem.tf32


def _suits(problem: GemmProblem, target: Target, size: str) -> bool:
    """Whether a GPU's tile is for these types, and rows of B's are whole units of bulk copies: 128 bytes, of a B that is read
    row by row any number."""
    if problem.gradient and size not in _slopes(problem, target):
        return False
    if _by_warpgroups(problem, target) and not problem.gradient:
        return size in TF32
    if size in ("large", "small", "thin") or size.startswith("alone") or problem.gradient:
        return True
    itemsize = ITEMSIZE[problem.dtype]
    return itemsize <= 2 and (problem.transpose_b or _tiles(problem, target, size).block_n * itemsize % 128 == 0)


def _by_warpgroups(problem: GemmProblem, target: Target) -> bool:
    """Whether `wgmma` takes these operands of tf32: one of them along k."""
    return target.arch == "sm_90a" and problem.tf32 and (problem.transpose_b or not problem.transpose_a)


def _is_turned(problem: GemmProblem, target: Target) -> bool:
    """Whether one of the operands is copied first."""
    across = problem.transpose_a and not problem.transpose_b and target.arch == "sm_90a"
    large = min(problem.m, problem.n) >= TURNED and problem.m * problem.n * problem.k >= TURNED_PRODUCTS
    return across and problem.tf32 and large and not problem.gradient


def _slopes(problem: GemmProblem, target: Target) -> tuple[str, ...]:
    """The tiles of SLOPES. The gradient that multiplies them lies in registers beside the sums: on NVIDIA two large tiles of
    4 bytes are too many, and where no matrix instruction makes the sums, each row of a thread has an address too."""
    if target.kind != "cuda" or ITEMSIZE[problem.out_dtype] <= 2:
        return SLOPES_BY_ROWS if target.arch == "sm_90a" and not problem.transpose_b else SLOPES
    return SLOPES[1:] if problem.tf32 else ("small", "alone 64x64", "alone 32x128")


def _stays(problem: GemmProblem, target: Target, size: str) -> bool:
    """Whether `staying_matmul` can do it, by such tiles."""
    plain = problem.batch == 1 and not problem.gradient and problem.dtype != "int8"
    scaled = problem.scales is not None and problem.dtype in FLOAT8
    narrow = problem.out_dtype in ("float16", "bfloat16")
    known = target.arch == "sm_90a" and size in STAYERS and _suits(problem, target, size)
    return known and plain and narrow and (problem.scales is None or scaled)


def _divisible(problem: GemmProblem) -> bool:
    """Whether `split_matmul` can do it."""
    return problem.batch == 1 and not (problem.scales or problem.gradient or problem.dtype == "int8")


def _count(problem: GemmProblem, tiles: Tiles) -> int:
    return problem.batch * -(-problem.m // tiles.block_m) * -(-problem.n // tiles.block_n)


def _steps(problem: GemmProblem, tiles: Tiles) -> int:
    return -(-problem.k * ITEMSIZE[problem.dtype] // tiles.step_bytes)


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Products of one matrix, or of as many on both sides, by b or by a transposed b (a layer's weight), and what training
    such a layer takes: the gradient of its weight, by a transposed a, and the slopes of its activation. By a transposed b
    also halves with a result of float32, bytes, and scaled bytes."""
    orders = ((False, False), (False, True), (True, False))
    for dtype, (transpose_a, transpose_b) in product(("float16", "bfloat16", "float32"), orders):
        problem = GemmProblem(1, 1, 1, 1, dtype, dtype, transpose_a, transpose_b, "each", "each", None, None, False)
        yield from _shipped(problem, target)
        yield from () if transpose_a else _shipped_slopes(replace(problem, gradient=True), target)
        if target.kind == "cuda" and dtype == "float32":
            yield from _shipped(replace(problem, tf32=True), target)
        if target.arch == "sm_90a" and dtype == "float32" and transpose_a:
            yield TRANSPOSE
            yield from _shipped(replace(problem, tf32=True, transpose_b=True), target)
    layer = GemmProblem(1, 1, 1, 1, "int8", "int32", False, True, "each", "each", None, None, False)
    yield from _shipped(layer, target)
    if target.kind == "cpu":
        yield from (few_rows.scaled(replace(layer, out_dtype=dtype)) for dtype in ("float32", "float16", "bfloat16"))
    for dtype in ("float16", "bfloat16"):
        yield from _shipped(replace(layer, dtype=dtype, out_dtype="float32"), target)
    if target.arch in SHIPPED_FLOAT8:
        scaled = replace(layer, dtype=SHIPPED_FLOAT8[target.arch], out_dtype="bfloat16")
        yield from _shipped(replace(scaled, scales="rows"), target)
        yield _spec(replace(scaled, scales="blocks"), target, _tiles(problem, target, "blocks"))
    for problem in thin.shipped_calls(target):
        yield from (spec for _, spec in plan(problem, target).kernels)
    if target.kind == "cuda":
        yield from (padding.kernel(dtype) for dtype in ("float16", "bfloat16", "float32"))
    yield from panels.shipped(target)
    yield from in_place.shipped(target)
    yield from halves.shipped(target)
    yield from pairs.shipped(target)


def _shipped(problem: GemmProblem, target: Target) -> Iterator[KernelSpec]:
    """All kernels that products of such types and orders may take."""
    for m, n, k in few_rows.SHIPPED:
        yield from _few_rows(replace(problem, m=m, n=n, k=k), target).values()
    for tiles in all_tiles_of_a_cpu(target, problem.transpose_b) if target.kind == "cpu" else ():
        yield _spec(problem, target, tiles)
    for size in _rates(problem, target):
        tiles = _tiles(problem, target, size)
        if _suits(problem, target, size):
            yield _spec(problem, target, tiles)
            if tiles.block_m * tiles.block_n <= CUT and _divisible(problem):
                yield from _split_specs(problem, target, size).values()
    if _has_tiny(problem, target):
        yield _spec(problem, target, _tiles(problem, target, "tiny"))
    for size in STAYERS:
        if _stays(problem, target, size):
            yield _staying_spec(problem, target, size)
            if _divisible(problem):
                yield from _split_specs(problem, target, size, stays=True).values()


def _shipped_slopes(problem: GemmProblem, target: Target) -> Iterator[KernelSpec]:
    """Those for gradients of activations."""
    for tiles in all_tiles_of_a_cpu(target, problem.transpose_b, gradient=True) if target.kind == "cpu" else ():
        yield _spec(problem, target, tiles)
    for size in _rates(problem, target):
        if _suits(problem, target, size):
            yield _spec(problem, target, _tiles(problem, target, size))


def _tiles(problem: GemmProblem, target: Target, size: str) -> Tiles:
    """Of tf32 by a b that is read row by row, `wgmma` makes the transpose of C."""
    found = TILES.get((target.arch, size)) or TILES[target.kind, size]
    if _by_warpgroups(problem, target) and not problem.transpose_b:
        return replace(found, block_m=found.block_n, block_n=found.block_m)
    return found


def _held(tiles: Tiles, problem: GemmProblem, target: Target) -> Tiles:
    """With as many stages as fit. Bytes of an operand that is not contiguous along k are no matrix that tensor cores load as
    it lies: their tiles have rows 16 bytes apart where no bulk copy can fill them. tf32 by warps and a b that is not contiguous
    along k: beside 128 sums of a thread, places of more than three stages spill."""
    by_warps = problem.tf32 and not problem.transpose_b and not _by_warpgroups(problem, target)
    if by_warps and tiles.block_m * tiles.block_n > CUT:
        return replace(tiles, stages=min(tiles.stages, 3))
    across = problem.transpose_a, not problem.transpose_b
    if ITEMSIZE[problem.dtype] > 1 or target.kind != "cuda" or not any(across):
        return tiles
    stage = sum(
        tiles.step_bytes * (width + 16) if apart else width * tiles.step_bytes
        for width, apart in zip((tiles.block_m, tiles.block_n), across)
    )
    return replace(tiles, stages=min(tiles.stages, (target.shared_memory - 1024) // stage))


def _spec(problem: GemmProblem, target: Target, tiles: Tiles) -> KernelSpec:
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
        bias=few_rows.bias(problem),
        gradient=problem.gradient,
        **_held(tiles, problem, target).arguments(ITEMSIZE[problem.dtype]),
        **padding_of_a_cpu(target, problem.dtype, problem.transpose_b),
    )


def _split_specs(problem: GemmProblem, target: Target, size: str, stays: bool = False) -> dict[str, KernelSpec]:
    ends = {"out_dtype": problem.out_dtype, "bias": few_rows.bias(problem)}
    staged = stays and _staged(problem, size)
    tiles = _staying_tiles(problem, target, size) if stays else _tiles(problem, target, size)
    parts = KernelSpec.of(
        "gemm",
        "split_matmul",
        _options(problem, target),
        dtype=problem.dtype,
        transpose_a=problem.transpose_a,
        transpose_b=problem.transpose_b,
        blocks=RATES[target.arch, "large"].slots if stays else None,
        staged=staged,
        **ends,
        **replace(_held(tiles, problem, target), panel=max(1, tiles.panel)).arguments(ITEMSIZE[problem.dtype]),
    )
    areas = {"block_m": tiles.block_m, "block_n": tiles.block_n, "panel": max(1, tiles.panel)}
    return {"parts": parts, "finish": KernelSpec.of("gemm", "finish", None, **ends, **areas)}


def _staying_spec(problem: GemmProblem, target: Target, size: str) -> KernelSpec:
    return KernelSpec.of(
        "gemm",
        "staying_matmul",
        _options(problem, target),
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        transpose_a=problem.transpose_a,
        transpose_b=problem.transpose_b,
        scales=problem.scales,
        bias=few_rows.bias(problem),
        blocks=RATES[target.arch, "large"].slots,
        staged=_staged(problem, size),
        **_held(_staying_tiles(problem, target, size), problem, target).arguments(ITEMSIZE[problem.dtype]),
    )


def _staged(problem: GemmProblem, size: str) -> bool:
    """Whether a tile of the result lies in shared memory beside the stages, where these leave room: of bytes a fourth stage
    is worth more (cuda.md, "sm_90a: TMA, wgmma")."""
    return size == "large" and ITEMSIZE[problem.dtype] > 1


def _staying_tiles(problem: GemmProblem, target: Target, size: str) -> Tiles:
    return _tiles(problem, target, "staying" if _staged(problem, size) else STAYERS[size])


def _options(problem: GemmProblem, target: Target) -> dict[str, Scalar] | None:
    """Blocks stay where a kernel's text says it: what the model weighs are blocks that leave."""
    found: dict[str, Scalar] = {"tl.disable_staying_blocks": True} if target.arch == "sm_90a" else {}
    return found | ({"tl.allow_tf32": True} if problem.tf32 and target.kind == "cuda" else {}) or None
