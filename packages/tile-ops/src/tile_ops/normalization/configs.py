"""Which kernel normalizes a problem."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tile_ops.gemm.tiles import ITEMSIZE
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar
from tile_ops.operator import Plan

from .problem import ACTIVATIONS, DTYPES, NormProblem

#: Elements of a row that a block holds in registers: 128 threads of 64 float32.
RESIDENT = 8192
#: Columns of a kernel, the least that hold a row: those past its end are computed, too. On a CPU a layer norm of 2048 x 160 in
#: float32 takes 0.52 ns an element by 256 columns, 0.43 by 192 (AVX2); a softmax of 8192 x 160 by 160 0.85 of the time by 192.
COLUMNS = {
    "cpu": (*range(32, 321, 32), 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192),
    "cuda": (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    "hip": (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
}
#: Softmaxes and LayerNorms on a GPU: columns that a block of one warp takes, at most, its elements, and those where that makes
#: fewer than BLOCKS: single elements of a row lie with neighbouring threads, and a warp finds the maximum of its rows among
#: themselves. A row is with the same threads in both, and its sum the same; a LayerNorm's is not where a block has as many rows
#: as threads, so that rows of fewer than WHOLE_WARPS columns have the small tile everywhere. Kernels on an H200, us, by blocks of
#: 128 threads, so, by torch: softmax in bfloat16 25140x254 18.8, 14.5, 13.2, 16x14 3.3, 2.1, 1.4, in float16 169616x527 233, 170,
#: 191; calls of 443032x105 335 and of 68581x36 24, as kernels so 93, by torch 96, and 10, 11; LayerNorm 1x753 8.6, 4.4, 5.0.
#: Longer rows are with 128 threads. LayerNorm in bfloat16 by tiles of 1024 and 256 elements, and torch: 8x249 14.9, 2.3, 3.9;
#: 1000x249 17.2, 2.9, 9.6 (what may not be there is loaded in a branch, one element after the other); 4096x300 12.7, 5.8, 8.4;
#: 20000x99 14.8, 13.0, 110; 100000x256 30, 63, 132; 200000x20 35.5, 27.1, 228; 500000x12 33.6, 32.0, 564 (30 November 2026).
#: Rows that begin anywhere have the small tile from so many columns on, by the size of an element: softmax in bfloat16 10304x411
#: 15.9, 9.8 (torch 10.8), 100000x249 50.6, 62.1, in float16 169616x527 170.0, 169.5, in float32 12838x159 10.8, 9.4, 179304x113
#: 56.8, 56.7, 200000x249 138, 123; LayerNorm in bfloat16 100000x249 100, 63, 200000x100 82, 89.
#: (Eight elements a thread, which is a vector of halves: of fewer, a row would be with other threads than in the large tile.)
WARP_COLUMNS, WARP_TILE, WARP_SMALL_TILE, BLOCKS, WHOLE_WARPS = 1024, 1024, {"cuda": 256, "hip": 512}, 2112, 64
SMALL_OF_UNEVEN = {("softmax", 2): 512, ("softmax", 4): 128, ("layer_norm", 2): 256, ("layer_norm", 4): 256}
#: Rows that no registers hold on a GPU: elements of a thread at once, threads, and those of rows of more than LONGEST elements.
#: Softmax, kernels of an H200, us, by 128 threads of 64 elements, which read it three times, by (8, 512), (16, 512), (8, 1024),
#: (16, 1024), and torch: bfloat16 64x128256 92, 35, 30, 25, 25, 37; 8x32000 21.4, 9.1, 8.6, 8.0, 8.6, 12.9; 4096x16384 127, 98,
#: 104, 117, 167, 133; float32 by (8, 512), (8, 1024) 512x50257 276, 106, 102, 103; 1x151936 135, 40, 31, 47 (30 November 2026).
STREAMED, STREAMING, LONGEST, STREAMING_LONG = 8, 512, 24576, 1024
#: Columns of a norm's kernel, which has statistics of each row, at least; a block's elements elsewhere; threads of a warp.
LEAST_OF_NORMS, GPU_TILE, WARP_SIZE = 8, 4096, {"cuda": 32, "hip": 64}
#: Elements of a CPU's tile, of which narrow rows make one together; those of a softmax with AVX2: 8192 x 160 by 1, 2, 6 rows
#: 1.94, 2.06, 2.46 ms (torch 2.07), 512 columns by 1, 2 0.60, 0.64, 64 by 1, 4, 16 0.67, 0.71, 0.67, 32 by 1, 32 0.33, 0.28;
#: those of a LayerNorm in float32: 64 columns by 1, 16 0.79, 0.85; with AVX-512 32 by 1, 32 0.31, 0.39, 320 by 1, 3 0.21, 0.25.
#: A tile of twice as many rows as there are, or more, has one instead, for the same bits: softmax of 1, 8, 16 rows of 32 elements
#: by 1 and 32 rows 1.46, 1.60, 1.75 and 1.85, 1.84, 1.87 us, of 64 by 1 and 16 1.50, 1.68, 1.92 and 1.79, 1.81, 1.81.
TILE, SOFTMAX_TILE, LAYER_NORM_TILE = 1024, {"x86-64-v3": 320}, 32
#: float32 in rows that are no whole vectors, of up to UNEVEN elements (LayerNorms of more stay in tiles where others do): what
#: is left of a row is written to its tile element by element, and a processor waits before it reads a vector over these; it
#: does not where other rows are written meanwhile. Xeon with AMX, us, row by row (RMSNorms read again), by tiles of TILE
#: elements, and torch: LayerNorm 4096x20 178, 58, 125, 2048x72 110, 47, 73, 2048x100 113, 62, 100, 1024x300 93, 93, 105;
#: RMSNorm 4096x20 112, 65, 63, 4096x31 128, 58, 88, 2048x72 73, 51, 77, 1024x200 46, 47, 126; as AVX2 code LayerNorm 2048x100
#: 123, 78, RMSNorm 2048x47 61, 49 (29 November 2026).
UNEVEN = 128

#: What CPUs read again from a cache: RMSNorms of rows of more than so many elements, the others in tiles. Kernels, one thread of
#: an EPYC with AVX-512, us, by pieces of a vector and in tiles: float32 4096x20 24, 53, 4096x32 20, 27, 2048x72 21, 55, 2048x128
#: 26, 27; bfloat16 31, 57; 29, 33; 30, 60; 38, 47; with SiLU float32 4096x20 70, 145, 4096x31 71, 62, 4096x32 67, 53, 2048x47 50,
#: 69, 4096x64 107, 100, 2048x72 68, 124; as AVX2 code 4096x20 26, 53, with SiLU 104, 95, 2048x47 82, 83, 2048x72 108, 115; with
#: SiLU in bfloat16, without masks, tiles to 100 elements (30 November 2026).
#: So they are of up to ACTIVATED elements with an activation, if these fill as much of a tile, and of up to WITHOUT_MASKS in
#: types that a level's masks do not tell apart.
ACTIVATED, FILLED, WITHOUT_MASKS = 64, 7 / 8, 128
#: An RMSNorm's piece is one vector, whose sums stay in its register whatever the length, in rows of fewer than so many elements
#: with AVX-512, and of float32 that are no whole vectors with AVX2: by 16 and 64, us, 2048x72 21, 61, 2048x128 26, 28, 1024x300
#: 33, 42, 512x640 31, 31, 512x1000 52, 54, 512x1024 46, 45; AVX2 by 8 and 32 2048x100 33, 60, 2048x72 22, 24, 1024x300 44, 42.
BY_VECTORS, BY_VECTORS_OF_AVX2 = 1024, 256

#: The same of LayerNorms, WRITTEN elements (or 16 rows) to a block, as of those above; and softmaxes of rows that no registers
#: hold, of up to so many. Measured beside tiles (docs/performance/cpu.md): 300 elements 0.95 of the speed in float32 and 0.8 in
#: bfloat16, 1024 and more 1.2 to 1.7; in float32 with AVX2 64, 128, 160, 320 elements 1.00, 1.2, 1.5, 1.5 where operands are in
#: a cache, 1.5, 1.55, 1.6, 1.45 where they are not. Softmaxes in float32 with AVX-512 of rows of more than so many, too: 320,
#: 1024, 2048, 4096 elements 1.01, 1.5, 1.5, 1.3 of the speed of tiles (in bfloat16 0.75, 0.9, 0.9, 0.96).
LAYER_NORM_TILES, WRITTEN, SOFTMAX_KEPT = {("x86-64-v3", "float32"): 64}, 16384, 1 << 18
#: The same elsewhere.
LAYER_NORM_TILES_ELSEWHERE = 320
SOFTMAX_TILES_OF_AVX512 = 512
#: LayerNorms in float32 of longer rows than this, with AVX-512, but no AMX, fetch so many elements ahead, the result's place,
#: too: what they write is not in a cache either. Kernels, one thread of an EPYC, of torch's speed, so and without: 4096x1024
#: 1.57, 1.27, 4096x1000 1.03, 0.78, 6144x768 1.23, 1.08, 4096x768 1.76, 1.52, 1024x4096 1.40, 1.21, 512x1024 1.56, 1.56;
#: 8192x640 1.03, 1.17, 8192x512 1.22, 1.31; in bfloat16 4096x1024 1.46, 1.47 (28 November 2026).
FETCHED, AHEAD = 640, 1024
#: Elements of a piece whose sums stay in registers, by architecture.
SUMS, SUMS_OF_AVX2 = 64, 32

#: Rows of up to so many elements, in pieces of so many, for `rms_norm` on GPUs; longer ones double both. Measured on an H200
#: (docs/performance/cuda.md) with SiLU, of the bandwidth of copies: 32, 64 and 96 elements 1.0, 1.0, 0.93 (in 4 pieces of
#: 64: 0.50, 0.95, 0.79), 320 in 5 pieces 0.91 (in 4 of 128: 0.87 and 0.90), 640 0.94 (0.92). For long rows 8 pieces in
#: larger blocks are slower, and so is one.
NARROW = {32: 32, 64: 64, 96: 32, 256: 64, 320: 64}
#: Rows of exactly so many elements have a kernel of their own on CUDA, `rms_norm_exact`: what a warp reads at once is one
#: stretch of memory, whereas pieces of rows begin in the middle of a line. Measured on an H200 with SiLU in float16, of the
#: bandwidth of copies: 1.00 for 96 elements, 0.98 for the others, in pieces 0.92 (96), 0.87 (160), 0.91 (320), 0.93 (640) (22
#: November 2026).
EXACT = (96, 160, 224, 288, 320, 640)
#: Elements of a piece that a block holds: 16 bytes for each of its 128 threads, and twice that if there is one piece.
PIECE = 1024
#: The GPU's own instructions for exp and 1 / x, with errors of two units in the last place of float32.
FAST: dict[str, Scalar] = {"tl.enable_fast_math": True}


def plan(problem: NormProblem, target: Target) -> Plan:
    """Rows up to RESIDENT elements are read once and kept in registers; longer ones are read again, tile by tile."""
    if problem.kind == "rms_norm" and target.kind == "cuda" and problem.columns in EXACT:
        return _exact(problem)
    if target.kind == "cpu" and (cached := _cached(problem, target)) is not None:
        why = f"rows of {problem.columns} are read from memory once and then from a cache"
        return Plan.of({"forward": cached}, why, "measured: what CPUs read again, in normalization/configs.py")
    if problem.columns > RESIDENT:
        return _long(problem, target)
    columns = next(columns for columns in COLUMNS[target.kind] if problem.columns <= columns)
    if problem.kind == "layer_norm":  # whose rows have statistics, too
        columns = max(columns, LEAST_OF_NORMS)
    tile, flags = GPU_TILE, dict[str, Scalar]()
    if target.kind != "cpu" and problem.kind != "rms_norm" and columns <= WARP_COLUMNS:
        small = problem.rows * columns < BLOCKS * WARP_TILE or _is_small(problem, columns)
        flags["threads"], tile = WARP_SIZE[target.kind], WARP_SMALL_TILE[target.kind] if small else WARP_TILE
    rows = max(1, tile // columns)
    if target.kind == "cpu":
        tile = TILE
        if problem.kind == "softmax":
            tile = SOFTMAX_TILE.get(target.arch, TILE)
        elif problem.kind == "layer_norm" and problem.dtype == "float32":
            tile = TILE if uneven(problem, target) else LAYER_NORM_TILE
        rows = max(1, tile // columns)
        if 2 * problem.rows <= rows:
            rows = 1
    if problem.kind == "rms_norm":
        flags |= {"activation": problem.activation, "pieces": 1}
        if target.kind != "cpu":
            columns, width = _pieces(problem.columns)
            flags["pieces"] = columns // width
            rows = max(1, PIECE * (2 if columns == width else 1) // width)
    spec = KernelSpec.of(
        "normalization",
        problem.kind,
        _options(problem) if target.kind == "cuda" else None,
        dtype=problem.dtype,
        block_rows=rows,
        block_columns=columns,
        **flags,
    )
    why = f"rows of {problem.columns} stay in registers"
    return Plan.of({"forward": spec}, why, "rule: RESIDENT in normalization/configs.py")


def _is_small(problem: NormProblem, columns: int) -> bool:
    """Whether a GPU's warp takes the small tile however many rows there are."""
    size = ITEMSIZE[problem.dtype]
    if problem.kind == "layer_norm" and columns < WHOLE_WARPS:
        return True
    return problem.columns * size % 16 != 0 and columns >= SMALL_OF_UNEVEN[problem.kind, size]


