"""A product's right operand that stays for all rounds of a loop is prepared in the first one."""

from __future__ import annotations

import re

import ml_dtypes  # noqa: F401 (numpy knows bfloat16 by it)
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.compile import lower
from tile_compiler.targets.cpu.features import host_features
from tilelang.target import Target

ROWS, N, K = 32, 96, 160
LEVELS = ["x86-64-v3", "x86-64-v4+bf16+vnni", "x86-64-v4+bf16+vnni+amx"]


def strips(how: str, dtype: str = "bfloat16", turned: bool = False):
    """C = A @ B by strips of rows; `how` says what keeps B's tile from being the same in all rounds."""
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def main(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((n, k) if turned else (k, n), dtype),
        W: T.Tensor((n, k) if turned else (k, n), dtype),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, N)) as bn:
            some = T.alloc_fragment((ROWS, N), "float32")
            column = bn * N
            for part in T.serial(T.ceildiv(m, ROWS)):
                row = part * ROWS
                at = column if how != "moves" else T.min(part, 0) * N + column
                if how == "written":
                    if turned:
                        T.copy(W[column : column + N, 0:K], B[column, 0])
                    else:
                        T.copy(W[0:K, column : column + N], B[0, column])
                if how == "left":
                    if part == 0:
                        continue
                if how == "asked":
                    if part > 0:
                        T.gemm(
                            A[row : row + ROWS, 0:K],
                            B[at : at + N, 0:K] if turned else B[0:K, at : at + N],
                            some,
                            transpose_B=turned,
                            clear_accum=True,
                        )
                    else:
                        T.clear(some)
                else:
                    T.gemm(
                        A[row : row + ROWS, 0:K],
                        B[at : at + N, 0:K] if turned else B[0:K, at : at + N],
                        some,
                        transpose_B=turned,
                        clear_accum=True,
                    )
                T.copy(some, C[row, column])

    return main


def counted(through: str):
    """A round counts in a corner of B, which its product reads: by an exchange, or through a view."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float32"),
        B: T.Tensor((32, 32), "float32"),
        Seen: T.Tensor((4,), "float32"),
        C: T.Tensor((64, 32), "float32"),
    ):
        with T.Kernel(1):
            some, flat = T.alloc_fragment((16, 32), "float32"), T.view(B, (1024,))
            for part in T.serial(4):
                if through == "exchange":
                    before = T.atomic_add(B[0, 0], 1.0, return_prev=True)
                    Seen[part] = before
                else:
                    Seen[part] = flat[0]
                    flat[0] += 1.0
                T.gemm(A[part * 16 : part * 16 + 16, :], B, some, transpose_B=True, clear_accum=True)
                T.copy(some, C[part * 16, 0])

    return main


@pytest.mark.parametrize("through", ["exchange", "view"])
def test_an_element_that_a_round_writes_is_seen_by_its_product(through):
    kernel, rng = tilelang.compile(counted(through), target=Target("cpu", LEVELS[0])), np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((64, 32), (32, 32)))
    b[0, 0] = 0
    given = b.copy()
    c, seen = np.empty((64, 32), "float32"), np.empty(4, "float32")
    kernel(a, given, seen, c)
    assert seen.tolist() == [0, 1, 2, 3]
    for part in range(4):
        b[0, 0] = part + 1
        rows = slice(16 * part, 16 * part + 16)
        np.testing.assert_allclose(c[rows], a[rows].astype("float64") @ b.T.astype("float64"), rtol=0, atol=1e-4)


@pytest.mark.parametrize("level", LEVELS)
def test_columns_that_a_round_leaves_out_are_there_in_the_next(level, request):
    """C's tiles move from its end to its beginning, so that each round has room for more columns of B."""
    n = T.dynamic("n")

    @T.prim_func
    def main(
        A: T.Tensor((32, K), "bfloat16"),
        B: T.Tensor((K, N), "bfloat16"),
        C: T.Tensor((32, n), "float32"),
    ):
        with T.Kernel(1):
            some = T.alloc_fragment((32, N), "float32")
            for part in T.serial(2):
                column = T.alloc_var("int32", init=0)
                column = (1 - part) * 64
                T.gemm(A, B, some, clear_accum=True)
                T.copy(some, C[0, column])
            for part in T.serial(2):
                to = (1 - part) * 64
                T.assume(to >= 0)
                T.gemm(A, B, C[:, to : to + N], clear_accum=True)

    target = request.getfixturevalue("amx") if level.endswith("amx") else here(level)
    kernel, rng = tilelang.compile(main, target=target), np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("bfloat16") for s in ((32, K), (K, N)))
    for n in (70, 100, 160):
        c = np.full((32, n), np.nan, "float32")
        kernel(a, b, c)
        product = a.astype("float64") @ b.astype("float64")
        expected = np.full((32, n), np.nan)
        for to in (64, 0):
            some = product[:, : max(0, n - to)]
            expected[:, to : to + N] = some
        np.testing.assert_allclose(c, expected, rtol=0, atol=1e-5 * K)


