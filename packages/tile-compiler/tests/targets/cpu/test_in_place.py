"""Products of tiles that lie in tensors: without copies where they fit, the same where they leave the tensor."""

from __future__ import annotations

import ctypes
import mmap
import re

import ml_dtypes  # noqa: F401 (numpy knows bfloat16 by it)
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.compile import lower
from tile_compiler.targets.cpu.features import host_features
from tilelang.target import Target

PAIRS = "x86-64-v4+bf16+vnni"  # a level whose instructions multiply pairs of bfloat16
AMX = Target("cpu", f"{PAIRS}+amx")
BLOCK_M, BLOCK_N, BLOCK_K = 20, 32, 48


def by_panels(dtype: str = "float32", block_m: int = BLOCK_M):
    """C = A @ B for B in panels (steps, panels, BLOCK_K, BLOCK_N), C with a pitch of its own."""
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    steps, panels, pitch = T.dynamic("steps"), T.dynamic("panels"), T.dynamic("pitch")

    @T.prim_func
    def main(
        A: T.Tensor((m, k), dtype),
        P: T.Tensor((steps, panels, BLOCK_K, BLOCK_N), dtype),
        C: T.StridedTensor((m, n), (pitch, 1), "float32"),
    ):
        with T.Kernel(T.ceildiv(m, block_m)) as block:
            a = T.alloc_shared((block_m, BLOCK_K), dtype)
            row = block * block_m
            for step in T.serial(steps):
                T.copy(A[row, step * BLOCK_K], a)
                for panel in T.serial(panels):
                    at = panel * BLOCK_N
                    if (row + block_m <= m) & (at + BLOCK_N <= n):
                        T.gemm(
                            a,
                            P[step, panel, 0:BLOCK_K, 0:BLOCK_N],
                            C[row : row + block_m, at : at + BLOCK_N],
                            clear_accum=step == 0,
                        )
                    else:
                        T.gemm(
                            a,
                            P[step, panel, 0:BLOCK_K, 0:BLOCK_N],
                            C[row : row + block_m, at : at + BLOCK_N],
                            clear_accum=step == 0,
                        )

    return main


@pytest.fixture(scope="module")
def kernel():
    return tilelang.compile(by_panels(), target="cpu")


