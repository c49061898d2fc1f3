"""What a call of a traced function looks like: the manifest's params, dims and outputs, read off the PrimFunc.

Shared by the compiler (which puts it into an artifact) and by `execution="interpret"`, so both take the same calls.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

_OPERATORS: dict[type, str] = {
    tir.Add: "+",
    tir.Sub: "-",
    tir.Mul: "*",
    tir.FloorDiv: "floordiv",
    tir.FloorMod: "floormod",
    tir.Min: "min",
    tir.Max: "max",
    tir.EQ: "==",
    tir.NE: "!=",
    tir.LT: "<",
    tir.LE: "<=",
    tir.GT: ">",
    tir.GE: ">=",
    tir.And: "and",
    tir.Or: "or",
}


def user_parameters(func: Any) -> list[Any]:
    """The parameters that a call passes: all but the dynamic dimensions at the end."""
    return list(func.params)[: len(described(func))]


def described(func: Any) -> list[dict[str, str]]:
    """Name and dtype of each user parameter, as the user wrote them (`tl.params`)."""
    if func.attrs is not None and "tl.params" in func.attrs:
        return list(json.loads(str(func.attrs["tl.params"])))
    # A function built by hand: every parameter but scalar ones that some shape mentions.
    mentioned = {v for p in func.params if tile_ir.is_buffer(p) for e in p.ty.shape for v in tile_ir.walk(e)}
    users = [p for p in func.params if tile_ir.is_buffer(p) or p not in mentioned]
    return [{"name": str(p.name), "dtype": tile_ir.dtype_name(p)} for p in users]


def expression(node: Any, names: dict[Any, list[Any]]) -> Any:
    """An integer tirx expression as a manifest expression; `names` maps variables to ["dim", n] or ["param", n].

    Raises KeyError for a variable that no call binds, TypeError for a node that manifests do not have.
    """
    if isinstance(node, int):
        return node
    if isinstance(node, tir.IntImm):
        return int(node.value)
    if isinstance(node, ir.Var):
        return names[node]
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        return [operator, expression(node.a, names), expression(node.b, names)]
    if isinstance(node, tir.Not):
        return ["not", expression(node.a, names)]
    if isinstance(node, tir.Select):
        parts = (node.condition, node.true_value, node.false_value)
        return ["select", *(expression(p, names) for p in parts)]
    if isinstance(node, tir.Cast):
        return expression(node.value, names)
    raise TypeError(f"a size cannot be computed before the launch: {node} ({type(node).__name__})")


def variables(func: Any) -> dict[Any, list[Any]]:
    """Every integer variable that a call binds: scalar parameters and dynamic dimensions."""
    users = user_parameters(func)
    names: dict[Any, list[Any]] = {}
    for var in func.params:
        if tile_ir.is_buffer(var):
            continue
        kind = "param" if any(var.same_as(u) for u in users) else "dim"
        names[var] = [kind, str(var.name)]
    return names


def signature(func: Any, access: dict[str, str] | None = None) -> dict[str, Any]:
    """`params`, `dims` and `outputs` of a manifest (docs/internals/runtime.md) for a traced function.

    `access` maps parameter names to r, w, rw or none; rw where it says nothing. Raises UnboundDimension for a dynamic
    dimension that no shape gives directly or by one linear equation.
    """
    names = variables(func)
    users = user_parameters(func)
    notes = described(func)
    outputs = (
        [int(i) for i in func.attrs["tl.outputs"]] if func.attrs is not None and "tl.outputs" in func.attrs else []
    )
    params: list[dict[str, Any]] = []
    for node, note in zip(users, notes):
        dtype = dtype_of(note["dtype"])
        if not tile_ir.is_buffer(node):
            params.append({"name": note["name"], "kind": "scalar", "dtype": str(dtype), "shape": []})
            continue
        shape = [expression(e, names) for e in node.ty.shape]
        strides = [expression(s, names) for s in node.ty.strides] or None
        scalar = dtype.scalar
        if dtype.lanes > 1:
            # A vector type is a last dimension of its lanes in the arrays that carry it.
            shape, strides = [*shape, dtype.lanes], None if strides is None else [*strides, 1]
        params.append(
            {  # a tensor
                "name": note["name"],
                "kind": "tensor",
                "dtype": str(scalar),
                "shape": shape,
                "strides": strides,
                "access": (access or {}).get(note["name"], "rw"),
            }
        )
    return {
        "params": params,
        "dims": _dims(func, users, names, outputs),
        "outputs": [notes[i]["name"] for i in outputs],
    }


def _dims(func: Any, users: list[Any], names: dict[Any, list[Any]], outputs: list[int]) -> list[dict[str, Any]]:
    """For each dynamic dimension, the extent (or stride) that gives it: inputs first, and of these plain mentions."""
    wanted = [v for v in func.params if v in names and names[v][0] == "dim"]
    inputs = [i for i in range(len(users)) if i not in outputs]
    found: dict[Any, dict[str, Any]] = {}
    for order, plain_only in itertools.product((inputs, outputs), (True, False)):
        for i in order:
            node = users[i]
            if not tile_ir.is_buffer(node):
                continue
            for of, parts in (("shape", node.ty.shape), ("strides", node.ty.strides)):
                for axis, part in enumerate(parts):
                    solved = _linear(part, wanted)
                    if solved is None or solved[0] in found or (plain_only and solved[1:] != (1, 0)):
                        continue
                    var, scale, offset = solved
                    found[var] = {
                        "name": str(var.name),
                        "param": str(node.name),
                        "axis": axis,
                        "of": of,
                        "scale": scale,
                        "offset": offset,
                    }
    missing = [str(v.name) for v in wanted if v not in found]
    if missing:
        from tilelang.errors import UnboundDimension

        raise UnboundDimension(
            f"the dynamic dimension {', '.join(missing)} cannot be read off any argument",
            found="it stands only in shapes with several unknowns, or in none",
            expected="a tensor with a dimension `m` or `a * m + b`",
            repair="add a parameter that has it as an extent, or pass it as a scalar parameter `m: T.int32`",
        )
    return [found[v] for v in wanted]


def _linear(node: Any, wanted: list[Any]) -> tuple[Any, int, int] | None:
    """(variable, scale, offset) when `node` is scale * variable + offset with scale > 0."""
    if isinstance(node, ir.Var):
        return (node, 1, 0) if node in wanted else None
    if isinstance(node, tir.Mul):
        for x, y in ((node.a, node.b), (node.b, node.a)):
            inner, factor = _linear(x, wanted), tile_ir.static(y)
            if inner is not None and factor is not None and factor > 0:
                return inner[0], inner[1] * factor, inner[2] * factor
    if isinstance(node, (tir.Add, tir.Sub)):
        sign = 1 if isinstance(node, tir.Add) else -1
        inner, shift = _linear(node.a, wanted), tile_ir.static(node.b)
        if inner is not None and shift is not None:
            return inner[0], inner[1], inner[2] + sign * shift
    return None
