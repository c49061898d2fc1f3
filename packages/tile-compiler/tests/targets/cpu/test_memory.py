"""Where elements lie: strides, packed elements, views, reused scratch, private buffers, large tensors; and the entry."""

from __future__ import annotations

import mmap

import ml_dtypes
import numpy as np
import pytest
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.targets.cpu.lowered import LoweredLaunch
from tilelang.interpreter import numerics
from tilelang.ir.dtypes import dtype_of

LOAD, STORE = tir.BufferLoad, tir.BufferStore
VECTORIZED, SERIAL = tir.ForKind.VECTORIZED, tir.ForKind.SERIAL


def var(name: str, dtype: str = "int32"):
    return tir.Var(name, dtype)


def const(value: int, dtype: str = "int32"):
    return tir.const(value, dtype)


def loop(extent, body, kind=SERIAL):
    i = var("i")
    return tir.For(i, const(0), const(extent), kind, body(i))


def launch(params, body, *, scalars=(), scratch=(), size=0, blocks=(), grid=(), **more):
    return LoweredLaunch(
        "tile_main", tuple(params), tuple(scalars), tuple(scratch), size, tuple(blocks), tuple(grid), body, **more
    )


def test_entry_runs_its_range_of_blocks_x_fastest(Runner, host):
    gx, gy, x, y, z = (var(n) for n in ("gx", "gy", "x", "y", "z"))
    out = tir.decl_buffer((const(2), gy, gx), "int32", "out")
    body = STORE(out, x + y * 10 + z * 100, [z, y, x])
    runner = Runner(launch([out], body, scalars=(gx, gy), blocks=(x, y, z), grid=(gx, gy, const(2))), host)
    got = np.full((2, 3, 4), -1, np.int32)
    assert runner(got, dims=[4, 3], begin=5, blocks=20) == 0
    flat = np.array([[[i + j * 10 + k * 100 for i in range(4)] for j in range(3)] for k in range(2)]).reshape(-1)
    np.testing.assert_array_equal(got.reshape(-1)[5:20], flat[5:20])
    assert (got.reshape(-1)[:5] == -1).all()
    assert (got.reshape(-1)[20:] == -1).all()


def test_return_reports_a_failed_assert_and_stops(run, host):
    x = var("x")
    a, out = tir.decl_buffer((8,), "float32", "a"), tir.decl_buffer((8,), "float32", "out")
    failed = tir.IfThenElse(LOAD(a, [x]) > tir.const(5.0, "float32"), tir.Return(const(3)), None)
    body = tir.SeqStmt([failed, STORE(out, LOAD(a, [x]), [x])])
    values, got = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    assert run(launch([a, out], body, blocks=(x,), grid=(const(8),)), host, values, got, blocks=8) == 3
    np.testing.assert_array_equal(got, [0, 1, 2, 3, 4, 5, 0, 0])


def test_scalars_arrive_in_their_types(run, host):
    names = ("int32", "int64", "uint8", "bool", "float32", "float64", "float16", "bfloat16")
    scalars = [var(f"s{i}", d) for i, d in enumerate(names)]
    out = tir.decl_buffer((len(names),), "float64", "out")
    body = tir.SeqStmt([STORE(out, prim.Cast("float64", s), [const(i)]) for i, s in enumerate(scalars)])
    bits = lambda v: int(np.float64(v).view(np.int64))  # noqa: E731
    got = np.zeros(len(names))
    run(
        launch([out], body, scalars=scalars),
        host,
        got,
        dims=[-5, 2**40, 200, 1, bits(1.5), bits(0.1), bits(0.5), bits(3.0)],
    )
    np.testing.assert_array_equal(got, [-5, 2**40, 200, 1, 1.5, 0.1, 0.5, 3.0])


def test_symbolic_shapes_and_strides(run, features):
    n, m, stride = var("n"), var("m"), var("stride")
    a = tir.decl_buffer((n, 21), "float32", "a", strides=[stride, const(1)])
    b = tir.decl_buffer((21, m), "float32", "b")
    x = var("x")
    body = loop(21, lambda j: STORE(b, LOAD(a, [x, j]) + tir.const(1.0, "float32"), [j, x]), VECTORIZED)
    source = np.arange(5 * 30, dtype=np.float32).reshape(5, 30)
    got = np.zeros((21, 5), np.float32)
    run(
        launch([a, b], body, scalars=(n, m, stride), blocks=(x,), grid=(n,)),
        features,
        source,
        got,
        dims=[5, 5, 30],
        blocks=5,
    )
    np.testing.assert_array_equal(got, source[:, :21].T + 1)


