"""What is provable of indices when dimensions are multiples of something."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import ir
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler.ranges import LARGEST_DIM, Ranges
from tile_compiler.variants import whole_rows, whole_tiles
from tilelang.ir import tile_ir

n, m = T.dynamic("n"), T.dynamic("m")


def ranges_of(promise: int, half: bool = False) -> tuple[Ranges, Any, Any]:
    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            T.assume(n % promise == 0)
            A[0, bx * 32] = 0

    (found,) = tile_ir.kernels(kernel)
    return Ranges.of_kernel(kernel, found), found, kernel


@pytest.mark.parametrize(("promise", "inside"), [(16, False), (32, True), (64, True), (96, True), (48, False)])
def test_whole_tiles_need_no_predicate(promise: int, inside: bool) -> None:
    """bx < ceildiv(n, 32): the whole tile is inside if n is a multiple of 32."""
    ranges, kernel, func = ranges_of(promise)
    (bx, _), size = kernel.grid[0], func.params[0].ty.shape[1]
    assert ranges.below(bx * 32 + 31, size) is inside
    assert not ranges.below(bx * 32 + 32, size)


def test_vectors_and_tiles_say_what_extents_must_be() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float16"), B: T.Tensor((n // 2, m), "uint8")):
        with T.Kernel(T.ceildiv(m, 48), threads=32) as bx:
            for k in T.serial(T.ceildiv(n, 64)):
                A[bx * 48, k * 64] = 0
                B[0, bx] = 0

    sizes = {str(v.name): c for v, c in whole_rows(kernel).items()}
    assert sizes == {"n": 8, "m": 16}
    sizes = {str(v.name): c for v, c in whole_tiles(kernel).items()}
    assert sizes == {"n": 64, "m": 48}


def test_tensors_that_no_kernel_mentions_may_have_any_size() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((m,), "float32"), Unused: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(m, 16), threads=32) as bx:
            A[bx * 16] = 0

    assert {str(v.name) for v in whole_rows(kernel)} == {str(v.name) for v in whole_tiles(kernel)} == {"m"}


def test_what_the_user_promises_is_not_asked_again() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(m, 16), T.ceildiv(n, 32), threads=32) as (bx, by):
            T.assume(n % 64 == 0)
            A[bx * 16, by * 32] = 0

    assert not whole_rows(kernel)
    assert {str(v.name): c for v, c in whole_tiles(kernel).items()} == {"m": 16}


def test_simplified_values_name_no_variable_of_proofs() -> None:
    """A Bind of m, known as 32 * m', is not written out as such: m' is declared nowhere."""
    ranges, _, func = ranges_of(32)
    size = func.params[0].ty.shape[1]
    end = tir.Var("end", "int32")
    ranges.define(end, size + 1)
    assert ranges.proves(tir.floormod(end, 32) == 1)
    assert set(_variables(ranges.simplify(end + 1 - 1))) <= {end, size}


def _variables(value: Any) -> list[Any]:
    return [node for node in tile_ir.walk(value) if isinstance(node, ir.Var)]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_a_comparison_of_two_variables_bounds_each_of_them(strict: bool, turned: bool) -> None:
    """k + 2 * i < 64 says k < 64 where i is not negative, and i < 32 where k is not."""
    ranges = Ranges()
    k, i = tir.Var("k", "int32"), tir.Var("i", "int32")
    for var in (k, i):
        ranges.iterate(var, 0, 1000)
    sides = (k + 2 * i, tir.const(64 if strict else 63, "int32"))
    if turned:
        condition = sides[1] > sides[0] if strict else sides[1] >= sides[0]
    else:
        condition = sides[0] < sides[1] if strict else sides[0] <= sides[1]
    with ranges.given(condition):
        assert ranges.proves(k < 64)
        assert ranges.proves(i < 32)
        assert not ranges.proves(k < 63)
        assert not ranges.proves(i < 31)
    assert not ranges.proves(k < 64)
    with ranges.given(k * 3 - i > 10):
        assert ranges.proves(k >= 4)
        assert not ranges.proves(k >= 5)
    dimension = tir.Var("n", "int32")
    with ranges.given(k - i * dimension > 10):  # not linear
        assert not ranges.proves(k >= 1)
    ranges.iterate(dimension, 0, LARGEST_DIM)
    with ranges.given(k < dimension * 64):  # bounds that no int32 holds say nothing
        assert not ranges.proves(k < 999)


@pytest.mark.parametrize(
    ("cut", "below"),
    [
        (lambda x: x & 15, 16),
        (lambda x: tir.Cast("int32", x & 15), 16),
        (lambda x: tir.floormod(x, 10), 10),
        (lambda x: x >> 28, 16),
        (lambda x: tir.Cast("int8", x & 255), None),
        (lambda x: tir.Cast("int32", x), None),
        (lambda x: x >> 0, None),
    ],
)
def test_bits_cut_out_of_what_memory_holds_are_bounded(cut: Any, below: int | None) -> None:
    """And only they: a number may be as large as its type has it, and another one after a conversion that cuts it."""
    words = tir.decl_buffer((64,), "uint32", "words")
    value = cut(tir.BufferLoad(words, [tir.const(0, "int32")]))
    ranges, code = Ranges(), tir.Var("code", str(value.ty))
    ranges.define(code, value)
    index = tir.Cast("int64", code)
    if below is None:
        assert not ranges.proves(index < 127)
    else:
        assert ranges.proves(index >= 0)
        assert ranges.proves(index < below)
        assert not ranges.proves(index < below - 1)


@pytest.mark.parametrize("bound", [False, True])
def test_whole_steps_stay_below_the_length(bound: bool) -> None:
    """step < k // 64 says step * 64 + 63 < k, and no more; of a minimum's whole steps both parts are known."""
    ranges = Ranges()
    k, start, step, part, i = (tir.Var(name, "int32") for name in ("k", "start", "step", "part", "i"))
    for var in (k, start):
        ranges.iterate(var, 0, LARGEST_DIM)
    length = tir.min(start * 64, k - start * 7 * 64)
    whole, count = tir.floordiv(k, 64), tir.floordiv(length, 64)
    if bound:
        names = [tir.Var(name, "int32") for name in ("whole", "length", "count")]
        ranges.define(names[0], whole)
        ranges.define(names[1], length)
        ranges.define(names[2], tir.floordiv(names[1], 64))
        whole, count = names[0], names[2]
    ranges.iterate(step, 1, whole - 1)
    assert ranges.below(step * 64, k)
    assert not ranges.below(step * 64 + 64, k)
    ranges.iterate(step, 0, whole)
    ranges.iterate(part, 0, count)
    ranges.iterate(i, 0, 64)
    assert ranges.below(step * 64 + i, k)
    assert ranges.below(step * 64 + 63, k)
    assert ranges.below(step * 32 + i, k) is False  # by half the width it is true, but not by this proof
    assert not ranges.below(step * 64 + 64, k)
    assert not ranges.below(step * 65, k)
    assert not ranges.below(step * 128 + i, k)
    assert ranges.below(step * 128 + i + 64, k * 2)
    assert ranges.below(start * 7 * 64 + part * 64 + i, k)
    assert not ranges.below(start * 7 * 64 + part * 64 + i + 1, k)


