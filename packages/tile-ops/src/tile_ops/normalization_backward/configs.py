"""Which kernels make the gradients of a normalization."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tile_ops.gemm.tiles import ITEMSIZE
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.kernel.target import FIRST_CACHES
from tile_ops.normalization import configs as forward
from tile_ops.normalization.configs import FAST, RESIDENT, UNEVEN, lanes_of, uneven
from tile_ops.normalization.problem import ACTIVATIONS, DTYPES, NormProblem
from tile_ops.operator import Plan

from .problem import NormBackwardProblem

FAMILY = "normalization_backward"
KINDS = ("softmax", "layer_norm")
#: Columns of a kernel on a GPU, the least that hold a row.
COLUMNS = forward.COLUMNS["cuda"]
#: A block of norms on a GPU: elements of its tile and threads, at least (of a LayerNorm, whose sums are twice as many, CENTERED:
#: 32768 rows of 1024 62.6 us by 32 threads, 67.4 by 64, 131072 of 256 61.9, 80.6, 16384 of 640 30.3, 35.0; of an RMSNorm 59.2,
#: 58.6, with SiLU 115, 84), and elements of a wide row for each thread. Tiles on
#: their way to it while it computes, if they take no more bytes. Gradients of a LayerNorm in bfloat16 on an H200, us (torch's,
#: and the time that memory takes): 16384 rows of 4096 by 256 threads 174, ahead 137, by 128 threads 121 (233, 96); 8192 of 8192
#: by 512, 256 threads, ahead 161, 145 (263, 96); 32768 of 1024 by 64, 128 threads 65, 72 (221, 48); 131072 of 256 by 4, 8
#: rows 85, 193 (200, 48).
LEAST, THREADS, CENTERED, EACH = 1024, 64, 32, 32
STAGES, STAGED = 2, 64 << 10
#: Rows of a tile at most, and threads where it has half of them or more: what each row has of its own fills registers, too.
NARROW_ROWS, NARROW_THREADS = 64, 128
#: Tiles of such a block where nothing is summed: 1, 2, 4, 8 of a LayerNorm's x in bfloat16 on an H100, us: 32768 rows of 1024
#: 80.6, 73.2, 72.5, 75.4 (torch 78.7), 16384 of 4096 142.5, 137.4, 138.4, 142.9, 2048 of 8192 52.7, 45.2, 42.5, 41.1, 131072 of
#: 256 89.7, 85.4, 84.4, 83.6; in float32 135.4, 137.0, 138.8, 140.5 (25 November 2026).
TILES_ALONE = 2
#: A block of softmax: elements of its tile at least, and those of each thread; of its tile where one warp takes rows, as forward.
SOFTMAX, SOFTMAX_WARP = (2048, 16), 512
#: On a CPU: elements of a piece, whose sums registers hold, for rows of up to NARROW elements and for longer ones (with AVX2 as
#: for those). LayerNorm in float32 as kernels, one thread, us,
#: with AVX2 (EPYC) by 16, 32, 64 elements 2048 rows of 160 168, 175, 315, 64 of 4096 142, 145, 180; with AVX-512 (Sapphire
#: Rapids) 8192 of 64 382, 433, 453, 64 of 4096 328, 338, 322, 4096 of 1024 5455, 6169, 4866 (docs/performance/cpu.md).
NARROW, PIECE, LONG_PIECE = 320, 16, 64
#: Softmax on a CPU: rows of a block, of which each is finished while the next one is read, by pieces of a vector, where so many
#: rows of float32 fill no more than half of the first cache (neighbours may have the other half), of 2 bytes up to so many
#: columns. Kernels, one thread of an EPYC with AVX-512 and 48 KiB, of torch's speed, so by 16 and 32 elements, and
#: row by row: float32 2048x160 1.12, 1.00, 1.00, 4096x31 1.15, 0.56, 1.25, 512x1024 1.05, 1.05, 1.00, 512x1000 1.02, 0.96, 0.97,
#: 512x1536 1.06 and 1.05 by 32, 512x2048 0.95, 1.04, 64x4096 0.76, 1.01; bfloat16 512x500 1.47, 1.35, 1.18, 64x4096 1.27, 1.28,
#: 1.21 (30 November 2026); with 32 KiB (28 November) 512x1024 0.87, 0.98, 64x4096 0.73, 0.95. As AVX2 code float32 only where a
#: row is no whole vectors: 4096x20 1.49, 1.25, 2048x100 1.15, 1.11, 2048x160 0.94, 0.98, 1024x250 1.00, 1.02.
#: With the next row and the place of its result fetched 2048x160 0.79, where it is 0.93 to 0.97 as a call.
#: Blocks of 16, 64, 128 rows: 2048x160 0.99, 1.05, 1.08, 512x1024 0.98, 1.00, 1.01; other rows by rows of TOGETHER. Not of
#: float32 in matrices of more elements, which no second cache holds: 2000x640 0.80, 1.06, 4000x320 0.86, 1.07, 1920x448 1.05,
#: 1.01.
JOINED, JOINED_ELEMENTS, JOINED_HALVES, JOINED_ROWS, TOGETHER = 5, 1 << 19, 4096, 64, 4
#: The others by PIECE up to so many elements, with AVX2 by more beyond them: 1024x300 by 16, 32, 64 0.94, 1.04, 0.99, 512x1000
#: 1.04, 1.04, 1.06, 2048x160 1.01, 0.99, 0.99.
SHORT_OF_AVX2, LONG_PIECE_OF_AVX2 = 160, 32
#: With AVX-512, but no AMX, in float32: the second pass goes backwards over rows two of which fill a first cache of 32 KiB, in
#: matrices of up to so many elements, by such pieces. Kernels, one thread of an EPYC, of torch's speed, so and forwards: 64x4096
#: 1.03, 0.95, 32x8192 1.02, 0.96, 256x4096 1.00, 0.97, 64x16384 1.06, 1.00; 96x3584 0.96, 0.96, 384x4096
#: 0.89, 1.00, 1024x4096 0.72, 0.98; with 48 KiB 32x8192 1.13, 1.02, but 100x8192 0.70, 1.05, 64x4096 0.91, 1.01; in bfloat16
#: 64x4096 1.17, 1.18; by pieces of 64 and 256 64x4096 0.96, 1.00. Larger matrices want the processor to fetch the next row ahead
#: of the first pass, which it does after a forward one.
BACKWARDS_ELEMENTS, BACKWARDS_PIECE = 1 << 20, 128
#: Norms: so many rows at once, by pieces of a vector, whose gradients of weights are added up before they are added to memory:
#: rows of more than FOLLOWED elements, and matrices of up to so many elements. Kernels of a
#: LayerNorm in float32, one thread of an EPYC with AVX-512, us, so and row by row: 2048x160 104, 116, 512x1024 160, 165, 64x2048
#: 50, 65, 64x4096 97, 129, 32x8192 93, 124, 1024x4096 2481, 3677, but 8192x320 2374, 1036, 4096x640 1845, 1102; in bfloat16 122,
#: 139, 185, 212, 64x4096 97, 121, 4096x1024 1959, 1572; an Intel Xeon with AMX, which fetches "all", 240, 249, 512, 507, 64x4096
#: 265, 316, 1024x4096 3840, 5337, 4096x1024 3642, 3381, in bfloat16 512x1024 278, 314 (28 November 2026). As AVX2 code, by 8 and
#: row by row by 16, RMSNorm 4096x20 41, 126, 2048x100 59, 87, 2048x120 60, 76, 512x500 59, 62, 512x1000 102, 96, 512x2048 276,
#: 240, 64x4096 58, 69, LayerNorm 4096x20 42, 91, 2048x120 67, 59, 512x500 61, 66, 512x1000 107, 105; in bfloat16 70, 147; 90,
#: 125; 96, 121; 95, 105; 181, 187; 384, 374; 94, 97 (30 November 2026).
AT_ONCE, AT_ONCE_ELEMENTS, ROW_BY_ROW_OF_AVX2 = 4, 1 << 20, 512
#: What a CPU fetches: with AMX the next row and the place of the result, elsewhere the latter, of rows of more elements than
#: this. LayerNorm in float32, both, the result's place, nothing, of torch's speed: Intel Xeon 512x1024 1.23, 1.05, 1.00,
#: 2048x160 1.04, 1.05, 0.80, 64x4096 1.18, 1.01, 0.93, 4096x1024 1.46, 1.15, 0.93, 1024x4096 1.26, 0.93, 0.93; EPYC with
#: AVX-512 1.38, 1.40, 1.52; 1.33, 1.41, 1.28; 1.35, 1.39, 1.35; 1.11, 0.89, 1.36; 1.14, 1.25, 0.97. Nothing of matrices of up to
#: so many elements, which the second cache keeps from call to call: gradients of a LayerNorm's x as calls on that Xeon, both and
#: nothing, of torch's: 2048x72 0.92, 1.00, 4096x20 0.72, 1.12, 512x256 0.95, 1.08, 1024x256 0.97, 0.99; 2048x160 0.94, 0.94;
#: in bfloat16 4096x40 2.9, 3.6, 64x4096 1.37, 1.32, 2048x160 1.38, 1.34 (29 November 2026).
FOLLOWED, NEAR = 2048, 1 << 18
#: Columns of all parts that rows are summed in, at most, and tiles of a part, at least, where there are more than BLOCKS of them:
#: 132 blocks of 8192 columns, 264 of 4096,
#: 1056 of 1024 or fewer are the fastest on an H200. Numbers of the call alone, so that sums are the same everywhere. A CPU's
#: parts, at most, and their rows and elements, at least: what a part costs is for a row of sums, which lies in the first cache
#: where they are few (a LayerNorm's 512x1024 by 5120, 20480, 81920 elements 0.98, 1.02, 1.05 of torch's speed as calls, 2048x160
#: 0.97, 0.98, 0.96).
SUMMED, TILES, BLOCKS = 132 * 8192, 4, 264
CPU_PARTS, CPU_ROWS, CPU_ELEMENTS = 64, 8, 20480
#: A tile of `column_sums`, and parts of its rows at most, as many blocks lie beside each other; a tile of `sum_parts`.
LONG_ROWS, LONG_PARTS = 16, 16
COLUMN_SUMS: dict[str, Scalar] = {"block_rows": LONG_ROWS, "block_columns": 128}
SUMS: dict[str, dict[str, Scalar]] = {
    "cpu": {"block_parts": 1, "block_columns": 256},
    "gpu": {"block_parts": 128, "block_columns": 16},
}
SOURCE = "rule: normalization_backward/configs.py"


def plan(problem: NormBackwardProblem, target: Target) -> Plan:
    """On a GPU rows up to RESIDENT elements are read once and kept in registers, as forward; longer ones are read again, as all
    are on a CPU."""
    norm = problem.norm
    resident = target.kind != "cpu" and norm.columns <= RESIDENT
    why = f"rows of {norm.columns} " + ("stay in registers" if resident else "are read again")
    rows, tile = _tile(norm, target)
    if norm.kind == "softmax":
        function = "softmax_backward" + ("" if resident else "_cached" if target.kind == "cpu" else "_long")
        if tile.get("second_pass") == "joined":
            why = f"rows of {norm.columns} are finished while the next ones are read"
        return Plan.of({"rows": KernelSpec.of(FAMILY, function, None, dtype=norm.dtype, **tile)}, why, SOURCE)
    fast = norm.activation is not None and norm.dtype != "float32" and target.kind == "cuda"
    flags: dict[str, Scalar] = {
        "dtype": norm.dtype,
        "centered": norm.kind == "layer_norm",
        "activation": norm.activation,
    }

    def kernel(function: str, tile: dict[str, Scalar]) -> KernelSpec:
        return KernelSpec.of(FAMILY, function, FAST if fast else None, **tile, **flags)

    tiles, least, most = -(-norm.rows // rows), TILES, SUMMED // max(LEAST, int(tile["block_columns"] or 0))
    if resident:
        kernels = {"rows": kernel("norm_backward", tile)}
    elif target.kind == "cpu":
        numbers = {"block_columns": tile["block_columns"], "fetched": _fetched(norm, target)}
        if _at_once(norm, target):
            numbers = {
                "block_columns": lanes_of(target),
                "fetched": "all" if target.has("amx") and norm.rows * norm.columns > NEAR else "",
                "together": AT_ONCE,
            }
        kernels = {"rows": kernel("norm_backward_cached", numbers)}
        tiles, least, most = norm.rows, max(CPU_ROWS, CPU_ELEMENTS // max(1, norm.columns)), CPU_PARTS
    else:
        kernels = {"long_rows": kernel("norm_backward_long", tile)}
        if problem.sums:
            kernels["columns"] = kernel("column_sums", COLUMN_SUMS)
            tiles, most = -(-norm.rows // LONG_ROWS), LONG_PARTS
    if problem.sums:
        kernels["sum"] = KernelSpec.of(
            FAMILY, "sum_parts", None, dtype=norm.dtype, **SUMS.get(target.kind, SUMS["gpu"])
        )
    if not problem.sums and target.kind != "cpu":
        least, most = TILES_ALONE if tile.get("stages") else 1, tiles
    spread = min(tiles, BLOCKS) if target.kind != "cpu" else 0
    parts = min(max(-(-tiles // least), spread), most)
    return Plan.of(kernels, why, SOURCE, parts=parts)


def _second_pass(norm: NormProblem, target: Target) -> str:
    """How a CPU goes over softmax's rows once their sums are known."""
    size, avx512 = ITEMSIZE[norm.dtype], lanes_of(target) == 16
    of_row = norm.columns * size
    if size < 4:
        return "joined" if norm.columns <= JOINED_HALVES else "forwards"
    elements, fits = norm.rows * norm.columns, JOINED * of_row <= target.first_cache // 2
    if fits and elements <= JOINED_ELEMENTS and (avx512 or _by_lanes(norm, target)):
        return "joined"
    cached = 2 * of_row >= target.first_cache == FIRST_CACHES[0] and elements <= BACKWARDS_ELEMENTS
    return "backwards" if cached and avx512 and not target.has("amx") else "forwards"