@pytest.mark.parametrize(("m", "n", "k"), [(40, 64, 96), (41, 65, 97), (19, 31, 1), (60, 32, 480)])
def test_blocks_that_fit_and_blocks_that_do_not(kernel, m, n, k):
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k), "float32"), rng.standard_normal((k, n), "float32")
    steps, panels = -(-k // BLOCK_K), -(-n // BLOCK_N)
    padded = np.zeros((steps * BLOCK_K, panels * BLOCK_N), "float32")
    padded[:k, :n] = b
    packed = np.ascontiguousarray(padded.reshape(steps, BLOCK_K, panels, BLOCK_N).transpose(0, 2, 1, 3))
    whole = np.full((m, n + 3), 7, "float32")
    kernel(a, packed, whole[:, :n])
    exact = a.astype("float64") @ b.astype("float64")
    np.testing.assert_allclose(whole[:, :n], exact, rtol=0, atol=1e-5 * k**0.5)
    assert (whole[:, n:] == 7).all()


def calls(dtype: str) -> list[str]:
    return re.findall(r"tl\.(gemm|tiles|interleave)\.[^\"]+\", (.+)\)", lower(by_panels(dtype), AMX).trace.text())


@pytest.fixture(scope="module")
def inside() -> list[str]:
    """The arguments of the kernels of blocks that fit."""
    found = [args for what, args in calls("float32") if what == "gemm" and "T.address_of(C[" in args]
    assert found
    return found


def test_nothing_of_a_block_that_fits_is_copied(inside):
    assert all("T.address_of(P[" in args for args in inside)


def test_the_next_panel_and_the_lines_of_c_are_fetched(inside):
    assert all(args.count("T.address_of(C[") == 2 and "panel + 1" in args for args in inside)


def test_operands_that_are_interleaved_are_copied():
    assert all("T.address_of(C[" not in args for what, args in calls("bfloat16") if what == "tiles")


TILE_M, TILE_N, TILE_K = 20, 40, 48
TURNED = [(False, False), (False, True), (True, False), (True, True)]
LEAVING = [(20, 40, 48), (1, 1, 1), (21, 41, 49), (33, 75, 100), (40, 17, 7), (5, 90, 96)]


def tiles_of_tensors(
    dtype: str, turn_a: bool, turn_b: bool, clear: str, on_chip: bool = False, tile=None, c_dtype=None
):
    """C = A @ B, or C += A @ B, by tiles that nothing copies, or of which C's is `on_chip`; strides of rows are free. C of halves
    is float32 by default."""
    TILE_M, TILE_N, TILE_K = tile or (20, 40, 48)
    sums_dtype = c_dtype or ("float32" if dtype == "bfloat16" else dtype)
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    pitch_a, pitch_b, pitch_c = T.dynamic("pitch_a"), T.dynamic("pitch_b"), T.dynamic("pitch_c")

    @T.prim_func
    def main(
        A: T.StridedTensor((k, m) if turn_a else (m, k), (pitch_a, 1), dtype),
        B: T.StridedTensor((n, k) if turn_b else (k, n), (pitch_b, 1), dtype),
        C: T.StridedTensor((m, n), (pitch_c, 1), sums_dtype),
    ):
        with T.Kernel(T.ceildiv(n, TILE_N), T.ceildiv(m, TILE_M)) as (x, y):
            rows, columns = slice(y * TILE_M, y * TILE_M + TILE_M), slice(x * TILE_N, x * TILE_N + TILE_N)
            if on_chip:
                sums = T.alloc_fragment((TILE_M, TILE_N), sums_dtype)
                T.copy(C[y * TILE_M, x * TILE_N], sums)
            for step in T.serial(T.ceildiv(k, TILE_K)):
                at = slice(step * TILE_K, step * TILE_K + TILE_K)
                T.gemm(
                    A[at, rows] if turn_a else A[rows, at],
                    B[columns, at] if turn_b else B[at, columns],
                    sums if on_chip else C[rows, columns],
                    transpose_A=turn_a,
                    transpose_B=turn_b,
                    clear_accum=step == 0 if clear == "step" else False,
                )
            if on_chip:
                T.copy(sums, C[y * TILE_M, x * TILE_N])

    return main


def here(level: str) -> Target:
    """The target of a level that this processor has."""
    if level == PAIRS and not host_features().bf16:
        pytest.skip("this processor has no instruction that multiplies pairs of bfloat16")
    return Target("cpu", level)


def guarded(rng: np.random.Generator, rows: int, columns: int, dtype: str) -> np.ndarray:
    """A matrix whose last element is the last of readable memory, rows apart by NaN, or by the largest number."""
    item, page = np.dtype(dtype).itemsize, mmap.PAGESIZE
    pitch = columns + 3
    size = (rows * pitch - 3) * item
    pages = -(-size // page)
    memory = mmap.mmap(-1, (pages + 1) * page)
    MEMORY.append(memory)  # as long as the test runs
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + pages * page), ctypes.c_size_t(page), 0) == 0
    flat = np.frombuffer(memory, dtype, rows * pitch - 3, offset=pages * page - size)
    integers, bytes_only = np.dtype(dtype).kind in "iu", item == 1
    flat[:] = np.iinfo(dtype).max if integers else np.nan
    matrix = np.lib.stride_tricks.as_strided(flat, (rows, columns), (pitch * item, item))
    least, most = (np.iinfo(dtype).min, np.iinfo(dtype).max + 1) if bytes_only else (-8, 8)
    matrix[:] = rng.integers(least, most, (rows, columns)) if integers else rng.standard_normal((rows, columns))
    return matrix


MEMORY: list[mmap.mmap] = []


@pytest.fixture(autouse=True)
def _forgets_memory():
    yield
    MEMORY.clear()


