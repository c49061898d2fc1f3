"""Divisions by a number that the call gives: once per block where its indices and the arguments decide them, or once in each
round of a loop.

`bz // chunks` stands in the index of every access that it is part of. TVM's code generator examines each index as a whole,
and the sign of a divisor nobody knows makes that slow: seconds for a kernel with a few such terms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.rewrite import remake_loop
from tilelang.ir import tile_ir

from .expressions import dtype_of
from .legalize_types import call_helper

_PLAIN = (prim.IntImm, prim.Cast, prim.Add, prim.Sub, prim.Mul, prim.Min, prim.Max)
_NAMES = {prim.FloorDiv: "floordiv", prim.FloorMod: "floormod"}


def divide_once(body: Any, known: Iterable[Any]) -> Any:
    """`body` of a block, with quotients and remainders of the `known` variables bound at its beginning, and then those of these
    and the variable of a loop that has others inside at the beginning of that loop's body.

    They are bound whether or not the block comes to where they are used: the helpers divide by 0 without a trap.
    """
    variables = set(known)

    def in_loop(loop: tir.For) -> tir.For:
        if loop.kind != tir.ForKind.SERIAL or not any(True for _ in tile_ir.walk(loop.body, tir.For)):
            return loop
        return remake_loop(loop, body=_bound_first(loop.body, {*variables, loop.loop_var}))

    return tile_ir.map_nodes(_bound_first(body, variables), (tir.For, in_loop))


def _bound_first(body: Any, variables: set[Any]) -> Any:
    """`body` after binds of the quotients and remainders in it that these variables decide, which come to be among them."""
    found: list[tuple[Any, Any]] = []

    def plain(node: Any) -> bool:
        divides = isinstance(node, (prim.FloorDiv, prim.FloorMod)) and isinstance(node.b, prim.IntImm)
        return isinstance(node, _PLAIN) or divides or node in variables

    def once(node: Any) -> Any:
        parts = [n for n in tile_ir.walk(node) if isinstance(n, ir.Expr) and not n.same_as(node)]
        if isinstance(node.b, prim.IntImm) or dtype_of(node) not in ("int32", "int64") or not all(map(plain, parts)):
            return node
        for other, var in found:
            if tvm_ffi.structural_equal(other, node):
                return var
        var = tir.Var("quotient" if isinstance(node, prim.FloorDiv) else "remainder", node.ty)
        found.append((node, var))
        variables.add(var)
        return var

    body = tile_ir.map_nodes(body, (prim.FloorDiv, once), (prim.FloorMod, once))
    binds = [tir.Bind(var, _helper(node)) for node, var in found]
    return tile_ir.sequence([*binds, body])


def _helper(node: Any) -> Any:
    dtype = dtype_of(node)
    return call_helper(dtype, f"tl.division.{_NAMES[type(node)]}.{dtype}.1", node.a, node.b)