def prepared(func, level: str) -> str:
    """The line above the loop in which panels of B are made."""
    lines = lower(func, Target("cpu", level)).trace.text().splitlines()
    last = max(i for i, line in enumerate(lines) if re.search(r'"tl\.(turn|groups)\.', line))
    return lines[last - 2].strip()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("level", LEVELS[1:])
def test_it_is_prepared_in_the_first_round(level, turned):
    assert prepared(strips("stays", turned=turned), level) == "if not part > 0:"


@pytest.mark.parametrize("moves", [False, True])
def test_a_strip_fetches_the_next_rows_where_the_next_round_reads_them(moves):
    """A share of 8 of them beside each of four panels; in a round of its own a single block of rows fetches none."""
    m = T.dynamic("m")

    @T.prim_func
    def main(
        A: T.Tensor((m, 1024), "bfloat16"), B: T.Tensor((1024, 256), "bfloat16"), C: T.Tensor((m, 128), "float32")
    ):
        with T.Kernel(1):
            some = T.alloc_fragment((32, 128), "float32")
            for part in T.serial(m // 32):
                first = part % 2 * 128 if moves else 0
                T.assume(first >= 0)
                T.gemm(A[part * 32 : part * 32 + 32, :], B[:, first : first + 128], some, clear_accum=True)
                T.copy(some, C[part * 32, 0])

    text = lower(main, Target("cpu", LEVELS[2])).trace.text()
    assert "tl.tile_strip." in text
    assert bool(re.search(r"tl\.tiles\.amx_bf16\.\S*_8_0", text)) != moves


@pytest.mark.parametrize("how", ["moves", "written", "left", "asked"])
def test_or_in_each(how):
    assert "not part" not in prepared(strips(how), LEVELS[2])


@pytest.mark.parametrize("how", ["stays", "moves", "written", "left", "asked"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_agrees(level, turned, how, request):
    """Rows, columns and steps that fill nothing, and no product at all in the first round."""
    target = request.getfixturevalue("amx") if level.endswith("amx") else here(level)
    kernel, rng = tilelang.compile(strips(how, turned=turned), target=target), np.random.default_rng(0)
    for m, n, k in ((100, 200, 150), (32, 96, 160), (7, 13, 1), (70, 97, 160)):
        shape = (n, k) if turned else (k, n)
        a, b, w = (rng.standard_normal(s).astype("bfloat16") for s in ((m, k), shape, shape))
        c, given = np.full((m, n), np.nan, "float32"), b.copy()
        kernel(a, given, w, c)
        used = (w if how == "written" else b).astype("float64")
        expected = a.astype("float64") @ (used.T if turned else used)
        if how == "asked":
            expected[:ROWS] = 0
        if how == "left":
            expected[:ROWS] = np.nan
        np.testing.assert_allclose(c, expected, rtol=0, atol=1e-5 * 160)


def here(level: str) -> Target:
    """The target of a level that this processor has."""
    if level == LEVELS[1] and not host_features().bf16:
        pytest.skip("this processor has no instruction that multiplies pairs of bfloat16")
    return Target("cpu", level)