@pytest.mark.parametrize("on_chip", [False, True])
@pytest.mark.parametrize("clear", ["step", "never"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bfloat16"])
@pytest.mark.parametrize("turned", TURNED)
def test_tiles_that_leave_their_tensors(turned, dtype, clear, on_chip):
    """Nothing behind a tensor is read, nothing beside its rows used or written."""
    kernel = tilelang.compile(tiles_of_tensors(dtype, *turned, clear, on_chip), target="cpu")
    for m, n, k in LEAVING:
        rng = np.random.default_rng(m + n + k)
        a, b = (guarded(rng, *shape[:: -1 if turn else 1], dtype) for shape, turn in zip(((m, k), (k, n)), turned))
        c = guarded(rng, m, n, "float32" if dtype == "bfloat16" else dtype)
        apart = np.lib.stride_tricks.as_strided(c, (m - 1, n + 3), c.strides)[:, n:]  # what lies between rows
        before, kept = c.astype("float64"), apart.copy()
        kernel(a, b, c)
        exact = (a.T if turned[0] else a).astype("float64") @ (b.T if turned[1] else b).astype("float64")
        exact += 0 if clear == "step" else before
        np.testing.assert_allclose(c, exact, rtol=0, atol={"float64": 1e-13, "int32": 0}.get(dtype, 1e-5) * k)
        np.testing.assert_array_equal(apart, kept)


@pytest.mark.parametrize("turn_b", [False, True])
@pytest.mark.parametrize("turn_a", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_many_rows_share_panels(dtype, turn_a, turn_b):
    """Which are packed from B in its tensor, in whatever order it lies: by the first rows that meet a B that lies row by row,
    which fewer rows read where it lies."""
    few, many = (tiles_of_tensors(dtype, turn_a, turn_b, "step", tile=(rows, 40, 48)) for rows in (127, 128))
    assert (packs(many), "tl.turn." in text_of(many)) == (not turn_b, turn_b)
    large = tiles_of_tensors(dtype, turn_a, turn_b, "step", tile=(128, 520, 512))  # more than 2^20 bytes
    assert not packs(few)
    assert not packs(large)
    kernel = tilelang.compile(many, target="cpu")
    for m, n, k in (*LEAVING, (128, 40, 48), (300, 85, 100)):
        rng = np.random.default_rng(m + n + k)
        a, b = (guarded(rng, *s[:: -1 if t else 1], dtype) for s, t in zip(((m, k), (k, n)), (turn_a, turn_b)))
        c = guarded(rng, m, n, dtype)
        apart = np.lib.stride_tricks.as_strided(c, (m - 1, n + 3), c.strides)[:, n:]
        kept = apart.copy()
        kernel(a, b, c)
        exact = (a.T if turn_a else a).astype("float64") @ (b.T if turn_b else b).astype("float64")
        np.testing.assert_allclose(c, exact, rtol=0, atol={"float64": 1e-13, "int32": 0}.get(dtype, 1e-5) * k)
        np.testing.assert_array_equal(apart, kept)


def test_rows_on_chip_share_panels_earlier():
    assert [packs(by_panels(block_m=rows)) for rows in (63, 64)] == [False, True]


def of_rows_on_chip(types: tuple[str, str], turn_b: bool, clear: str, tile: tuple[int, int, int]):
    """C = A @ B, or C += A @ B, of bytes: A's rows are copied, B and C lie in tensors."""
    TILE_M, TILE_N, TILE_K = tile
    m, n, k, pitch_b, pitch_c = (T.dynamic(name) for name in ("m", "n", "k", "pitch_b", "pitch_c"))

    @T.prim_func
    def main(
        A: T.Tensor((m, k), types[0]),
        B: T.StridedTensor((n, k) if turn_b else (k, n), (pitch_b, 1), types[1]),
        C: T.StridedTensor((m, n), (pitch_c, 1), "int32"),
    ):
        with T.Kernel(T.ceildiv(n, TILE_N), T.ceildiv(m, TILE_M)) as (x, y):
            a = T.alloc_shared((TILE_M, TILE_K), types[0])
            row, columns = y * TILE_M, slice(x * TILE_N, x * TILE_N + TILE_N)
            for step in T.serial(T.ceildiv(k, TILE_K)):
                at = slice(step * TILE_K, step * TILE_K + TILE_K)
                T.copy(A[row, step * TILE_K], a)
                T.gemm(
                    a,
                    B[columns, at] if turn_b else B[at, columns],
                    C[row : row + TILE_M, columns],
                    transpose_B=turn_b,
                    clear_accum=step == 0 if clear == "step" else False,
                )

    return main


@pytest.mark.parametrize("clear", ["step", pytest.param("never", marks=pytest.mark.full)])
@pytest.mark.parametrize("tile", [(20, 40, 48), pytest.param((17, 32, 130), marks=pytest.mark.full)])
@pytest.mark.parametrize("turn_b", [False, True])
@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"), ("uint8", "int8")])
@pytest.mark.parametrize("level", [pytest.param("x86-64-v3", marks=pytest.mark.full), PAIRS])
def test_quads_of_bytes_in_tensors(level, types, turn_b, tile, clear):
    """Where an instruction multiplies quads, B is packed from where it lies, with flipped signs if these are A's, and C added to
    where it lies."""
    func = of_rows_on_chip(types, turn_b, clear, tile)
    assert staged(func, PAIRS) == []
    text = lower(func, Target("cpu", PAIRS)).trace.text()
    assert re.search(rf"tl\.{'turn' if turn_b else 'groups'}\.[\d_.]+\.{'x' if types[0] == types[1] else 'n'}", text)
    kernel = tilelang.compile(func, target=here(level))
    for m, n, k in (*LEAVING, (60, 85, 100), (20, 40, 260)):
        rng = np.random.default_rng(m + n + k)
        a = rng.integers(np.iinfo(types[0]).min, np.iinfo(types[0]).max + 1, (m, k)).astype(types[0])
        b, c = guarded(rng, *((n, k) if turn_b else (k, n)), types[1]), guarded(rng, m, n, "int32")
        apart = np.lib.stride_tricks.as_strided(c, (m - 1, n + 3), c.strides)[:, n:]
        before, kept = c.copy(), apart.copy()
        kernel(a, b, c)
        exact = a.astype("int32") @ (b.T if turn_b else b).astype("int32") + (0 if clear == "step" else before)
        np.testing.assert_array_equal(c, exact)
        np.testing.assert_array_equal(apart, kept)


def packs(func) -> bool:
    """Whether a kernel packs B as it multiplies."""
    return re.search(r"tl\.gemm\.\w+\.[\d_]+\.[a-v]*w", text_of(func)) is not None


def text_of(func) -> str:
    return lower(func, Target("cpu", "x86-64-v3")).trace.text()


def test_of_an_a_on_chip_all_rows_are_there():
    """Its kernels ask of C's rows alone which are, and need no register for each row's distance."""
    on_chip = set(re.findall(r"tl\.gemm\.f32\.[\d_]+\.(\w+)", lower(by_panels(), AMX).trace.text()))
    in_tensor = set(
        re.findall(r"tl\.gemm\.f32\.[\d_]+\.(\w+)", text_of(tiles_of_tensors("float32", *TURNED[0], "step")))
    )
    assert {flags for flags in on_chip if "r" in flags} == {"ra", "ras"}
    assert {flags for flags in in_tensor if "r" in flags} == {"r", "rs"}


@pytest.mark.parametrize(("level", "on_chip"), [("x86-64-v3", False), (PAIRS, False), (PAIRS, True)])
@pytest.mark.parametrize("clear", ["step", "never"])
@pytest.mark.parametrize("turned", TURNED)
def test_sums_that_become_halves_are_rounded_once_a_product(turned, clear, level, on_chip):
    """As above, C of bfloat16: in a tensor, where an instruction multiplies pairs, its kernels round what they store."""
    func = tiles_of_tensors("bfloat16", *turned, clear, on_chip, c_dtype="bfloat16")
    assert ("C_tile" in staged(func, level)) == (level != PAIRS)
    kernel = tilelang.compile(func, target=here(level))
    for m, n, k in LEAVING:
        rng = np.random.default_rng(m + n + k)
        a, b = (guarded(rng, *s[:: -1 if t else 1], "bfloat16") for s, t in zip(((m, k), (k, n)), turned))
        c = guarded(rng, m, n, "bfloat16")
        apart = np.lib.stride_tricks.as_strided(c, (m - 1, n + 3), c.strides)[:, n:]
        before, kept = c.astype("float64"), apart.astype("float64")
        expected = rounded_by_steps(a.T if turned[0] else a, b.T if turned[1] else b, before, clear, TILE_K)
        kernel(a, b, c)
        # Sums of float32 and float64 may lie on two sides of where a rounding turns: by one place of 8 bits, of what was there
        # between products as well.
        between = 0.0 if k <= TILE_K else 2.0**-7 * np.abs(expected).max()
        np.testing.assert_allclose(c.astype("float64"), expected, rtol=2.0**-7, atol=1e-5 * k + between)
        np.testing.assert_array_equal(apart.astype("float64"), kept)
        assert (c.astype("float64") == expected).mean() > 0.9


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    "tile",
    [
        (20, 40, 64),
        (70, 160, 544),
        *(pytest.param(tile, marks=pytest.mark.full) for tile in ((64, 32, 32), (16, 16, 96))),
    ],
)
@pytest.mark.parametrize("clear", ["step", "never"])
@pytest.mark.parametrize("turned", TURNED)
def test_sums_leave_tile_registers_for_a_tensor(turned, clear, tile, dtype, amx):
    """As above; blocks, and the columns of a block, end where C does."""
    func = tiles_of_tensors("bfloat16", *turned, clear, False, tile, dtype)
    copies = staged(func, AMX.arch)
    assert ("A_tile" in copies, "B_tile" in copies, "C_tile" in copies) == (turned[0], False, False)
    kernel = tilelang.compile(func, target=amx)
    for m, n, k in [*LEAVING, (128, 64, 192), (33, 33, 0), (75, 170, 600)]:
        rng = np.random.default_rng(m + n + k)
        deep = max(k, 1)
        a, b = (guarded(rng, *s[:: -1 if t else 1], "bfloat16") for s, t in zip(((m, deep), (deep, n)), turned))
        a, b = (a[:k] if turned[0] else a[:, :k]), (b[:, :k] if turned[1] else b[:k])
        c = guarded(rng, m, n, dtype)
        apart = np.lib.stride_tricks.as_strided(c, (m - 1, n + 3), c.strides)[:, n:]
        before, kept = c.astype("float64"), apart.astype("float64")
        kernel(a, b, c)
        operands = a.T if turned[0] else a, b.T if turned[1] else b
        expected = rounded_by_steps(*operands, before, clear, tile[2], dtype)
        halves = dtype == "bfloat16"
        between = 2.0**-7 * np.abs(expected).max() if halves and k > tile[2] else 0.0
        np.testing.assert_allclose(c.astype("float64"), expected, 2.0**-7 if halves else 0, 1e-5 * deep + between)
        np.testing.assert_array_equal(apart.astype("float64"), kept)
        assert not halves or (c.astype("float64") == expected).mean() > 0.9


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_sums_of_copied_operands_leave_tile_registers(dtype, amx):
    """Nothing says that A and B begin inside of their tensors."""
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "bfloat16"), B: T.Tensor((k, n), "bfloat16"), C: T.Tensor((m, n), dtype), first: T.int32
    ):
        with T.Kernel(T.ceildiv(n, 40), T.ceildiv(m, 20)) as (x, y):
            rows, columns = slice(y * 20, y * 20 + 20), slice(x * 40, x * 40 + 40)
            for step in T.serial(T.ceildiv(k, 64)):
                at = slice(first + step * 64, first + step * 64 + 64)
                T.gemm(A[rows, at], B[at, columns], C[rows, columns], clear_accum=step == 0)

    copies = staged(main, AMX.arch)
    assert ("A_tile" in copies, "B_tile" in copies, "C_tile" in copies) == (True, True, False)
    kernel, rng = tilelang.compile(main, target=amx), np.random.default_rng(0)
    for m_, n_, k_ in ((20, 40, 64), (33, 75, 60), (5, 90, 96), (1, 1, 1), (41, 81, 130)):
        a, b = (rng.standard_normal(shape).astype("bfloat16") for shape in ((m_, k_), (k_, n_)))
        c = np.full((m_, n_), np.nan, dtype)
        kernel(a, b, c, 0)
        exact = a.astype("float64") @ b.astype("float64")
        between = 2.0**-7 * np.abs(exact).max() if dtype == "bfloat16" and k_ > 64 else 0.0
        rounded = 2.0**-8 if dtype == "bfloat16" else 0.0
        np.testing.assert_allclose(c.astype("float64"), exact, rounded, 1e-5 * k_ + between)


