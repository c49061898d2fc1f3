"""Products of few rows without matrix instructions: where B is read row by row, and on a CPU column by column too."""

from __future__ import annotations

from itertools import product

from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.spec import Scalar

from .problem import GemmProblem
from .tiles import ITEMSIZE, LEAST_COLUMNS, Tiles

#: Rows that kernels of multiplications are written for; the least that holds all is taken. More are for matrix instructions.
GEMV_ROWS = (1, 2, 4, 8)
#: Most rows of them by kind. Measured on an H200, 16384 x 16384, float16: 1 row 0.133 ms against 0.175 by split matrix
#: instructions (torch 0.132), 4 rows 0.137 against 0.171, 8 rows 0.222 against 0.160 (22 November 2026).
#: In float32, which three products of tf32 make there, us by these, so, torch: 8 rows by a transposed 4096 x 4096 57, 25, 52, by
#: 14336 x 4096 185, 76, 125, 5 by 8191 x 4095 168, 100, 75 (30 November 2026).
FEW_ROWS, FEW_ROWS_OF_FLOAT32 = {"cpu": 8, "cuda": 4, "hip": 0}, {"cuda": 8}
#: Elements along k up to which one row, and several, are multiplied by matrix instructions on a GPU: a block of these kernels
#: has little to do then, one element after the other where rows of B begin anywhere. H200, bfloat16, us, so, by tiles, torch:
#: 1x9727x15 (m, n, k) 25.6, 2.6, 2.9, 1x8192x64 6.6, 2.6, 2.9, 1x8191x127 22.2, 4.0, 10.2, 1x4096x256 4.2, 3.8, 3.5, 1x128256x256
#: 81, 28, 23, 1x4096x384 4.4, 4.4, 4.1, 1x4096x1024 5.3, 6.9, 5.6, 4x8192x64 15.3, 2.6, 2.9, 4x4096x512 9.6, 5.2, 4.6 (30
#: November 2026). float32, by three products of tf32: 1x8192x64 5.2, 3.8, 3.4, 1x4096x256 4.3, 5.3, 4.4, 4x4096x256 6.6, 5.4,
#: 4.6, 8x8192x64 17.7, 3.8, 4.8, 2x4096x512 5.6, 13.6, 6.4.
SHALLOW_OF_ONE, SHALLOW_OF_SEVERAL = {"float32": 128, "halves": 384}, {"float32": 256, "halves": 512}
#: Columns of B that a CPU's block reads at once, the least that hold all, and rows. 4096 by 8 is the best of six for 1 and 4
#: rows of 4096 x 4096, float32 and bfloat16, on a shared Sapphire Rapids: 8.6 to 13.9 GB/s, 8 rows of 1024 7.6 to 10.8 (22
#: November 2026). Narrower ones are for narrower matrices (cpu.md).
COLUMNS, COLUMNS_STEP = (64, 256, 512, 1024, 2048, 4096), 8
#: With AVX2 more than so many rows of float32 by a transposed matrix that is too small for `gemm_in_place` are tiles of scalar
#: products, by steps of one, two or four times so many: 8 x 512 x 128 22 us as calls of the kernel (B through registers 27),
#: 8 x 64 x 64 as whole calls 3.6 (4.1, torch 3.2), 8 x 256 x 64 7.9 (10.1, torch 6.6).
DOT_ROWS, DOT_STEP = 4, 64
#: With AVX-512 so many read more of B's rows at once (of few columns, others are for `gemm_in_place`): elements of a step, and
#: rows of a transposed B. 8 x 1024 x 16 as whole calls on an EPYC 3.1 us, by register tiles 4.1 (torch 4.6).
LONG_STEP, LONG_ROWS = 128, 16
#: Bytes of a transposed B that a CPU's caches do not hold, how many of each row are fetched ahead then, and the most rows of A
#: for which such a B is read so where `gemm_in_place` multiplies those of others. EPYC with AVX-512, 28 November 2026, ms by
#: `gemm_in_place`, so without and with fetching: 1 row by 4096 x 14336 of float16 8.5, 5.7, 5.4 (torch 5.2), bfloat16 7.6, 5.9,
#: 5.3, float32 10.1, 9.0 (none other); by 4096 x 4096 1.5, 1.34, 1.18 (torch 1.46); 1.5, 1.34, 1.24; 2.5, 2.3; 2 rows by 4096 x
#: 14336 8.6, 7.0, 6.2; 8.5, 7.2, 6.1; 16.5, 12.5, 11.4; 4 rows 11.0, 8.6, 7.6; 8.0, 9.0, 8.5. Of a B in the caches, fetching
#: costs up to a seventh, and a Xeon with AMX loses by it (1 row by 4096 x 4096 of float16 1.42, 1.64, float32 2.92, 3.10).
LARGE_BYTES = 1 << 25
AHEAD = {"float16": 2048, "bfloat16": 2048, "float32": 1024}
MOST_ROWS_OF_LARGE = {"float16": 4, "bfloat16": 2, "float32": 2}
#: On a CPU, halves by a transposed B of fewer elements along k, which fill no register, and more rows than that go another way:
#: bfloat16 1x896x8 6.1 us, by tiles 10.3, 2x300x12 5.9, 5.5, 5x896x8 51, 10, 4x1952x8 47, 19, 4x1952x16 15.6, 18.7 (EPYC with
#: AVX-512, 30 November 2026).
SHALLOW, MOST_ROWS_OF_SHALLOW = 16, 2
#: Blocks of columns and parts of k that a CPU's product of few rows has at least, for its cores.
CPU_BLOCKS = 16
#: Bytes of B that a part along k of a CPU's product has at least: fewer, and starting costs more than it brings.
PART_BYTES = 1 << 20
#: Rows, columns and elements along k that together meet every answer of this module.
SHIPPED = tuple(
    (m, n, k) for m, n, k in product(GEMV_ROWS, COLUMNS, (1, SHALLOW, DOT_STEP + 1, 2 * DOT_STEP + 1, PART_BYTES))
)