def _long(problem: NormProblem, target: Target) -> Plan:
    """Rows that are read again."""
    function, numbers = f"{problem.kind}_long", dict[str, Scalar]()
    if target.kind == "cpu":
        numbers["block_columns"] = RESIDENT
    elif problem.kind == "softmax":
        function, numbers = "softmax_streamed", {"vector": STREAMED, "threads": streaming(problem.columns)}
    else:
        numbers |= {"block_columns": STREAMED * streaming(problem.columns), "threads": streaming(problem.columns)}
    if problem.kind == "rms_norm":
        numbers["activation"] = problem.activation
    options = _options(problem) if target.kind == "cuda" else None
    spec = KernelSpec.of("normalization", function, options, dtype=problem.dtype, **numbers)
    return Plan.of(
        {"forward": spec}, f"rows of {problem.columns} are read again", "measured: STREAMED in normalization/configs.py"
    )


def streaming(columns: int) -> int:
    """Threads of a GPU's block for a row that no registers hold."""
    return STREAMING_LONG if columns > LONGEST else STREAMING


def _cached(problem: NormProblem, target: Target) -> KernelSpec | None:
    """A CPU's kernel that keeps no row in registers, if it is the better one."""
    numbers: dict[str, Scalar] = {"dtype": problem.dtype, "block_columns": _piece(problem, target)}
    least = {
        "rms_norm": _rms_norm_tiles(problem, target),
        "layer_norm": LAYER_NORM_TILES.get((target.arch, problem.dtype), LAYER_NORM_TILES_ELSEWHERE),
    }
    in_tiles = problem.kind == "layer_norm" and problem.columns <= UNEVEN and uneven(problem, target)
    if problem.kind in least and problem.columns > least[problem.kind] and not in_tiles:
        power = 1 << (problem.columns - 1).bit_length()
        numbers["block_rows"] = min(16, max(1, WRITTEN // power))
        if problem.kind == "rms_norm":
            numbers["activation"] = problem.activation
        elif _fetches(problem, target):
            numbers["ahead"] = AHEAD
    elif problem.kind == "softmax" and _softmax_tiles(problem, target) < problem.columns <= SOFTMAX_KEPT:
        numbers["longest"] = SOFTMAX_KEPT
    else:
        return None
    return KernelSpec.of("normalization", f"{problem.kind}_cached", None, **numbers)


def _rms_norm_tiles(problem: NormProblem, target: Target) -> int:
    """Elements of a row up to which an RMSNorm is in tiles."""
    if not _has_masks(problem, target):
        return WITHOUT_MASKS
    width = next((width for width in COLUMNS["cpu"] if problem.columns <= width), RESIDENT)
    return ACTIVATED if problem.activation is not None and problem.columns > FILLED * width else 0


def _piece(problem: NormProblem, target: Target) -> int:
    """Elements whose sums stay in registers."""
    lanes = lanes_of(target)
    most = BY_VECTORS if lanes == 16 else BY_VECTORS_OF_AVX2 if uneven(problem, target) else 0
    if problem.kind == "rms_norm" and _has_masks(problem, target) and problem.columns < most:
        return lanes
    return SUMS if lanes == 16 else SUMS_OF_AVX2


def lanes_of(target: Target) -> int:
    """float32 in a vector of a CPU."""
    return 16 if target.arch.startswith("x86-64-v4") else 8


def _has_masks(problem: NormProblem, target: Target) -> bool:
    """Whether what vectors leave of a row is one vector more (loops/innermost.py of the compiler)."""
    return lanes_of(target) == 16 or problem.dtype == "float32"


def uneven(problem: NormProblem, target: Target) -> bool:
    """Whether rows are float32 and no whole vectors of a CPU."""
    return problem.dtype == "float32" and problem.columns % lanes_of(target) != 0


def _fetches(problem: NormProblem, target: Target) -> bool:
    wide = target.arch.startswith("x86-64-v4") and not target.has("amx")
    return wide and problem.dtype == "float32" and problem.columns > FETCHED


def _softmax_tiles(problem: NormProblem, target: Target) -> int:
    avx512 = target.arch.startswith("x86-64-v4")
    return SOFTMAX_TILES_OF_AVX512 if avx512 and problem.dtype == "float32" else RESIDENT


def _exact(problem: NormProblem) -> Plan:
    """As many threads for a row as a power of two divides its vectors by: each adds an odd number of them, without conflicts
    of banks."""
    vector = 16 // (4 if problem.dtype == "float32" else 2)
    of_row = problem.columns // vector
    spec = KernelSpec.of(
        "normalization",
        "rms_norm_exact",
        _options(problem),
        dtype=problem.dtype,
        vector=vector,
        columns=problem.columns,
        lanes=of_row & -of_row,
        activation=problem.activation,
    )
    why = f"rows of exactly {problem.columns}, read as one stretch"
    return Plan.of({"forward": spec}, why, "measured: EXACT in normalization/configs.py", vector=vector)


def _options(problem: NormProblem) -> dict[str, Scalar] | None:
    return FAST if problem.activation is not None and problem.dtype != "float32" else None


def _pieces(columns: int) -> tuple[int, int]:
    """Elements that a block's rows have for rows of `columns`, and those of a piece."""
    scale = 1
    while columns > scale * max(NARROW):
        scale *= 2
    least = next(least for least in NARROW if columns <= scale * least and (scale == 1 or least >= 256))
    return scale * least, scale * NARROW[least]


def shipped(target: Target) -> Iterator[KernelSpec]:
    """Rows of 32 channels to any number, in the three element types."""
    doubled = [scale * least for scale in (2, 4, 8, 16) for least in (256, 320)]
    shapes = COLUMNS["cpu"] if target.kind == "cpu" else (*NARROW, *doubled)
    # One less: rows of any number up to `columns`, also where those of exactly so many have a kernel of their own.
    narrower = [columns - 1 for columns in shapes]
    few_and_many = (1, TILE)
    for dtype, activation in product(DTYPES, ACTIVATIONS):
        for columns in (*narrower, *(EXACT if target.kind == "cuda" else shapes), RESIDENT, RESIDENT + 1, LONGEST + 1):
            for rows in few_and_many:
                yield plan(NormProblem(rows, columns, dtype, activation), target).kernels[0][1]
    for dtype, operator in product(DTYPES, ("layer_norm", "softmax")):
        of_cpu = narrower if target.kind == "cpu" else ()
        for columns in (*COLUMNS[target.kind], *of_cpu, RESIDENT + 1, LONGEST + 1, SOFTMAX_KEPT + 1):
            for rows in (*few_and_many, BLOCKS * WARP_TILE):
                yield plan(NormProblem(rows, columns, dtype, None, operator), target).kernels[0][1]
