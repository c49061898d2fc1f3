"""Quotients and remainders by a number that the call gives are worked out once per block."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.targets.cpu.divide_once import divide_once
from tile_compiler.targets.cpu.lowered import LoweredLaunch
from tilelang.ir import tile_ir


def quarters(x, n, out, guarded=False):
    """out[x, i] = (x // n) * 1000 + (x + i) % n + (x // n)."""
    i = tir.Var("i", "int32")
    value = prim.FloorDiv(x, n) * 1000 + prim.FloorMod(x + i, n) + prim.FloorDiv(x, n)
    store = tir.BufferStore(out, value, [x, i])
    body = tir.For(i, tir.const(0, "int32"), tir.const(4, "int32"), tir.ForKind.SERIAL, store)
    return tir.IfThenElse(prim.NE(n, tir.const(0, "int32")), body, None) if guarded else body


@pytest.mark.parametrize("divisor", [3, 1, -3, 0])
def test_agrees_with_python(run, host, divisor):
    x, n = tir.Var("x", "int32"), tir.Var("n", "int32")
    out = tir.decl_buffer((8, 4), "int32", "out")
    body = quarters(x, n, out, guarded=True)
    launch = LoweredLaunch("tile_main", (out,), (n,), (), 0, (x,), (tir.const(8, "int32"),), body)
    got = np.full((8, 4), -7, np.int32)
    assert run(launch, host, got, dims=[divisor], blocks=8) == 0
    expected = [[(x // divisor) * 1001 + (x + i) % divisor if divisor else -7 for i in range(4)] for x in range(8)]
    np.testing.assert_array_equal(got, expected)


def test_equal_terms_are_bound_once_and_what_a_loop_decides_stays():
    x, n = tir.Var("x", "int32"), tir.Var("n", "int32")
    body = divide_once(quarters(x, n, tir.decl_buffer((8, 4), "int32", "out")), [x, n])
    assert [s.var.name for s in tile_ir.statements(body) if isinstance(s, tir.Bind)] == ["quotient"]
    assert len(list(tile_ir.walk(body, prim.FloorDiv))) == 0
    assert len(list(tile_ir.walk(body, prim.FloorMod))) == 1


def test_a_loop_that_has_others_inside_divides_once_in_each_round():
    """Rows of `quarters` in a loop, by a divisor that is a quotient by a constant itself."""
    x, n = tir.Var("x", "int32"), tir.Var("n", "int32")
    rows = quarters(x, prim.FloorDiv(n + 3, tir.const(4, "int32")), tir.decl_buffer((8, 4), "int32", "out"))
    body = divide_once(tir.For(x, tir.const(0, "int32"), tir.const(8, "int32"), tir.ForKind.SERIAL, rows), [n])
    assert isinstance(body, tir.For)
    assert [s.var.name for s in tile_ir.statements(body.body) if isinstance(s, tir.Bind)] == ["quotient"]
    assert len(list(tile_ir.walk(body, prim.FloorMod))) == 1


@pytest.mark.parametrize("n", [9, 1, -9])
def test_a_loop_that_divides_agrees_with_python(run, host, n):
    z, x, of = tir.Var("z", "int32"), tir.Var("x", "int32"), tir.Var("n", "int32")
    out = tir.decl_buffer((8, 4), "int32", "out")
    rows = quarters(x, prim.FloorDiv(of + 3, tir.const(4, "int32")), out)
    body = tir.For(x, tir.const(0, "int32"), tir.const(8, "int32"), tir.ForKind.SERIAL, rows)
    launch = LoweredLaunch("tile_main", (out,), (of,), (), 0, (z,), (tir.const(1, "int32"),), body)
    got, divisor = np.full((8, 4), -7, np.int32), (n + 3) // 4
    assert run(launch, host, got, dims=[n], blocks=1) == 0
    expected = [[(x // divisor) * 1001 + (x + i) % divisor for i in range(4)] for x in range(8)]
    np.testing.assert_array_equal(got, expected)
