"""Vector loops cut to the width of the machine, then stock `tirx.VectorizeLoop`.

for j in T.vectorized(100)    ->    for o in range(6): for j in T.vectorized(16): ... o * 16 + j ...
                                    for j in T.vectorized(4): ... 96 + j ...

Vectors of which the first lanes alone are there become vectors that say so (`FIRST_LANES`), of which `legal_memory` masks the
loads and stores.

for j in T.vectorized(16): if j < n: B[j] = A[j]    ->    attr("tl.first_lanes", n): for j in T.vectorized(16): B[j] = A[j]
"""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.rewrite import Rewriter, remake_loop
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of as dtype_facts

from .expressions import dtype_of, scalar_of
from .features import CpuFeatures
from .flatten import storage_dtype

#: The attribute of a vector loop's place whose value is the number of its lanes that are there.
FIRST_LANES = "tl.first_lanes"


def split_vector_loops(body: Any, features: CpuFeatures) -> Any:
    """Rewrites VECTORIZED loops of static extent into vectors that fit a register."""
    return _Split(features).body(body)


class _Split(Rewriter):
    def __init__(self, features: CpuFeatures) -> None:
        self.features = features

    def loop(self, node: tir.For) -> Any:
        node = super().loop(node)
        extent = tile_ir.static(node.extent)
        if node.kind != tir.ForKind.VECTORIZED:
            return node
        if extent is None:
            return remake_loop(node, kind=tir.ForKind.SERIAL)
        lanes = self.features.lanes(widest_bits(node.body))
        parts, done = [], 0
        while done < extent:
            lanes = min(lanes, 1 << (extent - done).bit_length() - 1)
            count = (extent - done) // lanes
            parts.append(self._piece(node, done, lanes, count))
            done += count * lanes
        return tile_ir.sequence(parts)

    def _piece(self, node: tir.For, start: int, lanes: int, count: int) -> Any:
        """`count` vectors of `lanes` elements from `start` on."""
        var = node.loop_var
        lane, outer = tir.Var(var.name, "int64"), tir.Var(var.name + "_v", "int64")
        base = node.min + start if count == 1 else node.min + start + outer * lanes
        zero = tir.const(0, "int64")
        body, end = _first_lanes(node)
        body = fresh_names(tile_ir.substitute(body, {var: base + lane}))
        if lanes > 1:
            body = tir.For(lane, zero, tir.const(lanes, "int64"), tir.ForKind.VECTORIZED, body, span=node.span)
            if end is not None:
                body = tir.AttrStmt(zero, FIRST_LANES, end - base, body)
        elif end is not None:
            body = tir.IfThenElse(base < end, body, None)
        else:
            body = tile_ir.substitute(body, {lane: zero})
        if count == 1:
            return body
        return tir.For(outer, zero, tir.const(count, "int64"), tir.ForKind.SERIAL, body, span=node.span)


def _first_lanes(node: tir.For) -> tuple[Any, Any]:
    """The body of a vector loop whose iterations are there up to a number that is the same for all, and that number; the loop's
    own body, and None, of others."""
    guard = node.body
    if not isinstance(guard, tir.IfThenElse) or guard.else_case is not None or not isinstance(guard.condition, prim.LT):
        return guard, None
    low, end = guard.condition.a, guard.condition.b
    while isinstance(low, prim.Cast):
        low = low.value
    if not low.same_as(node.loop_var) or any(n.same_as(node.loop_var) for n in tile_ir.walk(end, ir.Var)):
        return guard, None
    return guard.then_case, end


def fresh_names(body: Any) -> Any:
    """A copy of `body` whose bound and loop variables are new (a body that appears twice must not define one twice)."""
    values: dict[Any, Any] = {}
    for n in tile_ir.walk(body):
        if isinstance(n, tir.Bind):
            values[n.var] = tir.Var(n.var.name, n.var.ty)
        elif isinstance(n, tir.For):
            values[n.loop_var] = tir.Var(n.loop_var.name, n.loop_var.ty)
    return tile_ir.substitute(body, values)


def widest_bits(body: Any) -> int:
    """Bits of the widest element that `body` loads, stores or computes with, index arithmetic left out."""
    widest = 8

    def note(dtype: str) -> None:
        nonlocal widest
        scalar = scalar_of(dtype)[0]
        facts = dtype_facts(scalar)
        # Small floats are computed in float32.
        bits = 32 if facts.is_float and facts.bits < 32 else dtype_facts(storage_dtype(scalar)).bits
        widest = max(widest, bits)

    def value(node: Any) -> None:
        """Types of a value's parts; the indices of loads are left out, and so is what is computed of loops' variables alone
        and then narrowed: mostly constants, as the shifts of codes in a word."""
        if isinstance(node, ir.TensorLoad):
            if dtype_facts(scalar_of(dtype_of(node))[0]).bits > 16:
                note(dtype_of(node))
            return
        for part in () if _is_narrowed_index(node) else _parts(node):
            value(part)
        if isinstance(node, ir.Expr) and hasattr(node, "ty") and _is_data(node):
            note(dtype_of(node))

    for n in tile_ir.walk(body):
        if isinstance(n, tir.BufferStore):
            note_plain = storage_dtype(scalar_of(str(n.buffer.ty.dtype))[0])
            widest = max(widest, dtype_facts(note_plain).bits)
            value(n.value)
        elif isinstance(n, tir.Bind):
            value(n.value)
    return widest


def _is_narrowed_index(node: Any) -> bool:
    if not isinstance(node, prim.Cast) or dtype_of(node.value) != "int32":
        return False
    facts = dtype_facts(scalar_of(dtype_of(node))[0])
    return facts.bits < 32 and not facts.is_float and not any(True for _ in tile_ir.walk(node, ir.TensorLoad, ir.Call))


def _parts(node: Any) -> list[Any]:
    names = ("a", "b", "value", "condition", "true_value", "false_value", "args")
    found: list[Any] = []
    for name in names:
        part = getattr(node, name, None)
        if part is None:
            continue
        found.extend(part if name == "args" else [part])
    return [p for p in found if isinstance(p, ir.Expr) and not isinstance(p, ir.StringImm)]


def _is_data(node: Any) -> bool:
    """Arithmetic counts; variables and constants (indices, mostly) do not."""
    if isinstance(node, (ir.Var, tir.IntImm, tir.FloatImm)):
        return False
    dtype = dtype_of(node)
    try:
        facts = dtype_facts(scalar_of(dtype)[0])
    except ValueError:  # handles
        return False
    return facts.is_float or dtype not in ("int64", "bool")
