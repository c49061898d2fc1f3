"""Divisions by a number that the call gives: once per block where its indices and the arguments decide them.

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

from tilelang.ir import tile_ir

from .expressions import dtype_of
from .legalize_types import call_helper

_PLAIN = (prim.IntImm, prim.Cast, prim.Add, prim.Sub, prim.Mul, prim.Min, prim.Max)
_NAMES = {prim.FloorDiv: "floordiv", prim.FloorMod: "floormod"}


def divide_once(body: Any, known: Iterable[Any]) -> Any:
    """`body` of a block, with quotients and remainders of the `known` variables bound at its beginning.

    They are bound whether or not the block comes to where they are used: the helpers divide by 0 without a trap.
    """
    variables = set(known)
    found: list[tuple[Any, Any]] = []

    def once(node: Any) -> Any:
        parts = [n for n in tile_ir.walk(node) if isinstance(n, ir.Expr) and not n.same_as(node)]
        plain = all(isinstance(n, _PLAIN) or n in variables for n in parts)
        if isinstance(node.b, prim.IntImm) or dtype_of(node) not in ("int32", "int64") or not plain:
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
