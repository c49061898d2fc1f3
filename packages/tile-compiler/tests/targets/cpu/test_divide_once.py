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
