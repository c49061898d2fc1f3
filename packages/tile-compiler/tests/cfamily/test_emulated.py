"""Printed kernels run in the emulator (tile_runtime_cpu.emulator): the text means what the IR means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import tirx as tir
from tvm.tirx import AllocBuffer, BufferStore, SeqStmt

from tile_compiler.cfamily.dialect import CUDA
from tile_compiler.cfamily.printer import KernelInput, print_source
from tile_runtime_cpu import emulator

from . import simt_kernels as simt
from .simt_kernels import Load, buffer, local, number, row, var

COUNT = 64


def run(made: KernelInput, grid: tuple[int, int, int], shared_bytes: int, *args: Any) -> None:
    """Launch in the emulator; any finding (a race, an access out of bounds, ...) is an error."""
    module = emulator.compile(print_source([made], CUDA))
    module.launch(made.symbol, grid, (made.num_threads, 1, 1), shared_bytes, list(args)).check()


def each(operation: Callable[..., Any], dtype: str, result: str, *inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`out[tx] = operation(in0[tx], in1[tx], ...)` for 64 threads."""
    tx = var("tx")
    sources = [buffer(f"x{k}", (COUNT,), dtype) for k in range(len(inputs))]
    out = buffer("out", (COUNT,), result)
    body = BufferStore(out, operation(*(Load(s, [tx]) for s in sources)), [tx])
    stored = np.zeros(COUNT, ml_dtypes.bfloat16 if result == "bfloat16" else result)
    run(simt.kernel(body, [*sources, out], threads=((tx, number(COUNT)),)), (1, 1, 1), 0, *inputs, stored)
    return stored


@pytest.fixture
def integers() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    a = rng.integers(-1000, 1000, COUNT, dtype=np.int32)
    b = rng.integers(1, 40, COUNT, dtype=np.int32) * rng.choice([-1, 1], COUNT).astype(np.int32)
    return a, b


@pytest.mark.parametrize(
    ("operation", "meaning"),
    [
        (tir.floordiv, np.floor_divide),
        (tir.floormod, np.remainder),
        (lambda a, b: tir.floordiv(a, number(8)), lambda a, b: a // 8),
        (lambda a, b: tir.floormod(a, number(8)) - tir.floormod(b, number(7)), lambda a, b: a % 8 - b % 7),
        (lambda a, b: a << (b & 63), lambda a, b: np.left_shift(a, b & 63)),
        (lambda a, b: a >> (b & 63), lambda a, b: np.right_shift(a, b & 63)),
        (lambda a, b: (a ^ b) & (a | 12), lambda a, b: (a ^ b) & (a | 12)),
        (lambda a, b: a - (b - a) * 3, lambda a, b: a - (b - a) * 3),
        (
            lambda a, b: tir.Select((a * 3000000) + 1 > (a * 3000000), a, b),
            lambda a, b: np.where(a * np.int32(3000000) + np.int32(1) > a * np.int32(3000000), a, b),
        ),
        (lambda a, b: tir.Select(tir.And(a < b, tir.Or(a > 3, b > 3)), a, b),
         lambda a, b: np.where((a < b) & ((a > 3) | (b > 3)), a, b)),
        (lambda a, b: tir.Min(a, b) + tir.Max(a, b) * 2, lambda a, b: np.minimum(a, b) + np.maximum(a, b) * 2),
        (
            lambda a, b: tir.Cast("int32", tir.Cast("int8", a) * tir.Cast("int8", b)),
            lambda a, b: (a.astype(np.int8) * b.astype(np.int8)).astype(np.int32),
        ),
        (lambda a, b: tir.popcount(a), lambda a, b: np.bitwise_count(a.view(np.uint32)).astype(np.int32)),
    ],
)  # fmt: skip
def test_integers(operation: Any, meaning: Any, integers: Any) -> None:
    np.testing.assert_array_equal(each(operation, "int32", "int32", *integers), meaning(*integers))


@pytest.mark.parametrize("target", ["int8", "uint8", "int32", "float16", "bfloat16"])
def test_conversions_of_floats(target: str) -> None:
    x = np.concatenate([np.linspace(-300, 300, 56), [np.nan, np.inf, -np.inf, 1e20, -1e20, 0.5, -0.5, 127.7]])
    x = x.astype(np.float32)
    got = each(lambda v: tir.Cast(target, v), "float32", target, x)
    if target in ("float16", "bfloat16"):
        with np.errstate(over="ignore"):
            expected = x.astype(got.dtype)
    else:
        limits = np.iinfo(target)
        expected = np.clip(np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0)), limits.min, limits.max).astype(
            target
        )
    np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64))


def test_half_arithmetic_rounds_each_step() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(COUNT).astype(np.float16) for _ in "ab")
    got = each(lambda x, y: x * y - x + y * tir.FloatImm("float16", 0.1), "float16", "float16", a, b)
    np.testing.assert_array_equal(got, a * b - a + b * np.float16(0.1))


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 4), ("float16", 8), ("float16", 2)])
def test_vector_add(dtype: str, lanes: int) -> None:
    count = 1000
    a, b = (np.arange(count, dtype=dtype) * scale for scale in (1, 0.5))
    a, b, c = a.astype(dtype), b.astype(dtype), np.zeros(count, dtype)
    run(simt.vector_add(var("n"), dtype, lanes), (-(-count // (128 * lanes)), 1, 1), 0, a, b, c, count)
    np.testing.assert_array_equal(c, a + b)


def test_a_guarded_row_is_not_read() -> None:
    """A is only as long as the condition says; the emulator would report a read behind it."""
    tx = var("tx")
    a, c, r = buffer("A", (64,)), buffer("C", (256,)), local("r", 4)
    zero, every = tir.Broadcast(tir.FloatImm("float32", 0.0), 4), [row(number(0), 4)]
    loaded = tir.if_then_else(tx < 16, Load(a, [row(tx * 4, 4)]) * tir.Broadcast(Load(a, [number(1)]), 4), zero)
    divided = Load(r, every) + tir.Broadcast(Load(r, [number(0)]), 4)
    steps = [AllocBuffer(r), BufferStore(r, loaded, every), BufferStore(r, divided, every)]
    body = SeqStmt([*steps, BufferStore(c, Load(r, every), [row(tx * 4, 4)])])
    x, out = np.arange(64, dtype=np.float32) + 2, np.zeros(256, np.float32)
    run(simt.kernel(body, [a, c], threads=((tx, number(64)),)), (1, 1, 1), 0, x, out)
    rows = (x * 3).reshape(16, 4)
    np.testing.assert_array_equal(out[:64], (rows + rows[:, :1]).ravel())
    assert not out[64:].any()


def test_gemm() -> None:
    made, shared_bytes = simt.gemm(k=128, n=128)
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((200, 128), (128, 128)))
    c = np.zeros((200, 128), np.float16)
    run(made, (1, 2, 1), shared_bytes, a, b, c, 200)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(c - exact).max() <= 2e-3 * np.abs(exact).max()
