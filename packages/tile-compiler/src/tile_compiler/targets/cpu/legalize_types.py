"""Every element type -> the types that LLVM computes in on x86.

    C[i] = A[i] * B[i]   (bfloat16)    ->    C[i] = tl.cvt.float32.bfloat16(tl.cvt.bfloat16.float32(A[i]) * ...)   (uint16)

bfloat16, float8 and float4 values become their codes (uint16, uint8), bool memory becomes bytes, integers under a byte are
held one per byte. Each operation on a narrow type is computed in float32 (or int8) and rounded (or wrapped) at once: no
excess precision. Runs after `flatten` and vectorization, so values may be vectors. A bfloat16 or float8 value that reached
LLVM un-legalised would crash the process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.rewrite import Rewriter, remake_loop
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of as dtype_facts
from tilelang.ops.dot2 import by_parts

from .conversions import SMALL_FLOATS
from .expressions import (
    ARITHMETIC,
    BITWISE,
    COMPARE,
    ExpressionRewriter,
    const_like,
    dtype_of,
    op_name,
    scalar_of,
    with_lanes,
)
from .flatten import storage_dtype
from .legal_memory import LegalMemory
from .lookup_pairs import pair_of_lookups
from .math import FUNCTIONS
from .vectorize import FIRST_LANES

NARROW_FLOATS = ("float16", "bfloat16", *SMALL_FLOATS, "float8_e8m0fnu")


# Operations that wrap in the language and not in TVM's code generator, which marks them nsw or nuw.
WRAPPING = {prim.Add: "add", prim.Sub: "sub", prim.Mul: "mul"}
DIVISION = {prim.FloorDiv: "floordiv", prim.FloorMod: "floormod", prim.Div: "truncdiv", prim.Mod: "truncmod"}


def value_dtype(dtype: str) -> str:
    """The type that holds a value of `dtype` after legalisation: as in storage, but bool stays bool."""
    scalar, lanes = scalar_of(dtype)
    return with_lanes("bool" if scalar == "bool" else storage_dtype(scalar), lanes)


def has_value(node: Any) -> bool:
    """Whether an expression has an element type: calls may also give nothing (void) or a pointer."""
    return isinstance(node.ty, ir.PrimType) and dtype_of(node) not in ("", "void", "handle")


def is_sub_byte_int(scalar: str) -> bool:
    facts = dtype_facts(scalar)
    return facts.is_integer and facts.bits < 8


def call_helper(dtype: str, name: str, *args: Any) -> Any:
    """A call of one of this target's LLVM helpers (`library.py` writes the text for the name)."""
    return tir.call_pure_extern(dtype, name, *args)


def convert(x: Any, source: str, target: str) -> Any:
    """The legal value `x`, which stands for a value of `source`, as a legal value of `target` (lanes as `x`)."""
    if source == target:
        return x
    lanes = scalar_of(dtype_of(x))[1]
    legal = with_lanes(value_dtype(target), lanes)
    if target == "bool":
        if source in NARROW_FLOATS:
            x, source = convert(x, source, "float32"), "float32"
        return not_equal(x, const_like(dtype_of(x), 0))
    if dtype_facts(source).is_float:
        native = {"float16", "float32", "float64"}
        if target in native and source in native and (source, target) != ("float64", "float16"):
            return prim.Cast(legal, x)
        return call_helper(legal, f"tl.cvt.{source}.{target}.{lanes}", x)
    if not dtype_facts(target).is_float:
        return wrap(prim.Cast(legal, x), target)
    if target in NARROW_FLOATS:  # through a type that holds every such integer, so that it is rounded once
        exact = "float32" if dtype_facts(source).bits <= 16 else "float64"
        return convert(prim.Cast(with_lanes(exact, lanes), x), exact, target)
    return prim.Cast(legal, x)


def not_equal(a: Any, b: Any) -> Any:
    """a != b; for floats by a helper, because TVM's own comparison says that NaN is not unequal to anything."""
    scalar, lanes = scalar_of(dtype_of(a))
    if scalar not in ("float32", "float64"):
        return prim.NE(a, b)
    return call_helper(with_lanes("bool", lanes), f"tl.unequal.{scalar}.{lanes}", a, b)


def wrap(x: Any, dtype: str) -> Any:
    """`x` modulo the width of a sub-byte integer type, sign extended; other types pass."""
    if not is_sub_byte_int(dtype):
        return x
    bits = dtype_facts(dtype).bits
    if dtype.startswith("u"):
        return x & const_like(dtype_of(x), (1 << bits) - 1)
    shift = const_like(dtype_of(x), 8 - bits)
    return prim.RShift(prim.LShift(x, shift), shift)


