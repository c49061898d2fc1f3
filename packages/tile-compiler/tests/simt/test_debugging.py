"""`T.print`, `T.device_assert` and texts of the user on CUDA: what the emulator prints and raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.errors import UnsupportedOnTarget
from tile_runtime.errors import KernelAssertError

CUDA = "cuda -arch=sm_80"


def emulated(func: Any, *arguments: Any) -> None:
    tilelang.compile(func, target=CUDA, execution="emulate")(*arguments)


@pytest.mark.parametrize(("dtype", "shown"), [("float16", "-2.5"), ("int8", "-3"), ("uint32", "7"), ("float64", "0.1")])
@pytest.mark.parametrize("scope", ["fragment", "shared", "global"])
def test_tiles_are_printed_in_order_by_one_thread(capsys: Any, dtype: str, shown: str, scope: str) -> None:
    @T.prim_func
    def show(A: T.Tensor((3, 5), dtype)):
        with T.Kernel(2, threads=48) as bx:
            if scope == "global":
                tile = A
            else:
                tile = (T.alloc_fragment if scope == "fragment" else T.alloc_shared)((3, 5), dtype)
                T.copy(A, tile)
            if bx == 1:
                T.print(tile, msg="100% of it")

    values = np.full((3, 5), float(shown), np.dtype(dtype))
    values[2, 4] = 1
    emulated(show, values)
    lines = capsys.readouterr().out.splitlines()
    places = [(i, j) for i in range(3) for j in range(5)]
    assert lines == [f"block 1: 100% of it[{i}, {j}]: {'1' if (i, j) == (2, 4) else shown}" for i, j in places]


def test_scalars_are_printed_once_or_by_each_thread(capsys: Any) -> None:
    @T.prim_func
    def show(A: T.Tensor((3, 5), "int32")):
        with T.Kernel(2, 1, threads=64) as (bx, by):
            tile = T.alloc_fragment((3, 5), "int32")
            T.copy(A, tile)
            tx = T.get_thread_binding()
            if bx == 1:
                T.print(bx + 41, "answer")
                T.print(tile[1, 2], "element")
            if tx >= 62:
                T.print(tx)
            for i, j in T.Parallel(3, 5):
                if i + j == 6:
                    T.print(tile[i, j], "last")

    emulated(show, np.arange(15, dtype=np.int32).reshape(3, 5))
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "block (0, 0), thread 14: last: 14",
        "block (0, 0), thread 62: 62",
        "block (0, 0), thread 63: 63",
        "block (1, 0), thread 14: last: 14",
        "block (1, 0), thread 62: 62",
        "block (1, 0), thread 63: 63",
        "block (1, 0): answer: 42",
        "block (1, 0): element: 7",
    ]


def test_a_fragment_under_a_condition_on_the_thread_is_an_error() -> None:
    @T.prim_func
    def show(A: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((16,), "int32")
            T.copy(A, tile)
            if T.get_thread_binding() < 7:
                T.print(tile)

    with pytest.raises(UnsupportedOnTarget, match=r"the fragment tile under a condition on the thread") as caught:
        tilelang.compile(show, target=CUDA, execution="emulate")
    assert "test_debugging.py" in str(caught.value)


@pytest.mark.parametrize("place", [0, 37, 99])
def test_an_assertion_stops_the_launch_with_the_users_line_and_text(place: int) -> None:
    @T.prim_func
    def bounded(A: T.Tensor((100,), "float32")):
        with T.Kernel(2, threads=64) as bx:
            for i in T.Parallel(64):
                if bx * 64 + i < 100:
                    T.device_assert(A[bx * 64 + i] == A[bx * 64 + i], "no NaN here")
                    T.device_assert(A[bx * 64 + i] < 1, "A holds probabilities")

    values = np.random.default_rng(place).uniform(0.1, 0.9, 100).astype(np.float32)
    emulated(bounded, values)
    values[place] = 1.5
    with pytest.raises(
        KernelAssertError, match=rf"test_debugging.py:\d+: A holds probabilities \(thread {place % 64} "
    ):
        emulated(bounded, values)


def test_an_assertion_of_the_block_reads_fragments() -> None:
    @T.prim_func
    def checked(A: T.Tensor((40,), "int32"), n: T.int32):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((40,), "int32")
            T.copy(A, tile)
            T.device_assert(tile[3] == n, "the third element is n")

    values = np.arange(1, 41, dtype=np.int32)
    emulated(checked, values, 4)
    with pytest.raises(KernelAssertError, match="the third element is n"):
        emulated(checked, values, 5)


def test_the_text_of_an_assertion_reaches_the_device_text() -> None:
    @T.prim_func
    def checked(A: T.Tensor((40,), "int32")):
        with T.Kernel(1, threads=40):
            for i in T.Parallel(40):
                T.device_assert(A[i] > 0, "positive")

    kernel = tilelang.compile(checked, target=CUDA, execution="emulate")
    assert 'tl::device_assert(A[tx] > 0, 1, "test_debugging.py:' in kernel.get_kernel_source()


def test_imported_text_stands_above_the_kernel_once_and_is_called() -> None:
    text = "TL_DEVICE int weighted(const int *a, int w) { return a[0] * w + a[1]; }"

    @T.prim_func
    def call(A: T.Tensor((65,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=32):
            T.import_source(text)
            T.import_source(text)
            for i in T.Parallel(64):
                B[i] = T.call_extern("int32", "weighted", T.address_of(A[i]), i)

    kernel = tilelang.compile(call, target=CUDA, execution="emulate")
    source = kernel.get_kernel_source()
    assert source.count(text) == 1
    assert source.index(text) < source.index("call_kernel(")
    values = np.random.default_rng(3).integers(-999, 999, 65).astype(np.int32)
    result = np.zeros(64, np.int32)
    kernel(values, result)
    np.testing.assert_array_equal(result, values[:-1].astype(np.int64) * np.arange(64) + values[1:])