def rounded_by_steps(
    a: np.ndarray, b: np.ndarray, before: np.ndarray, clear: str, depth: int, dtype: str = "bfloat16"
) -> np.ndarray:
    """What products of so many steps each make of C, which is rounded after each."""
    found = before
    for first in range(0, a.shape[1], depth):
        start = 0 if clear == "step" and not first else found
        product = a[:, first : first + depth].astype("float64") @ b[first : first + depth].astype("float64")
        found = (start + product).astype(dtype).astype("float64")
    return found


def test_the_smallest_halves_stay_where_nothing_is_added():
    """`vcvtneps2bf16` takes denormals for zeros."""
    kernel = tilelang.compile(
        tiles_of_tensors("bfloat16", False, True, "never", c_dtype="bfloat16"), target=here(PAIRS)
    )
    a, b = (np.zeros((40, 48), "bfloat16") for _ in "ab")
    c = np.full((40, 40), 3e-40, "bfloat16")
    assert c[0, 0] > 0
    kept = c.copy()
    kernel(a, b, c)
    np.testing.assert_array_equal(c, kept)


def test_sums_by_the_instruction_are_never_denormal():
    """As `vdpbf16ps` is defined: so rounding by an instruction that takes denormals for zeros loses nothing."""
    sums, halves = (
        tilelang.compile(tiles_of_tensors("bfloat16", False, True, "step", c_dtype=c), target=here(PAIRS))
        for c in ("float32", "bfloat16")
    )
    # Products of 2^-130; and 1.5 * 2^-126 - 2^-126, whose difference has no normal number.
    for left, right in (([2.0**-70] * 2, [2.0**-60] * 2), ([2.0**-63, 2.0**-63], [1.5 * 2.0**-63, -(2.0**-63)])):
        a, b = (np.zeros((20, 48), "bfloat16") for _ in "ab")
        a[:, :2], b[:, :2] = left, right
        c, rounded = np.ones((20, 20), "float32"), np.ones((20, 20), "bfloat16")
        sums(a, b, c)
        halves(a, b, rounded)
        np.testing.assert_array_equal(c, np.zeros_like(c))
        np.testing.assert_array_equal(rounded.astype("float32"), c)