def _by_lanes(norm: NormProblem, target: Target) -> bool:
    """Whether AVX2 goes over a short row's vectors one by one, as what is left of it is one, too."""
    return norm.columns <= UNEVEN and uneven(norm, target)


def _softmax_piece(norm: NormProblem, target: Target, way: str) -> int:
    avx512 = lanes_of(target) == 16
    if way == "backwards":
        return BACKWARDS_PIECE
    if not avx512 and _by_lanes(norm, target):
        return lanes_of(target)
    if way == "joined":
        return PIECE
    if norm.columns <= (NARROW if avx512 else SHORT_OF_AVX2):
        return PIECE
    return LONG_PIECE if avx512 else LONG_PIECE_OF_AVX2


def _at_once(norm: NormProblem, target: Target) -> bool:
    if norm.columns > FOLLOWED:
        return True
    long = lanes_of(target) == 8 and norm.dtype == "float32" and norm.columns > ROW_BY_ROW_OF_AVX2
    return norm.rows * norm.columns <= AT_ONCE_ELEMENTS and not long


def _fetched(norm: NormProblem, target: Target) -> str:
    if target.has("amx"):
        return "all"
    return "result" if norm.columns > FOLLOWED else ""


def _tile(norm: NormProblem, target: Target) -> tuple[int, dict[str, Scalar]]:
    """Rows of a tile, and its kernel's arguments: rows, columns, where rows stay in registers what its block is, too."""
    if target.kind == "cpu":
        narrow = norm.columns <= NARROW
        if norm.kind != "softmax":
            return 1, {"block_rows": 1, "block_columns": PIECE if narrow or lanes_of(target) == 8 else LONG_PIECE}
        way = _second_pass(norm, target)
        rows, piece = JOINED_ROWS if way == "joined" else TOGETHER if narrow else 1, _softmax_piece(norm, target, way)
        return rows, {"block_rows": rows, "block_columns": piece, "second_pass": way}
    if norm.columns > RESIDENT and norm.kind == "softmax":
        threads = forward.streaming(norm.columns)
        return 1, {"block_columns": forward.STREAMED * threads, "threads": threads}
    if norm.columns > RESIDENT:
        return 1, {"block_rows": 1, "block_columns": 2048}
    width = next(width for width in COLUMNS if norm.columns <= width)
    if norm.kind != "softmax":
        width = max(width, forward.LEAST_OF_NORMS)
    if norm.kind == "softmax":
        if width <= forward.WARP_COLUMNS:
            of_warp = {"block_rows": max(1, SOFTMAX_WARP // width), "block_columns": width}
            return int(of_warp["block_rows"]), {**of_warp, "threads": forward.WARP_SIZE[target.kind]}
        rows = max(1, SOFTMAX[0] // width)
        return rows, {"block_rows": rows, "block_columns": width, "threads": rows * width // SOFTMAX[1]}
    rows = min(NARROW_ROWS, max(1, LEAST // width))
    staged = STAGES * 2 * rows * width * ITEMSIZE[norm.dtype]
    return rows, {
        "block_rows": rows,
        "block_columns": width,
        "threads": NARROW_THREADS
        if rows >= NARROW_ROWS // 2
        else max(CENTERED if norm.kind == "layer_norm" else THREADS, width // EACH),
        "stages": STAGES if target.kind == "cuda" and staged <= STAGED else 0,
    }


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Rows of any number of columns in the three element types."""
    lengths, targets = (*COLUMNS, RESIDENT + 1, forward.LONGEST + 1), [target]
    if target.kind == "cpu":
        lengths = (UNEVEN - 1, SHORT_OF_AVX2, NARROW, NARROW + 1, FOLLOWED + 1, JOINED_HALVES + 1, RESIDENT)
        targets = [replace(target, first_cache=size) for size in FIRST_CACHES]
    for dtype, columns, there in product(DTYPES, lengths, targets):
        few_and_many = (1, BACKWARDS_ELEMENTS)
        norms = [NormProblem(rows, columns, dtype, act) for rows, act in product(few_and_many, ACTIVATIONS)]
        norms += [NormProblem(rows, columns, dtype, None, kind) for rows, kind in product(few_and_many, KINDS)]
        for norm in norms:
            yield from (spec for _, spec in plan(NormBackwardProblem(norm, True), there).kernels)
