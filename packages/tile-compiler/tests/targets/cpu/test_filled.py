"""Products leave out what a copy filled with zeros: the same results, fewer products, and only where that is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.compile import lower
from tile_compiler.passes.filled_tiles import written_once
from tile_compiler.passes.lower_tile_ops import alias_roots
from tilelang.target import Target

M, N, K = 20, 40, 48
V3 = Target("cpu", "x86-64-v3")
SHAPES = [(20, 40, 48), (1, 1, 1), (21, 41, 49), (33, 75, 100), (40, 17, 7)]


def product(dtype: str, turn_a: bool, turn_b: bool, sums: str = "float32", clear: str = "before") -> Any:
    """C = A @ B by tiles; `clear`: C's tile is cleared "before" the loop, or by the product of the first "step"."""
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def main(
        A: T.Tensor((k, m) if turn_a else (m, k), dtype),
        B: T.Tensor((n, k) if turn_b else (k, n), dtype),
        C: T.Tensor((m, n), sums),
    ):
        with T.Kernel(T.ceildiv(n, N), T.ceildiv(m, M)) as (x, y):
            a = T.alloc_shared((K, M) if turn_a else (M, K), dtype)
            b = T.alloc_shared((N, K) if turn_b else (K, N), dtype)
            c = T.alloc_fragment((M, N), sums)
            if clear == "before":
                T.clear(c)
            for step in T.serial(T.ceildiv(k, K)):
                if turn_a:
                    T.copy(A[step * K, y * M], a)
                else:
                    T.copy(A[y * M, step * K], a)
                if turn_b:
                    T.copy(B[x * N, step * K], b)
                else:
                    T.copy(B[step * K, x * N], b)
                added = False if clear == "before" else step == 0
                T.gemm(a, b, c, transpose_A=turn_a, transpose_B=turn_b, clear_accum=added)
            T.copy(c, C[y * M, x * N])

    return main


def operands(dtype: str, m: int, n: int, k: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(m + n + k)
    if dtype == "int8":
        return rng.integers(-128, 128, (m, k), "int8"), rng.integers(-128, 128, (k, n), "int8")
    return rng.standard_normal((m, k), "float32"), rng.standard_normal((k, n), "float32")


@pytest.mark.parametrize("clear", ["before", "step"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False)])
def test_products_of_all_shapes(dtype: str, turned: tuple[bool, bool], clear: str) -> None:
    sums = "int32" if dtype == "int8" else "float32"
    kernel = tilelang.compile(product(dtype, *turned, sums, clear), target="cpu")
    for m, n, k in SHAPES:
        a, b = (x.astype(dtype) for x in operands(dtype, m, n, k))
        c = np.full((m, n), 7, sums)
        kernel(*(np.ascontiguousarray(x.T) if turn else x for x, turn in zip((a, b), turned, strict=True)), c)
        exact = a.astype("float64") @ b.astype("float64")
        np.testing.assert_allclose(c, exact, rtol=0, atol=0 if dtype == "int8" else 1e-5 * k**0.5)


def test_rows_that_are_left_out_stay_as_they_are() -> None:
    """What follows a product reads all of its tile: rows and columns that only zeros would be added to, or that are cleared."""

    def kernel(clear: bool) -> Any:
        m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

        @T.prim_func
        def main(A: T.Tensor((m, k), "float32"), B: T.Tensor((k, n), "float32"), C: T.Tensor((M, N), "float32")):
            with T.Kernel(1):
                a, b = T.alloc_shared((M, K), "float32"), T.alloc_shared((K, N), "float32")
                c = T.alloc_fragment((M, N), "float32")
                T.fill(c, 3.0)
                T.copy(A[0, 0], a)
                T.copy(B[0, 0], b)
                T.gemm(a, b, c, clear_accum=clear)
                T.copy(c, C)

        return tilelang.compile(main, target="cpu")

    for clear in (False, True):
        compiled = kernel(clear)
        for shape in [(1, 1, 1), (7, 33, 5), (20, 40, 48)]:
            a, b = operands("float32", *shape)
            c = np.zeros((M, N), "float32")
            compiled(a, b, c)
            exact = np.full((M, N), 0.0 if clear else 3.0)
            exact[: shape[0], : shape[1]] += a.astype("float64") @ b.astype("float64")
            np.testing.assert_allclose(c, exact, rtol=0, atol=1e-4)