@pytest.mark.parametrize("clear", ["step", "never"])
@pytest.mark.parametrize(
    ("dtype", "tile"),
    [*(("bfloat16", tile) for tile in [(20, 40, 64), (64, 32, 32), (20, 160, 64), (70, 128, 544)]),
     ("int8", (20, 40, 128)), ("int8", (70, 160, 1088)), ("uint8", (64, 32, 64)),
     *(pytest.param(dtype, tile, marks=pytest.mark.full)
       for dtype, tile in (("bfloat16", (16, 16, 96)), ("int8", (16, 16, 64)), ("int8", (20, 320, 128))))],
)  # fmt: skip
@pytest.mark.parametrize("turned", TURNED)
def test_tile_registers_of_tensors(turned, dtype, tile, clear, amx):
    """As above: blocks at an edge have the registers' shapes, steps that are not whole a copy and zeros; of panels that one walk
    packs some are there, and of strips along k."""
    sums = "float32" if dtype == "bfloat16" else "int32"
    func = tiles_of_tensors(dtype, *turned, clear, True, tile, sums)
    assert ("A_tile" in staged(func, AMX.arch), "B_tile" in staged(func, AMX.arch)) == (turned[0], False)
    kernel = tilelang.compile(func, target=amx)
    few = [(5, 300, 70), (5, 128, 70), (5, 257, 70)]
    for m, n, k in [*LEAVING, (128, 64, 192), (33, 33, 0), *few, (75, 150, 1200), (86, 153, 600)]:
        rng = np.random.default_rng(m + n + k)
        deep = max(k, 1)
        a, b = (guarded(rng, *s[:: -1 if t else 1], dtype) for s, t in zip(((m, deep), (deep, n)), turned))
        a, b = (a[:k] if turned[0] else a[:, :k]), (b[:, :k] if turned[1] else b[:k])
        c = guarded(rng, m, n, sums)
        apart = np.lib.stride_tricks.as_strided(c, (m - 1, n + 3), c.strides)[:, n:]
        before, kept = c.astype("float64"), apart.copy()
        kernel(a, b, c)
        exact = (a.T if turned[0] else a).astype("float64") @ (b.T if turned[1] else b).astype("float64")
        exact += 0 if clear == "step" and k else before
        np.testing.assert_allclose(c, exact, rtol=0, atol=1e-5 * deep)
        np.testing.assert_array_equal(apart, kept)


