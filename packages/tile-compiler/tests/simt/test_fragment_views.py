"""T.reshape and T.view of fragments: other indices and element types over the same registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang.language as T
from tile_compiler.errors import UnsupportedOnTarget

SHAPES = [((1024,), (16, 64)), ((16, 64), (64, 16)), ((6, 35), (7, 30)), ((4, 3, 4), (6, 8))]


@pytest.mark.parametrize("threads", [32, 96])
@pytest.mark.parametrize(("shape", "other"), SHAPES)
def test_a_reshape_moves_nothing(rng: Any, proved: Any, shape: Any, other: Any, threads: int) -> None:
    @T.prim_func
    def turned(A: T.Tensor(shape, "float32"), B: T.Tensor(other, "float32")):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_fragment(shape, "float32")
            T.copy(A, tile)
            seen = T.reshape(tile, other)
            for i, j in T.Parallel(*other):
                seen[i, j] = seen[i, j] * 2 + j
            T.copy(seen, B)

    trace, ctx = proved(turned, [rng.standard_normal(shape).astype("float32"), np.zeros(other, "float32")])
    assert ctx.shared_bytes.get(0, 0) == 0


def product_by_groups(group: int) -> Any:
    @T.prim_func
    def product(
        A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64 // group), "float32")
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            most = T.alloc_fragment((64, 64 // group), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, acc, clear_accum=True)
            T.reduce_max(T.reshape(acc, (64, 64 // group, group)), most, dim=2)
            T.copy(most, C)

    return product


@pytest.mark.parametrize(("group", "arch"), [(2, "sm_80"), (8, "sm_80"), (32, "sm_80"), (8, "gfx942")])
def test_an_accumulator_is_reduced_by_groups_where_it_lies(
    rng: Any, check: Any, proved: Any, group: int, arch: str
) -> None:
    a, b = rng.standard_normal((64, 32)).astype("float16"), rng.standard_normal((32, 64)).astype("float16")
    args = [a, b, np.zeros((64, 64 // group), "float32")]
    agree = proved if arch == "sm_80" else check
    _, ctx = agree(product_by_groups(group), args, 1e-2, 1e-2, arch=arch)
    assert not any("exchange" in note for note in map(str, ctx.report.notes))


@pytest.mark.parametrize("kinds", [("float32", "int32"), ("int32", "int8"), ("int8", "int32"), ("float16", "uint32")])
def test_elements_of_another_width(rng: Any, proved: Any, kinds: tuple[str, str]) -> None:
    source, shown = kinds
    columns = 32 * np.dtype(source).itemsize // np.dtype(shown).itemsize

    @T.prim_func
    def bits(A: T.Tensor((16, 32), source), B: T.Tensor((16, columns), shown)):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((16, 32), source)
            T.copy(A, tile)
            words = T.view(tile, (16, columns), shown)
            for i, j in T.Parallel(16, columns):
                words[i, j] = words[i, j] ^ 3
            T.copy(words, B)

    values = rng.integers(-100, 100, (16, 32)).astype(source)
    proved(bits, [values, np.zeros((16, columns), shown)])


def test_a_view_of_a_view_is_written_through(rng: Any, proved: Any) -> None:
    @T.prim_func
    def chain(A: T.Tensor((8, 32), "float32"), B: T.Tensor((8, 32), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((8, 32), "float32")
            T.copy(A, tile)
            flat = T.reshape(T.view(tile, (256,), "uint32"), (16, 16))
            for i, j in T.Parallel(16, 16):
                flat[i, j] = flat[i, j] & T.uint32(0x7FFFFFFF)
            T.copy(tile, B)

    a = rng.standard_normal((8, 32)).astype("float32")
    proved(chain, [a, np.zeros((8, 32), "float32")])


def test_an_operand_of_a_product_is_a_view(rng: Any, proved: Any) -> None:
    """The instruction fixes where the view lies, and with it the fragment that it shows."""

    @T.prim_func
    def product(A: T.Tensor((2048,), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            flat = T.alloc_fragment((2048,), "float16")
            b = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, flat)
            T.copy(B, b)
            T.gemm(T.reshape(flat, (64, 32)), b, acc, clear_accum=True)
            T.copy(acc, C)

    a, b = rng.standard_normal(2048).astype("float16"), rng.standard_normal((32, 64)).astype("float16")
    proved(product, [a, b, np.zeros((64, 64), "float32")], 1e-2, 1e-2)


def test_two_products_want_one_storage_in_two_layouts(rng: Any, proved: Any) -> None:
    """The second one gets a fragment of its own, and a copy between them."""

    @T.prim_func
    def products(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
        D: T.Tensor((32, 64), "float32"),
    ):
        with T.Kernel(1, threads=64):
            a, b = T.alloc_fragment((64, 32), "float16"), T.alloc_shared((64, 64), "float16")
            first, second = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((32, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b[0:32, :], first, clear_accum=True)
            T.gemm(T.reshape(a, (32, 64)), b, second, clear_accum=True)
            T.copy(first, C)
            T.copy(second, D)

    a, b = rng.standard_normal((64, 32)).astype("float16"), rng.standard_normal((64, 64)).astype("float16")
    _, ctx = proved(products, [a, b, np.zeros((64, 64), "float32"), np.zeros((32, 64), "float32")], 1e-2, 1e-2)
    assert any("is copied to a fragment of its own" in str(note) for note in ctx.report.notes)


@pytest.mark.parametrize("kinds", [("float32", "int32"), ("float32", "uint16"), ("int8", "int32")])
def test_views_of_shared_memory_of_another_width(rng: Any, proved: Any, kinds: tuple[str, str]) -> None:
    source, shown = kinds
    columns = 32 * np.dtype(source).itemsize // np.dtype(shown).itemsize

    @T.prim_func
    def bits(A: T.Tensor((16, 32), source), B: T.Tensor((16, columns), shown)):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((16, 32), source)
            T.copy(A, tile)
            T.copy(T.view(tile, (16, columns), shown), B)

    proved(bits, [rng.integers(-100, 100, (16, 32)).astype(source), np.zeros((16, columns), shown)])


def test_nibbles_in_registers_are_no_bytes(lower: Any) -> None:
    @T.prim_func
    def nibbles(A: T.Tensor((64,), "int8"), B: T.Tensor((128,), "int8")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((64,), "int8")
            T.copy(A, tile)
            halves = T.view(tile, (128,), "int4")
            for i in T.Parallel(128):
                B[i] = T.cast(halves[i], "int8")

    with pytest.raises(UnsupportedOnTarget) as caught:
        lower(nibbles)
    assert "tile shown as int4" in str(caught.value)
    assert "halves = T.view" in str(caught.value)
    assert "T.copy tile to a shared buffer" in str(caught.value)