def suits(problem: GemmProblem, target: Target) -> bool:
    """Whether there are such kernels for it; by a row-major B on CPUs alone."""
    most = FEW_ROWS[target.kind]
    if problem.dtype == "float32" and not problem.tf32:
        most = FEW_ROWS_OF_FLOAT32.get(target.kind, most)
    if problem.m > most or problem.dtype not in ("float16", "bfloat16", "float32"):
        return False
    kind = "float32" if problem.dtype == "float32" else "halves"
    if target.kind == "cuda" and problem.k <= (SHALLOW_OF_ONE if problem.m == 1 else SHALLOW_OF_SEVERAL)[kind]:
        return False
    shallow = target.kind == "cpu" and problem.dtype != "float32" and problem.transpose_b and problem.k < SHALLOW
    if shallow and problem.m > MOST_ROWS_OF_SHALLOW:
        return False
    plain = problem.batch == 1 and not (problem.transpose_a or problem.scales or problem.gradient)
    return plain and (problem.transpose_b or target.kind == "cpu")


def of_large(problem: GemmProblem, target: Target) -> bool:
    """Whether so much of a transposed B comes from memory that it is read here, and fetched ahead."""
    few = problem.m <= MOST_ROWS_OF_LARGE.get(problem.dtype, 0)
    return few and suits(problem, target) and _is_fetched(problem, target)


def _is_fetched(problem: GemmProblem, target: Target) -> bool:
    """Whether B is fetched ahead: with AVX-512 but without AMX (AVX2 was not measured)."""
    large = problem.transpose_b and problem.n * problem.k * ITEMSIZE[problem.dtype] >= LARGE_BYTES
    return large and target.arch.startswith("x86-64-v4") and not target.has("amx")


def dot_tiles(problem: GemmProblem, target: Target) -> Tiles | None:
    """The tiles of scalar products that are better than `kernels`: with AVX2, by a transposed B."""
    avx2 = target.arch == "x86-64-v3"
    if not (avx2 and problem.transpose_b and problem.dtype == "float32" and problem.m > DOT_ROWS):
        return None
    depth = next((step for step in (DOT_STEP, 2 * DOT_STEP) if problem.k <= step), 4 * DOT_STEP)
    return Tiles(FEW_ROWS["cpu"], LEAST_COLUMNS, 4 * depth, 0, 128, 0)