def test_loops_and_depth_are_bounded() -> None:
    lines = lower(product("float32", False, False), V3).trace.text().splitlines()
    calls = [i for i, line in enumerate(lines) if "tl.gemm." in line]
    columns = set()
    for i in calls:  # after each pass: panels of two vectors, of one where n ends in it, and the last one
        assert 'T.Cast("int64", m)' in lines[i - 1]
        assert 'T.Cast("int64", k)' in lines[i]
        columns.add(lines[i].split("tl.gemm.f32.")[1].split("_")[3])
    assert columns == {"8", "16"}
    bounded = [
        line.split()[0] for line in lines if 'T.Cast("int64", n)' in line and line.strip().startswith(("for t", "if"))
    ]
    assert set(bounded) == {"for", "if"}


def dirty(how: str) -> Any:
    """A tile that is not what a copy before the product left, or of which that is not known."""
    m, k = T.dynamic("m"), T.dynamic("k")

    @T.prim_func
    def main(A: T.Tensor((m, k), "float32"), B: T.Tensor((K, N), "float32"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1):
            a, b = T.alloc_shared((M, K), "float32"), T.alloc_shared((K, N), "float32")
            c = T.alloc_fragment((M, N), "float32")
            T.clear(c)
            T.copy(B[0, 0], b)
            if how == "safe value":
                T.annotate_safe_value({A: 2.0})
            if how == "condition":
                T.fill(a, 1.0)
                if k > 1000:
                    T.copy(A[0, 0], a)
            if how in ("safe value", "store", "later"):
                if how == "later":
                    T.fill(a, 1.0)
                    T.gemm(a, b, c)
                T.copy(A[0, 0], a)
            if how == "store":
                for i, j in T.Parallel(M, K):
                    a[i, j] += 1.0
            T.gemm(a, b, c)
            T.copy(c, C)

    return main


@pytest.mark.parametrize("how", ["safe value", "condition", "store", "later"])
def test_other_tiles_are_multiplied_whole(how: str) -> None:
    (a, _), (_, b) = operands("float32", 7, 1, 5), operands("float32", 1, N, K)
    c = np.zeros((M, N), "float32")
    tilelang.compile(dirty(how), target="cpu")(a, b, c)
    ones, held = np.ones((M, K)), np.full((M, K), 2.0 if how == "safe value" else 0.0)
    held[:7, :5] = a
    tiles = {"safe value": [held], "condition": [ones], "store": [held + 1], "later": [ones, held]}[how]
    np.testing.assert_allclose(c, sum(tile @ b.astype("float64") for tile in tiles), rtol=0, atol=1e-4)


def test_a_tile_of_the_round_before_is_what_that_round_copied() -> None:
    """The product of a round runs before its copy: what the tile lacks is decided by another index."""
    m, k = T.dynamic("m"), T.dynamic("k")

    @T.prim_func
    def main(A: T.Tensor((m, k), "float32"), B: T.Tensor((K, N), "float32"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1):
            a, b = T.alloc_shared((M, K), "float32"), T.alloc_shared((K, N), "float32")
            c = T.alloc_fragment((M, N), "float32")
            T.clear(c)
            T.copy(B[0, 0], b)
            for step in T.serial(3):
                if step > 0:
                    T.gemm(a, b, c)
                T.copy(A[step * M, 0], a)
            T.copy(c, C)

    (a, _), (_, b) = operands("float32", M + 3, 1, K), operands("float32", 1, N, K)
    c = np.zeros((M, N), "float32")
    tilelang.compile(main, target="cpu")(a, b, c)
    tiles = np.zeros((2, M, K))
    tiles.reshape(-1, K)[: M + 3] = a
    np.testing.assert_allclose(c, (tiles[0] + tiles[1]) @ b.astype("float64"), rtol=0, atol=1e-4)


def test_who_has_an_address_may_write() -> None:
    m = T.dynamic("m")

    @T.prim_func
    def main(A: T.Tensor((m, 8), "float32"), B: T.Tensor((m, 8), "float32")):
        with T.Kernel(1):
            once, shown, turned = (T.alloc_shared((8, 8), "float32") for _ in range(3))
            T.copy(A[0, 0], once)
            T.copy(A[0, 0], shown)
            T.atomic_add(shown[0, 0], 1.0)
            T.copy(A[0, 0], turned)
            flat = T.reshape(turned, (64,))
            T.copy(once, B[0, 0])
            T.copy(shown, B[8, 0])
            B[16, 0] = flat[3]

    names = {buffer.name for buffer in written_once(main.body, alias_roots(main.body))}
    assert "once" in names
    assert not names & {"shown", "turned", "flat"}
