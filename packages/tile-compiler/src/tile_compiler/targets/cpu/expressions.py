"""Rebuilding expressions bottom-up, with the types computed anew by the constructors."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir
from tvm.ir import prim

ARITHMETIC = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod, prim.Min, prim.Max)
BITWISE = (prim.BitwiseAnd, prim.BitwiseOr, prim.BitwiseXor, prim.LShift, prim.RShift)
COMPARE = (prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE)
BINARY = frozenset((*ARITHMETIC, *BITWISE, *COMPARE, prim.And, prim.Or))


def dtype_of(node: Any) -> str:
    """The dtype of an expression as text (`float32x4`, `bool`)."""
    return str(node.ty)


def scalar_of(dtype: str) -> tuple[str, int]:
    """(scalar dtype, lanes)."""
    base, x, lanes = dtype.rpartition("x")
    if x and lanes.isdigit() and base:
        return base, int(lanes)
    return dtype, 1


def with_lanes(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def op_name(node: Any) -> str:
    """The last part of a call's operator name (`exp` of `tirx.exp`), or an empty string."""
    return str(getattr(node.op, "name", "")).rsplit(".", 1)[-1] if isinstance(node, ir.Call) else ""


def splat(value: Any, lanes: int) -> Any:
    return value if lanes == 1 else prim.Broadcast(value, lanes)


def const_like(dtype: str, value: float | int) -> Any:
    """A constant of `dtype`, in every lane."""
    scalar, lanes = scalar_of(dtype)
    return splat(tir.const(value, scalar), lanes)


def is_zero(node: Any) -> bool:
    return isinstance(node, prim.IntImm) and int(node.value) == 0


class ExpressionRewriter:
    """Walks an expression; a subclass overrides the node classes it changes and calls `super()` to descend.

    `__call__` dispatches on the class; the method's name is `on_<class>` for the classes below.
    """

    def __call__(self, node: Any) -> Any:
        if not isinstance(node, ir.Expr):
            return node
        kind = type(node)
        if kind in BINARY:
            return self.on_binary(node)
        method = _METHODS.get(kind)
        if method is None:
            return node if isinstance(node, ir.StringImm) else self.on_other(node)
        return getattr(self, method)(node)

    def on_other(self, node: Any) -> Any:
        raise TypeError(f"no rule for expression {type(node).__name__}: {node}")

    def on_var(self, node: Any) -> Any:
        return node

    def on_int(self, node: Any) -> Any:
        return node

    def on_float(self, node: Any) -> Any:
        return node

    def on_binary(self, node: Any) -> Any:
        a, b = self(node.a), self(node.b)
        return node if a.same_as(node.a) and b.same_as(node.b) else type(node)(a, b, span=node.span)

    def on_unary(self, node: Any) -> Any:
        """Not, BitwiseNot."""
        a = self(node.a)
        return node if a.same_as(node.a) else type(node)(a, span=node.span)

    def on_cast(self, node: Any) -> Any:
        value = self(node.value)
        return node if value.same_as(node.value) else prim.Cast(dtype_of(node), value, span=node.span)

    def on_select(self, node: Any) -> Any:
        parts = [self(p) for p in (node.condition, node.true_value, node.false_value)]
        return prim.Select(*parts, span=node.span)

    def on_load(self, node: Any) -> Any:
        return tir.BufferLoad(node.source, [self(i) for i in node.indices], span=node.span)

    def on_ramp(self, node: Any) -> Any:
        return prim.Ramp(self(node.base), self(node.stride), node.lanes, span=node.span)

    def on_broadcast(self, node: Any) -> Any:
        return prim.Broadcast(self(node.value), node.lanes, span=node.span)

    def on_shuffle(self, node: Any) -> Any:
        return prim.Shuffle([self(v) for v in node.vectors], [self(i) for i in node.indices], span=node.span)

    def on_call(self, node: Any) -> Any:
        attrs = None if node.attrs is None else dict(node.attrs.items())
        return ir.Call(node.op, [self(a) for a in node.args], attrs=attrs, ret_ty=node.ty, span=node.span)


_METHODS = {
    ir.Var: "on_var",
    prim.IntImm: "on_int",
    prim.FloatImm: "on_float",
    prim.Not: "on_unary",
    prim.BitwiseNot: "on_unary",
    prim.Cast: "on_cast",
    prim.Select: "on_select",
    ir.TensorLoad: "on_load",
    prim.Ramp: "on_ramp",
    prim.Broadcast: "on_broadcast",
    prim.Shuffle: "on_shuffle",
    ir.Call: "on_call",
}