def legalize(body: Any, memory: LegalMemory) -> Any:
    """A flat body with every type legal. `memory` knows how each flat buffer is stored."""
    return _Legalize(memory).body(body)


class _Legalize(Rewriter):
    def __init__(self, memory: LegalMemory) -> None:
        self.memory = memory
        self.value = _LegalValue(memory, wraps=True)
        self.bound = _LegalValue(memory, wraps=False)
        self.bound.vars = self.value.vars

    def stmt(self, node: Any) -> Any:
        if isinstance(node, tir.Return):  # the code generator accepts only `return 0`: the code goes through memory
            store = tir.BufferStore(self.memory.status, self.value(node.value), [tir.const(0, "int64")])
            return tir.SeqStmt([store, tir.Return(tir.const(0, "int32"))])
        return super().stmt(node)

    def expr(self, node: Any) -> Any:
        return self.bound(node)

    def alloc(self, node: tir.AllocBuffer) -> Any:
        return self.memory.allocate(node.buffer)

    def attribute(self, node: tir.AttrStmt) -> Any:
        if node.attr_key != FIRST_LANES:
            return super().attribute(node)
        with self.memory.first_lanes(self.bound(node.value)):
            return self.body(node.body)

    def loop(self, node: tir.For) -> Any:
        """What no vector is made of (stock `VectorizeLoop` leaves a loop over its lanes) runs for those that are there."""
        count = self.memory.count
        if count is None:
            return super().loop(node)
        with self.memory.first_lanes(None):
            low, extent, body = self.expr(node.min), self.expr(node.extent), self.body(node.body)
        return remake_loop(node, low=low, extent=tir.min(extent, count - low), body=body)

    def bind(self, node: tir.Bind) -> Any:
        value = self.value(node.value)
        if self.value.is_data(node.value):
            self.value.data_vars.add(node.var)
        return tir.Bind(self.value.rename(node.var), value, span=node.span)

    def store(self, node: tir.BufferStore) -> Any:
        scalar = scalar_of(str(node.buffer.ty.dtype))[0]
        value = self.value(node.value)
        if scalar == "bool":
            value = prim.Cast(with_lanes("uint8", scalar_of(dtype_of(value))[1]), value)
        return self.memory.store(node.buffer, self.bound(node.indices[0]), value, node.span)


