"""Which kernels make the gradients of a normalization."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tile_ops.gemm.tiles import ITEMSIZE
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.normalization import configs as forward
from tile_ops.normalization.configs import FAST, RESIDENT
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
#: Tiles of such a block where nothing is summed: 1, 2, 4, 8 of a LayerNorm's x in bfloat16 on an H100, us: 32768 rows of 1024
#: 80.6, 73.2, 72.5, 75.4 (torch 78.7), 16384 of 4096 142.5, 137.4, 138.4, 142.9, 2048 of 8192 52.7, 45.2, 42.5, 41.1, 131072 of
#: 256 89.7, 85.4, 84.4, 83.6; in float32 135.4, 137.0, 138.8, 140.5 (25 November 2026).
TILES_ALONE = 2
#: A block of softmax: elements of its tile at least, and those of each thread.
SOFTMAX = (2048, 16)
#: On a CPU: elements of a piece, whose sums registers hold, for rows of up to NARROW elements and for longer ones (with AVX2 as
#: for those). LayerNorm in float32 as kernels, one thread, us,
#: with AVX2 (EPYC) by 16, 32, 64 elements 2048 rows of 160 168, 175, 315, 64 of 4096 142, 145, 180; with AVX-512 (Sapphire
#: Rapids) 8192 of 64 382, 433, 453, 64 of 4096 328, 338, 322, 4096 of 1024 5455, 6169, 4866 (docs/performance/cpu.md).
NARROW, PIECE, LONG_PIECE = 320, 16, 64
#: Softmax on a CPU: rows of a block, of which each is finished while the next one is read, where four rows, the results and what
#: else lies there fit the first cache (in float32 half of it: neighbours may have the other half): up to so many columns of 4 and
#: of 2 bytes (with AVX2 only of 2), by pieces of so many
#: elements. Kernels, one thread of an EPYC with AVX-512, of torch's speed, so and row by row, 27 and 28 November 2026, when the
#: machine was busier: float32 2048x160 1.05, 0.92 and 0.92, 0.94, 1024x512 0.90, 0.94, 512x1024 1.00, 0.94 and 0.87, 0.98,
#: 512x1536 0.99, 0.96, 512x2048 0.98, 1.00, 64x4096 0.73, 0.95; bfloat16 2048x160 1.29, 0.92 and 1.22, 1.04, 512x1024
#: 1.33, 1.21 and 1.26, 1.20, 512x2048 1.34, 1.21 and 1.28, 1.21, 64x4096 1.20, 1.15 and 1.24, 1.17. As AVX2 code 512x1024 0.96,
#: 0.97 and 0.54, 0.50.
#: With the next row and the place of its result fetched 2048x160 0.79, where it is 0.93 to 0.97 as a call.
#: Blocks of 16, 64, 128 rows: 2048x160 0.99, 1.05, 1.08, 512x1024 0.98, 1.00, 1.01; other rows by rows of TOGETHER.
JOINED, JOINED_ROWS, JOINED_PIECE, TOGETHER = {4: 640, 2: 4096}, 64, 32, 4
#: With AVX-512, but no AMX, in float32: the second pass goes backwards over rows of so many elements or more, two of which fill
#: the first cache, in matrices of up to so many elements, by such pieces. Kernels, one thread of an EPYC, of torch's speed, so
#: and forwards: 64x4096 1.03, 0.95, 32x8192 1.02, 0.96, 256x4096 1.00, 0.97, 64x16384 1.06, 1.00; 96x3584 0.96, 0.96, 384x4096
#: 0.89, 1.00, 1024x4096 0.72, 0.98; in bfloat16 64x4096 1.17, 1.18; by pieces of 64 and 256 64x4096 0.96, 1.00 (28 November
#: 2026). Larger matrices want the processor to fetch the next row ahead of the first pass, which it does after a forward one.
BACKWARDS, BACKWARDS_ELEMENTS, BACKWARDS_PIECE = 4096, 1 << 20, 128
#: Norms with AVX-512: so many rows at once, by pieces of so many elements, whose gradients of weights are added up
#: before they are added to memory: rows of more than FOLLOWED elements, and matrices of up to so many elements. Kernels of a
#: LayerNorm in float32, one thread of an EPYC, us, so and row by row: 2048x160 104, 116, 512x1024 160, 165, 64x2048 50, 65,
#: 64x4096 97, 129, 32x8192 93, 124, 1024x4096 2481, 3677, but 8192x320 2374, 1036, 4096x640 1845, 1102; in bfloat16 122, 139,
#: 185, 212, 64x4096 97, 121, 4096x1024 1959, 1572; an Intel Xeon with AMX, which fetches "all", 240, 249, 512, 507, 64x4096 265,
#: 316, 1024x4096 3840, 5337, 4096x1024 3642, 3381, in bfloat16 512x1024 278, 314 (28 November 2026).
AT_ONCE, AT_ONCE_PIECE, AT_ONCE_ELEMENTS = 4, 16, 1 << 20
#: What a CPU fetches: with AMX the next row and the place of the result, elsewhere the latter, of rows of more elements than
#: this. LayerNorm in float32, both, the result's place, nothing, of torch's speed: Intel Xeon 512x1024 1.23, 1.05, 1.00,
#: 2048x160 1.04, 1.05, 0.80, 64x4096 1.18, 1.01, 0.93, 4096x1024 1.46, 1.15, 0.93, 1024x4096 1.26, 0.93, 0.93; EPYC with
#: AVX-512 1.38, 1.40, 1.52; 1.33, 1.41, 1.28; 1.35, 1.39, 1.35; 1.11, 0.89, 1.36; 1.14, 1.25, 0.97. Nothing of matrices of up to
#: so many elements, which the second cache keeps from call to call: gradients of a LayerNorm's x as calls on that Xeon, both and
#: nothing, of torch's: 2048x72 0.92, 1.00, 4096x20 0.72, 1.12, 512x256 0.95, 1.08, 1024x256 0.97, 0.99; 2048x160 0.94, 0.94;
#: in bfloat16 4096x40 2.9, 3.6, 64x4096 1.37, 1.32, 2048x160 1.38, 1.34 (29 November 2026).
FOLLOWED, NEAR = 2048, 1 << 18
#: Columns of all parts that rows are summed in, at most, and tiles of a part, at least: 132 blocks of 8192 columns, 264 of 4096,
#: 1056 of 1024 or fewer are the fastest on an H200. Numbers of the call alone, so that sums are the same everywhere. A CPU's
#: parts, at most, and their rows and elements, at least: what a part costs is for a row of sums, which lies in the first cache
#: where they are few (a LayerNorm's 512x1024 by 5120, 20480, 81920 elements 0.98, 1.02, 1.05 of torch's speed as calls, 2048x160
#: 0.97, 0.98, 0.96).
SUMMED, TILES = 132 * 8192, 4
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
                "block_columns": AT_ONCE_PIECE,
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
    parts = min(-(-tiles // least), most)
    return Plan.of(kernels, why, SOURCE, parts=parts)


def _second_pass(norm: NormProblem, target: Target) -> str:
    """How a CPU goes over softmax's rows once their sums are known."""
    size, vectors = ITEMSIZE[norm.dtype], target.arch != "x86-64-v3"
    if norm.columns <= JOINED[size] and (size < 4 or vectors):
        return "joined"
    cached = norm.columns >= BACKWARDS and norm.rows * norm.columns <= BACKWARDS_ELEMENTS
    return "backwards" if cached and size == 4 and vectors and not target.has("amx") else "forwards"