def test_a_loop_that_ends_where_another_variable_says_stays_below_its_end():
    """Of `for i in range(j, 16)`, and of sums with it; not where the index falls, or memory has a part in the end."""
    ranges = Ranges()
    j, i, n, row = (tir.Var(name, "int32") for name in ("j", "i", "n", "row"))
    ranges.iterate(j, 0, 16)
    ranges.iterate(row, 0, 4)
    ranges.iterate(i, j, 16 - j)
    ranges.iterate(n, 0, 16 - j)
    sixteen = tir.const(16, "int32")
    assert ranges.below(i, sixteen)
    assert ranges.below(j + n, sixteen)
    assert ranges.below(row * 16 + i, sixteen * 4)
    assert ranges.below(i * 2, sixteen * 2 - 1)
    assert not ranges.below(i, sixteen - 1)
    assert not ranges.below(i + 1, sixteen)
    assert not ranges.below(j + n + 1, sixteen)
    assert not ranges.below(i + j, sixteen)
    assert not ranges.below(row * 17 + i, sixteen * 4)
    assert ranges.proves(i >= 0)
    assert not ranges.below(16 - i, sixteen)  # 16 in the first turn of j
    end = tir.BufferLoad(tir.decl_buffer((4,), "int32", "ends"), [tir.const(0, "int32")])
    ranges.iterate(i, 0, end)
    assert not ranges.below(i, sixteen)  # nothing of the loop before is known of this one
    assert not ranges.below(i + 16 - end, sixteen)  # what memory held when the loop began it may not hold now
    ranges.iterate(i, j, 16 - j)
    ranges.iterate(i, 0, 20)
    assert not ranges.below(i, sixteen)


def test_a_comparison_around_says_what_lies_below():
    """Times a whole number, and with what ranges say of the rest; it ends with the scope, and falls and other variables say
    nothing."""
    ranges = Ranges()
    row, i, n, other = (tir.Var(name, "int32") for name in ("row", "i", "n", "other"))
    for var in (row, n, other):
        ranges.iterate(var, 0, 1 << 20)
    ranges.iterate(i, 0, 8)
    for condition in (row * 64 + 4 <= n, n >= row * 64 + 4, row * 64 + 3 < n):
        with ranges.given(condition):
            assert ranges.below(row * 128 + i, 2 * n)
            assert ranges.below(row * 64 + tir.floordiv(i, 2), n)
            assert not ranges.below(row * 128 + i + 1, 2 * n)
            assert not ranges.below(row * 64 + i, n)
            assert not ranges.below(row * 64 + other, n)
            assert ranges.below(row * 96 + i, 3 * n)
            assert not ranges.below(row * 200 + i, 3 * n)
            assert not ranges.below(row * 65 + i, n)
        assert not ranges.below(row * 128 + i, 2 * n)
    with ranges.given(row * 64 + 4 >= n):
        assert not ranges.below(row * 64, n)