class _LegalValue(ExpressionRewriter):
    """Legalises values. `wraps`: arithmetic on data must wrap, so it may carry neither `nsw` nor `nuw`."""

    def __init__(self, memory: LegalMemory, *, wraps: bool) -> None:
        self.memory, self.wraps = memory, wraps
        self.vars: dict[Any, Any] = {}
        self.data_vars: set[Any] = set()

    def rename(self, var: Any) -> Any:
        """The legal variable for `var`; the same one if its type is legal."""
        if var not in self.vars:
            if not isinstance(var.ty, ir.PrimType) or value_dtype(dtype_of(var)) == dtype_of(var):
                return var
            self.vars[var] = tir.Var(var.name, value_dtype(dtype_of(var)))
        return self.vars[var]

    def is_data(self, node: Any) -> bool:
        """Whether a value depends on memory: only such integers can be large enough to wrap on purpose."""
        parts = (n for n in tile_ir.walk(node) if isinstance(n, ir.Expr))
        return any(isinstance(n, (ir.TensorLoad, ir.Call)) or n in self.data_vars for n in parts)

    def on_var(self, node: Any) -> Any:
        return self.rename(node)

    def on_int(self, node: Any) -> Any:
        scalar = dtype_of(node)
        return tir.const(int(node.value), value_dtype(scalar)) if is_sub_byte_int(scalar) else node

    def on_float(self, node: Any) -> Any:
        scalar = dtype_of(node)
        if scalar in NARROW_FLOATS and scalar != "float16":
            return tir.const(constant_code(scalar, float(node.value)), storage_dtype(scalar))
        return node

    def on_cast(self, node: Any) -> Any:
        source, target = scalar_of(dtype_of(node.value))[0], scalar_of(dtype_of(node))[0]
        return convert(self(node.value), source, target)

    def on_binary(self, node: Any) -> Any:
        scalar, lanes = scalar_of(dtype_of(node.a))
        kind = type(node)
        if kind is prim.BitwiseOr and (pair := self._pair(node)) is not None:
            return pair
        a, b = self(node.a), self(node.b)
        if scalar in NARROW_FLOATS:
            a, b = convert(a, scalar, "float32"), convert(b, scalar, "float32")
            result = float_operation(kind, a, b)
            return result if kind in COMPARE else convert(result, "float32", scalar)
        if scalar in ("float32", "float64"):
            return float_operation(kind, a, b)
        if kind in (prim.LShift, prim.RShift):
            return wrap(shift(kind, a, b, dtype_facts(scalar).bits), scalar)
        if kind in ARITHMETIC or kind in BITWISE:
            operation = WRAPPING.get(kind) if self.wraps and dtype_facts(scalar).bits >= 32 else None
            if operation and (self.is_data(node.a) or self.is_data(node.b)):
                return call_helper(with_lanes(scalar, lanes), f"tl.wrapping.{operation}.{scalar}.{lanes}", a, b)
            division = DIVISION.get(kind) if self.wraps else None
            if division and (self.is_data(node.a) or self.is_data(node.b)):
                legal, legal_lanes = scalar_of(dtype_of(a))
                return wrap(call_helper(dtype_of(a), f"tl.division.{division}.{legal}.{legal_lanes}", a, b), scalar)
            return wrap(kind(a, b), scalar)
        return kind(a, b)

    def _pair(self, node: Any) -> Any:
        """Two look-ups that are one; None for anything else."""
        found = pair_of_lookups(node) if scalar_of(dtype_of(node))[1] > 1 else None
        if found is None or not self.memory.looks_up_pairs(found[0], found[2]):
            return None
        return self.memory.load_pair(found[0], self(found[1]))

    def on_unary(self, node: Any) -> Any:
        scalar = scalar_of(dtype_of(node))[0]
        return wrap(type(node)(self(node.a)), scalar)

    def on_load(self, node: Any) -> Any:
        value = self.memory.load(node.source, self.index(node.indices[0]))
        if scalar_of(dtype_of(node))[0] == "bool":
            return prim.NE(value, const_like(dtype_of(value), 0))
        return value

    def index(self, node: Any) -> Any:
        """An index: its arithmetic does not wrap."""
        wraps, self.wraps = self.wraps, False
        try:
            return self(node)
        finally:
            self.wraps = wraps

    def on_call(self, node: Any) -> Any:
        name = op_name(node)
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, node)
        if name in FUNCTIONS and dtype_facts(scalar_of(dtype_of(node.args[0]))[0]).is_float:
            return self._math(name, node)
        result = value_dtype(dtype_of(node)) if has_value(node) else node.ty
        args = [a if isinstance(a, ir.StringImm) else self(a) for a in node.args]
        attrs = None if node.attrs is None else dict(node.attrs.items())
        return ir.Call(node.op, args, attrs=attrs, ret_ty=result, span=node.span)

    def _math(self, name: str, node: Any) -> Any:
        """A function of floats: narrow types in float32, rounded once."""
        scalar, lanes = scalar_of(dtype_of(node.args[0]))
        args = [self(a) for a in node.args]
        if name == "ldexp":
            args[1] = convert(args[1], scalar_of(dtype_of(node.args[1]))[0], scalar)
        computed = "float32" if scalar in NARROW_FLOATS else scalar
        args = [convert(a, scalar, computed) for a in args]
        result = call_helper(with_lanes(computed, lanes), f"tl.math.{name}.{computed}.{lanes}", *args)
        return convert(result, computed, scalar)

    def _if_then_else(self, node: Any) -> Any:
        return tir.if_then_else(*(self(a) for a in node.args))

    def _reinterpret(self, node: Any) -> Any:
        (x,) = node.args
        source, source_lanes = scalar_of(dtype_of(x))
        target, lanes = scalar_of(dtype_of(node))
        value = self(x)
        if dtype_facts(source).bits < 8:
            value = call_helper(_bytes(source, source_lanes), f"tl.pack.{source}.{source_lanes}", value)
        if dtype_facts(target).bits < 8:
            if dtype_of(value) != _bytes(target, lanes):
                value = tir.reinterpret(_bytes(target, lanes), value)
            return call_helper(value_dtype(dtype_of(node)), f"tl.unpack.{target}.{lanes}", value)
        legal = value_dtype(dtype_of(node))
        return value if dtype_of(value) == legal else tir.reinterpret(legal, value)

    def _address(self, node: Any) -> Any:
        load = node.args[0]
        if isinstance(load, ir.Var):
            return self.memory.address(load, tir.const(0, "int64"))
        index = self.index(load.indices[0])
        return self.memory.address(load.source, index.base if isinstance(index, prim.Ramp) else index)

    def _is_nan(self, node: Any) -> Any:
        scalar = scalar_of(dtype_of(node.args[0]))[0]
        x = self(node.args[0])
        x = convert(x, scalar, "float32") if scalar in NARROW_FLOATS else x
        return not_equal(x, x)

    def _absolute(self, node: Any) -> Any:
        scalar = scalar_of(dtype_of(node))[0]
        if dtype_facts(scalar).is_float:
            return self._math("fabs", node)
        x = self(node.args[0])
        legal, lanes = scalar_of(dtype_of(x))
        zero = const_like(dtype_of(x), 0)
        negated = call_helper(dtype_of(x), f"tl.wrapping.sub.{legal}.{lanes}", zero, x)
        return wrap(prim.Select(x >= zero, x, negated), scalar)

    def _dot2(self, node: Any) -> Any:
        dtype = str(tile_ir.attrs_of(node)["dtype"])
        if dtype != "bfloat16" or not self.memory.features.bf16:
            return self(by_parts(node))
        args = [self(a) for a in node.args]
        return call_helper(dtype_of(node), f"tl.dot2.{dtype}.{scalar_of(dtype_of(node))[1]}", *args)

    def _likely(self, node: Any) -> Any:
        return self(node.args[0])

    def _bit_count(self, node: Any) -> Any:
        name, scalar = op_name(node), scalar_of(dtype_of(node.args[0]))[0]
        x = self(node.args[0])
        bits = dtype_facts(scalar).bits
        wide = dtype_of(x)
        if bits < 8:
            x = x & const_like(wide, (1 << bits) - 1)
        lanes = scalar_of(wide)[1]
        count = call_helper(wide, f"tl.{name}.{scalar_of(wide)[0]}.{lanes}", x)
        if name == "clz" and bits < 8:
            count = count - const_like(wide, 8 - bits)
        return prim.Cast(dtype_of(node), count)

    def _atomic(self, node: Any) -> Any:
        address, value = node.args
        load = address.args[0]
        scalar = scalar_of(str(load.source.ty.dtype))[0]
        op = str(node.attrs["op"])
        operand = convert(self(value), scalar_of(dtype_of(value))[0], scalar)
        return tir.call_extern(value_dtype(scalar), f"tl.atomic.{op}.{scalar}", self(address), operand)