def kernels(problem: GemmProblem, target: Target) -> dict[str, KernelSpec]:
    """B streams through registers, where it is row-major and large in parts along k."""
    if problem.transpose_b:
        return {"gemv": _by_rows(problem, target)}
    if _parts(problem) > 1:
        parts = KernelSpec.of("gemm", "gemv_column_parts", None, dtype=problem.dtype, **_columns(problem))
        return {"parts": parts, "combine": combine(problem)}
    ends = {"dtype": problem.dtype, "out_dtype": problem.out_dtype, "bias": bias(problem)}
    return {"gemv": KernelSpec.of("gemm", "gemv_columns", None, **ends, **_columns(problem))}


def numbers(problem: GemmProblem) -> dict[str, int]:
    """How many parts along k, and the steps of each."""
    steps = max(1, -(-problem.k // COLUMNS_STEP))
    each = -(-steps // _parts(problem))
    return {"splits": -(-steps // each), "steps": each}


def combine(problem: GemmProblem) -> KernelSpec:
    """What adds up parts along k, in their order, and ends a product."""
    return KernelSpec.of("gemm", "combine", out_dtype=problem.out_dtype, bias=bias(problem), block_n=512)


def scaled(problem: GemmProblem) -> KernelSpec:
    """What ends a product with scales, of sums in int32."""
    return KernelSpec.of("gemm", "scaled", out_dtype=problem.out_dtype, bias=bias(problem), block_m=64, block_n=512)


def bias(problem: GemmProblem) -> str | None:
    """The type of the vector that kernels take, which is empty where there is no bias. Integers have none."""
    return None if problem.out_dtype == "int32" else problem.bias or problem.out_dtype


def _parts(problem: GemmProblem) -> int:
    blocks = -(-problem.n // COLUMNS[-1])
    return max(1, min(CPU_BLOCKS // max(1, blocks), problem.k * problem.n * ITEMSIZE[problem.dtype] // PART_BYTES))


def _columns(problem: GemmProblem) -> dict[str, Scalar]:
    return {
        "rows": next(r for r in GEMV_ROWS if problem.m <= r),
        "block_n": next((columns for columns in COLUMNS if problem.n <= columns), COLUMNS[-1]),
        "block_k": COLUMNS_STEP,
    }


def _by_rows(problem: GemmProblem, target: Target) -> KernelSpec:
    """On a GPU two rows of B by 16 bytes twice for each thread. On a CPU eight rows by four registers of float32: of seven shapes
    none was better for 1, 2 and 4 rows of 4096 x 4096 in float32 and bfloat16 on a shared Sapphire Rapids (7.6 to 13.8 GB/s); 1
    to 4 rows at once are slower (22 November 2026). With AVX2 eight registers, or 16 rows, are up to 1.5 times slower, and four
    rows better for one row in float32: of torch's speed 1.03 by 1024 x 4096, 1.08 by 4096 x 4096, 1.26 by 1024 x 1024, with
    eight 0.96, 0.99, 1.26 (one row in 16 bits, and more rows, lose by it up to a third; EPYC, 28 November 2026)."""
    rows = next(r for r in GEMV_ROWS if problem.m <= r)
    vector = 16 // ITEMSIZE[problem.dtype]
    gpu = {"block_n": 2, "block_k": 256 * vector, "lanes": 256, "vector": vector, "threads": 128}
    lanes = 8 if target.arch == "x86-64-v3" else 16  # of a register
    ahead = AHEAD[problem.dtype] // ITEMSIZE[problem.dtype] if _is_fetched(problem, target) else 0
    cpu = {"block_n": 8, "block_k": (4 if problem.k >= 4 * lanes else 2) * lanes, "lanes": lanes, "ahead": ahead}
    if lanes == 8 and problem.dtype == "float32" and rows == 1:
        cpu["block_n"] = 4
    if lanes == 16 and problem.dtype == "float32" and problem.m > DOT_ROWS:
        cpu |= {"block_n": LONG_ROWS, "block_k": LONG_STEP if problem.k >= LONG_STEP else 4 * lanes}
    return KernelSpec.of(
        "gemm",
        "gemv_rows" if target.kind == "cpu" else "gemv",
        None,
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        bias=bias(problem),
        rows=rows,
        **(cpu if target.kind == "cpu" else gpu),
    )