def test_offsets_beyond_two_to_the_31(run, host):
    """Row 70000 of 40000 bytes starts at 2.8e9: int32 products would wrap."""
    rows, cols = 70001, 40000
    memory = mmap.mmap(-1, rows * cols)  # untouched pages take no memory
    a = np.frombuffer(memory, np.uint8).reshape(rows, cols)
    buffer = tir.decl_buffer((const(rows), const(cols)), "uint8", "a")
    x = var("x")
    body = loop(32, lambda j: STORE(buffer, tir.const(7, "uint8"), [x * 7, j + 8]), VECTORIZED)
    run(launch([buffer], body, blocks=(x,), grid=(const(10001),)), host, a, begin=10000, blocks=10001)
    assert (a[70000, 8:40] == 7).all()
    assert a[70000, :8].sum() == 0


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn", "int2", "uint1"])
@pytest.mark.parametrize("shift", [0, 1])
def test_packed_rows_are_read_and_written(dtype, shift, run, features):
    """Aligned vectors use whole bytes; shifted ones share bytes with elements that must stay."""
    kind = dtype_of(dtype)
    per = kind.per_byte
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 1 << kind.bits, (3, 72), dtype=np.uint8)
    a = tir.decl_buffer((const(3), const(72)), dtype, "a")
    b = tir.decl_buffer((const(3), const(72)), dtype, "b")
    tile = tir.decl_buffer((const(64),), dtype, "tile", scope="shared")
    x = var("x")
    body = tir.SeqStmt(
        [
            loop(64, lambda j: STORE(tile, LOAD(a, [x, j + shift]), [j]), VECTORIZED),
            loop(64, lambda j: STORE(b, LOAD(tile, [const(63) - j]), [x, j + shift]), VECTORIZED),
        ]
    )
    before = rng.integers(0, 256, (3, 72 // per), dtype=np.uint8)
    got = before.copy()
    run(
        launch([a, b], body, scratch=[(tile, 0)], size=64, blocks=(x,), grid=(const(3),)),
        features,
        numerics.pack(codes, kind.bits),
        got,
        blocks=3,
    )
    expected = numerics.unpack(before, kind.bits)
    expected[:, shift : shift + 64] = codes[:, shift : shift + 64][:, ::-1]
    np.testing.assert_array_equal(numerics.unpack(got, kind.bits), expected)


def test_views_of_another_shape_and_type(run, host):
    a, out = tir.decl_buffer((4, 8), "float32", "a"), tir.decl_buffer((64,), "uint8", "out")
    tile = tir.decl_buffer((4, 8), "float32", "tile", scope="shared")
    line = tir.decl_buffer((32,), "float32", "line", scope="shared")
    as_bytes = tir.decl_buffer((128,), "uint8", "bytes", scope="shared")
    body = tir.SeqStmt(
        [
            tir.DeclBuffer(line, data=tir.buffer_data(tile)),
            tir.DeclBuffer(as_bytes, data=tir.buffer_data(tile)),
            loop(4, lambda i: loop(8, lambda j: STORE(tile, LOAD(a, [i, j]), [i, j]), VECTORIZED)),
            STORE(line, tir.const(-1.0, "float32"), [const(0)]),
            loop(32, lambda j: STORE(out, LOAD(as_bytes, [j]), [j]), VECTORIZED),
            loop(32, lambda j: STORE(out, LOAD(as_bytes, [j * 2 + 1]), [j + 32]), VECTORIZED),
        ]
    )
    values = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    got = np.zeros(64, np.uint8)
    run(launch([a, out], body, scratch=[(tile, 0)], size=128), host, values, got)
    values[0, 0] = -1
    raw = values.reshape(-1).view(np.uint8)
    np.testing.assert_array_equal(got, np.concatenate([raw[:32], raw[1:64:2]]))


def test_scratch_reused_for_other_types_keeps_the_order(run, host):
    """Two buffers of different types at one place: a later store must not move before an earlier load."""
    a = tir.decl_buffer((64,), "float32", "a")
    out, halves = tir.decl_buffer((64,), "float32", "out"), tir.decl_buffer((64,), "int32", "halves")
    first = tir.decl_buffer((64,), "float32", "first", scope="shared")
    second = tir.decl_buffer((64,), "int32", "second", scope="shared")
    body = tir.SeqStmt(
        [
            loop(64, lambda j: STORE(first, LOAD(a, [j]), [j]), VECTORIZED),
            loop(64, lambda j: STORE(out, LOAD(first, [j]), [j]), VECTORIZED),
            loop(64, lambda j: STORE(second, j, [j]), VECTORIZED),
            loop(64, lambda j: STORE(halves, LOAD(second, [const(63) - j]), [j]), VECTORIZED),
        ]
    )
    values, got, other = np.random.rand(64).astype(np.float32), np.zeros(64, np.float32), np.zeros(64, np.int32)
    run(launch([a, out, halves], body, scratch=[(first, 0), (second, 0)], size=256), host, values, got, other)
    np.testing.assert_array_equal(got, values)
    np.testing.assert_array_equal(other, np.arange(63, -1, -1))


def test_private_buffers_loops_and_control(run, host):
    """A private accumulator, break and continue, a while loop."""
    a, out = tir.decl_buffer((100,), "bfloat16", "a"), tir.decl_buffer((2,), "float32", "out")
    total = tir.decl_buffer((1,), "float32", "total", scope="local")
    count = tir.decl_buffer((1,), "int32", "count", scope="local.var")
    zero = const(0)
    i = var("i")
    value = var("value", "float32")
    inner = tir.SeqStmt(
        [
            tir.Bind(value, prim.Cast("float32", LOAD(a, [i]))),
            tir.IfThenElse(value < tir.const(0.0, "float32"), tir.Evaluate(tir.continue_loop()), None),
            tir.IfThenElse(value > tir.const(90.0, "float32"), tir.Evaluate(tir.break_loop()), None),
            STORE(total, LOAD(total, [zero]) + value, [zero]),
        ]
    )
    body = tir.SeqStmt(
        [
            tir.AllocBuffer(total),
            tir.AllocBuffer(count),
            STORE(total, tir.const(0.0, "float32"), [zero]),
            STORE(count, zero, [zero]),
            tir.For(i, zero, const(100), SERIAL, inner),
            tir.While(LOAD(count, [zero]) < const(7), STORE(count, LOAD(count, [zero]) + const(3), [zero])),
            STORE(out, LOAD(total, [zero]), [zero]),
            STORE(out, prim.Cast("float32", LOAD(count, [zero])), [const(1)]),
        ]
    )
    values = np.arange(100).astype(ml_dtypes.bfloat16)
    values[10] = -4
    got = np.zeros(2, np.float32)
    run(launch([a, out], body), host, values, got)
    np.testing.assert_array_equal(got, [sum(range(91)) - 10, 9])


def test_lane_dependent_conditions(run, host):
    a, out = tir.decl_buffer((50,), "float16", "a"), tir.decl_buffer((50,), "float16", "out")
    n = var("n")
    body = loop(
        50, lambda j: tir.IfThenElse(j < n, STORE(out, LOAD(a, [j]) * tir.const(2, "float16"), [j]), None), VECTORIZED
    )
    values, got = np.arange(50).astype(np.float16), np.zeros(50, np.float16)
    run(launch([a, out], body, scalars=(n,)), host, values, got, dims=[33])
    np.testing.assert_array_equal(got, np.where(np.arange(50) < 33, values * 2, 0))


def test_parameters_that_overlap(run, host):
    """`may_alias`: out is a shifted by one element, so the loop carries a value along."""
    a, out = tir.decl_buffer((64,), "int32", "a"), tir.decl_buffer((64,), "int32", "out")
    body = loop(63, lambda j: STORE(out, LOAD(a, [j]) + const(1), [j]))
    memory = np.zeros(65, np.int32)
    run(launch([a, out], body, may_alias=True), host, memory[:64], memory[1:])
    np.testing.assert_array_equal(memory, [*range(64), 0])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "float16", "bfloat16", "uint8"])
@pytest.mark.parametrize("op", ["add", "max", "exchange"])
def test_atomic_updates(dtype, op, run, host):
    from tilelang.ir import tile_ir

    target, old = tir.decl_buffer((4,), dtype, "t"), tir.decl_buffer((4,), dtype, "old")
    address = tir.address_of(LOAD(target, [const(2)]))
    call = tile_ir.call(
        "tl.atomic_elem", [address, tir.const(3, dtype)], {"op": op, "memory_order": "relaxed"}, dtype=dtype
    )
    values = np.array([1, 1, 2, 1]).astype(dtype_of(dtype).as_numpy())
    before = np.zeros_like(values)
    run(launch([target, old], STORE(old, call, [const(0)])), host, values, before)
    assert float(values[2]) == {"add": 5, "max": 3, "exchange": 3}[op]
    assert float(before[0]) == 2
    assert [float(v) for v in values[[0, 1, 3]]] == [1, 1, 1]