def _at_once(norm: NormProblem, target: Target) -> bool:
    if target.arch == "x86-64-v3":
        return False
    return norm.columns > FOLLOWED or norm.rows * norm.columns <= AT_ONCE_ELEMENTS


def _fetched(norm: NormProblem, target: Target) -> str:
    if target.has("amx"):
        return "all"
    return "result" if norm.columns > FOLLOWED else ""


def _tile(norm: NormProblem, target: Target) -> tuple[int, dict[str, Scalar]]:
    """Rows of a tile, and its kernel's arguments: rows, columns, where rows stay in registers what its block is, too."""
    if target.kind == "cpu":
        narrow = norm.columns <= NARROW
        short = narrow or target.arch == "x86-64-v3"
        if norm.kind != "softmax":
            return 1, {"block_rows": 1, "block_columns": PIECE if short else LONG_PIECE}
        way = _second_pass(norm, target)
        rows = JOINED_ROWS if way == "joined" else TOGETHER if narrow else 1
        piece = PIECE if short else {"joined": JOINED_PIECE, "backwards": BACKWARDS_PIECE}.get(way, LONG_PIECE)
        return rows, {"block_rows": rows, "block_columns": piece, "second_pass": way}
    if norm.columns > RESIDENT:
        return 1, {"block_rows": 1, "block_columns": 2048}
    width = next(width for width in COLUMNS if norm.columns <= width)
    if norm.kind == "softmax":
        rows = max(1, SOFTMAX[0] // width)
        return rows, {"block_rows": rows, "block_columns": width, "threads": rows * width // SOFTMAX[1]}
    rows = max(1, LEAST // width)
    staged = STAGES * 2 * rows * width * ITEMSIZE[norm.dtype]
    return rows, {
        "block_rows": rows,
        "block_columns": width,
        "threads": max(CENTERED if norm.kind == "layer_norm" else THREADS, width // EACH),
        "stages": STAGES if target.kind == "cuda" and staged <= STAGED else 0,
    }


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Rows of any number of columns in the three element types."""
    of_cpu = (NARROW, NARROW + 1, FOLLOWED + 1, *(columns + 1 for columns in JOINED.values()))
    lengths = of_cpu if target.kind == "cpu" else (*COLUMNS, RESIDENT + 1)
    for dtype, columns in product(DTYPES, lengths):
        few_and_many = (1, BACKWARDS_ELEMENTS)
        norms = [NormProblem(rows, columns, dtype, act) for rows, act in product(few_and_many, ACTIVATIONS)]
        norms += [NormProblem(rows, columns, dtype, None, kind) for rows, kind in product(few_and_many, KINDS)]
        for norm in norms:
            yield from (spec for _, spec in plan(NormBackwardProblem(norm, True), target).kernels)