def _bytes(scalar: str, lanes: int) -> str:
    return with_lanes("uint8", max(1, lanes * dtype_facts(scalar).bits // 8))


_SPECIAL = {
    "if_then_else": _LegalValue._if_then_else,
    "reinterpret": _LegalValue._reinterpret,
    "address_of": _LegalValue._address,
    "isnan": _LegalValue._is_nan,
    "fabs": _LegalValue._absolute,
    "abs": _LegalValue._absolute,
    "likely": _LegalValue._likely,
    "dot2": _LegalValue._dot2,
    "popcount": _LegalValue._bit_count,
    "clz": _LegalValue._bit_count,
    "atomic_elem": _LegalValue._atomic,
}


def float_operation(kind: type, a: Any, b: Any) -> Any:
    """An operation on float32 or float64; min and max prefer a number to NaN, as the spec says."""
    dtype = dtype_of(a)
    if kind is prim.NE:
        return not_equal(a, b)
    if kind is prim.Min:
        return tir.call_llvm_pure_intrin(dtype, "llvm.minnum", a, b)
    if kind is prim.Max:
        return tir.call_llvm_pure_intrin(dtype, "llvm.maxnum", a, b)
    if kind in (prim.Mod, prim.FloorMod, prim.FloorDiv):
        scalar, lanes = scalar_of(dtype)
        name = {prim.Mod: "fmod", prim.FloorMod: "floormod", prim.FloorDiv: "floordiv"}[kind]
        return call_helper(dtype, f"tl.math.{name}.{scalar}.{lanes}", a, b)
    return kind(a, b)


def shift(kind: type, a: Any, b: Any, bits: int) -> Any:
    """A shift that is defined for amounts of the width and more: 0, or the sign."""
    amount = b.value if isinstance(b, prim.Broadcast) else b
    if isinstance(amount, prim.IntImm) and 0 <= int(amount.value) < bits:
        return kind(a, b)
    top = const_like(dtype_of(b), bits - 1)
    shifted = kind(a, tir.min(b, top))
    if kind is prim.RShift and not dtype_of(a).startswith("u"):
        return shifted
    return prim.Select(b > top, const_like(dtype_of(a), 0), shifted)


def constant_code(scalar: str, value: float) -> int:
    """The code of a constant, saturated as conversions are."""
    from tilelang.interpreter import numerics

    facts = dtype_facts(scalar)
    codes = numerics.to_codes(numerics.convert(np.array([value], np.float64), facts), facts)
    return int(codes[0])