@pytest.mark.parametrize("on_chip", ["", "together", "apart"])
def test_strips_of_known_sizes(on_chip, amx):
    """Nothing is left out: two strips, of 8 and of 7 steps, by four panels; rows of A a power of two apart. Sums are added up
    panel by panel, or in C, where its rows are not."""
    m, n, k = 64, 128, 480

    @T.prim_func
    def main(A: T.Tensor((m, 512), "bfloat16"), B: T.Tensor((k, n), "bfloat16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1):
            if on_chip:
                held = T.alloc_shared((m, n + (16 if on_chip == "apart" else 0)), "float32")
                sums = held[0:m, 0:n]
                T.gemm(A[:, 0:k], B, sums, clear_accum=True)
                T.copy(sums, C)
            else:
                T.gemm(A[:, 0:k], B, C, clear_accum=True)

    text = lower(main, AMX).trace.text()
    assert "tl.tile_strip.16.8_576" in text  # rows of a copy are a line more than a power of two apart
    row = 576 if on_chip == "apart" else 128
    assert f".32_32_16_576_128_{row}_8_0" in text  # in each step a line of 8 rows of the next strip is fetched
    assert ("tl.tile_leave" in text) == (on_chip != "apart")
    kernel, rng = tilelang.compile(main, target=amx), np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("bfloat16") for shape in ((m, 512), (k, n)))
    c = np.full((m, n), np.nan, "float32")
    kernel(a, b, c)
    np.testing.assert_allclose(c, a[:, :k].astype("float64") @ b.astype("float64"), rtol=0, atol=1e-5 * k)


def test_tile_registers_are_whole_after_an_edge(amx):
    n = T.dynamic("n")

    @T.prim_func
    def main(
        A: T.Tensor((32, 32), "bfloat16"),
        B: T.Tensor((32, n), "bfloat16"),
        W: T.Tensor((32, 32), "bfloat16"),
        C: T.Tensor((32, 32), "float32"),
    ):
        with T.Kernel(1):
            narrow, wide = T.alloc_fragment((16, 16), "float32"), T.alloc_fragment((32, 32), "float32")
            T.gemm(A[0:16, :], B[:, 0:16], narrow, clear_accum=True)
            T.gemm(A, W, wide, clear_accum=True)
            for i, j in T.Parallel(16, 16):
                wide[i, j] += narrow[i, j]
            T.copy(wide, C)

    kernel, rng = tilelang.compile(main, target=amx), np.random.default_rng(0)
    a, w = (rng.standard_normal((32, 32)).astype("bfloat16") for _ in range(2))
    for n in (9, 16, 20):
        b, c = guarded(rng, 32, n, "bfloat16"), np.empty((32, 32), "float32")
        kernel(a, np.ascontiguousarray(b), w, c)
        exact = a.astype("float64") @ w.astype("float64")
        exact[:16, : min(n, 16)] += (a.astype("float64") @ b.astype("float64"))[:16, :16]
        np.testing.assert_allclose(c, exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("clears", [True, "step"])
def test_a_cleared_tile_is_zero_where_the_product_ends(dtype, clears):
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def main(
        A: T.StridedTensor((m, k), (T.dynamic("pitch_a"), 1), dtype),
        B: T.StridedTensor((k, n), (T.dynamic("pitch_b"), 1), dtype),
        C: T.Tensor((TILE_M, TILE_N), "float32"),
    ):
        with T.Kernel(1):
            sums = T.alloc_fragment((TILE_M, TILE_N), "float32")
            T.fill(sums, 7.0)
            for step in T.serial(1 if clears is True else 2):
                at = slice(step * TILE_K, step * TILE_K + TILE_K)
                T.gemm(A[0:TILE_M, at], B[at, 0:TILE_N], sums, clear_accum=True if clears is True else step == 0)
            T.copy(sums, C)

    assert staged(main) == [] if dtype == "float32" else True
    kernel = tilelang.compile(main, target="cpu")
    for m, n, k in [(20, 40, 48), (3, 40, 48), (20, 17, 47), (1, 1, 1), (19, 39, 0)]:
        rng = np.random.default_rng(m)
        a, b = guarded(rng, m, max(k, 1), dtype)[:, :k], guarded(rng, max(k, 1), n, dtype)[:k]
        c = np.full((TILE_M, TILE_N), 7, "float32")
        kernel(a, b, c)
        exact = np.zeros((TILE_M, TILE_N))
        exact[:m, :n] = a.astype("float64") @ b.astype("float64")
        np.testing.assert_allclose(c, exact, rtol=0, atol=1e-4)


def staged(func, level: str = "x86-64-v3") -> list[str]:
    """Names of the buffers that a kernel copies to."""
    return sorted(set(re.findall(r"\w+_tile\b", lower(func, Target("cpu", level)).trace.text())))


@pytest.mark.parametrize("turned", TURNED)
def test_tiles_that_leave_are_not_copied(turned):
    assert staged(tiles_of_tensors("float32", *turned, "step")) == []


def odd(what: str):
    """Tiles that cannot be read where they lie: A begins before its tensor or has a safe value, or C ends elsewhere than A."""
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def main(A: T.Tensor((m, k), "float32"), B: T.Tensor((k, n), "float32"), C: T.Tensor((TILE_M, n), "float32")):
        with T.Kernel(1):
            if what == "safe value":
                T.annotate_safe_value({A: 2.0})
            for x in T.serial(T.ceildiv(n, TILE_N)):
                first = x - 3 if what == "before" else 0
                columns = slice(x * TILE_N, x * TILE_N + TILE_N)
                T.gemm(A[first : first + TILE_M, 0:TILE_K], B[0:TILE_K, columns], C[:, columns], clear_accum=True)

    return main


@pytest.mark.parametrize("what", ["before", "safe value", "ends elsewhere"])
def test_other_tiles_are_copied(what):
    func = odd(what)
    assert "A_tile" in staged(func)
    kernel = tilelang.compile(func, target="cpu")
    for m, n, k in [(7, 41, 5), (20, 40, 48), (60, 90, 60)]:
        rng = np.random.default_rng(m)
        a, b = rng.standard_normal((m, k), "float32"), rng.standard_normal((k, n), "float32")
        c = np.full((TILE_M, n), 7, "float32")
        kernel(a, b, c)
        depth = min(k, TILE_K)
        held = np.full((3 + max(m, TILE_M) + 9, depth), 2.0 if what == "safe value" else 0.0)  # from row -3 on
        held[3 : 3 + m] = a[:, :depth]
        for x in range(-(-n // TILE_N)):
            columns, first = slice(x * TILE_N, (x + 1) * TILE_N), x if what == "before" else 3
            exact = held[first : first + TILE_M] @ b[:depth, columns].astype("float64")
            np.testing.assert_allclose(c[:, columns], exact, rtol=0, atol=1e-4)


def test_a_matrix_that_is_not_there_is_zeros():
    """The leading index of a tile may leave its tensor as well: such a tile is copied."""
    batch, k = T.dynamic("batch"), T.dynamic("k")

    @T.prim_func
    def main(
        A: T.Tensor((batch, TILE_M, k), "float32"),
        B: T.Tensor((k, TILE_N), "float32"),
        C: T.Tensor((3, TILE_M, TILE_N), "float32"),
    ):
        with T.Kernel(3) as z:
            T.gemm(A[z, :, 0:TILE_K], B[0:TILE_K, :], C[z, :, :], clear_accum=True)

    assert "A_tile" in staged(main)
    rng = np.random.default_rng(0)
    a, b = guarded(rng, 2 * TILE_M, 30, "float32"), rng.standard_normal((30, TILE_N), "float32")
    a = np.ascontiguousarray(a).reshape(2, TILE_M, 30)
    c = np.full((3, TILE_M, TILE_N), 7, "float32")
    tilelang.compile(main, target="cpu")(a, b, c)
    np.testing.assert_allclose(c[:2], a.astype("float64") @ b, rtol=0, atol=1e-4)
    assert (c[2] == 0).all()


def test_few_rows_by_a_transposed_matrix_that_ends():
    """Scalar products know their strides and sizes: a tile that leaves its tensor is none of theirs."""
    n = T.dynamic("n")

    @T.prim_func
    def main(
        A: T.Tensor((4, 64), "float32"),
        B: T.StridedTensor((n, 64), (67, 1), "float32"),
        C: T.StridedTensor((4, n), (80, 1), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, TILE_N)) as x:
            columns = slice(x * TILE_N, x * TILE_N + TILE_N)
            T.gemm(A[:, :], B[columns, :], C[:, columns], transpose_B=True, clear_accum=True)

    kernel = tilelang.compile(main, target="cpu")
    for n in (1, 40, 41, 75):
        rng = np.random.default_rng(n)
        a, b, c = (
            rng.standard_normal((4, 64), "float32"),
            guarded(rng, n, 64, "float32"),
            np.empty((4, 80), "float32")[:, :n],
        )
        kernel(a, b, c)
        np.testing.assert_allclose(c, a.astype("float64") @ b.T, rtol=0, atol=1e-4)


def test_steps_past_the_end_add_nothing():
    k, n = T.dynamic("k"), T.dynamic("n")
    pitch_a, pitch_b = T.dynamic("pitch_a"), T.dynamic("pitch_b")

    @T.prim_func
    def main(
        A: T.StridedTensor((TILE_M, k), (pitch_a, 1), "float32"),
        B: T.StridedTensor((k, n), (pitch_b, 1), "float32"),
        C: T.Tensor((TILE_M, n), "float32"),
    ):
        with T.Kernel(1):
            for step in T.serial(3):
                at = slice(step * TILE_K, step * TILE_K + TILE_K)
                T.gemm(A[:, at], B[at, 0:TILE_N], C[:, 0:TILE_N], clear_accum=step == 0)

    kernel = tilelang.compile(main, target="cpu")
    assert staged(main) == []
    for k in (1, 48, 50, 144):
        rng = np.random.default_rng(k)
        a, b, c = (
            guarded(rng, TILE_M, k, "float32"),
            guarded(rng, k, TILE_N, "float32"),
            np.empty((TILE_M, TILE_N), "float32"),
        )
        kernel(a, b, c)
        np.testing.assert_allclose(c, a.astype("float64") @ b, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("facts", "notes"),
    [
        (lambda page, pages, row: (page >= 0) & (page < pages) & (row >= 0), []),
        (lambda page, pages, row: (page >= 0) & (row >= 0), ["B is copied.*, as .*page.* < pages is not known"]),
        (
            lambda page, pages, row: (page >= 0) & (page < pages),
            ["A is copied.*, as .*>= 0 is not known", "C is copied"],
        ),
    ],
)
def test_the_report_says_why_a_tile_is_copied(facts, notes):
    """Which the product could have read where it lies, if more were known of its place."""
    m, pages = T.dynamic("m"), T.dynamic("pages")

    @T.prim_func
    def main(
        A: T.Tensor((m, 64), "float32"),
        B: T.Tensor((pages, 64, 64), "float32"),
        table: T.Tensor((2,), "int32"),
        C: T.Tensor((m, 64), "float32"),
    ):
        with T.Kernel(1):
            page, row = table[0], table[1]
            T.assume(facts(page, pages, row))
            T.gemm(A[row : row + 64, 0:64], B[page, 0:64, 0:64], C[row : row + 64, 0:64], clear_accum=True)

    module = lower(main, Target("cpu", "x86-64-v3"))
    module.trace.text()
    found = [note["text"] for note in module.context.report.to_json()["notes"] if note["text"].startswith("T.gemm")]
    assert len(found) == len(notes)
    for text, pattern in zip(found, notes):
        assert re.match(f"T.gemm: {pattern}", text), text
