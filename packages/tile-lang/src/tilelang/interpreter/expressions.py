"""The values of expressions, for all lanes at once.

A value is an array with a leading axis: length 1 when it is the same for all lanes, else one element per lane
(what inactive lanes hold means nothing); a vector type adds an axis of its own lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import ir
from tvm.ir import prim

from tilelang.interpreter import numerics
from tilelang.interpreter.access import Memory
from tilelang.interpreter.extern import Pointer, externs
from tilelang.interpreter.lanes import Lanes
from tilelang.interpreter.memory import Buffer
from tilelang.interpreter.numerics import Values
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import DType, dtype_of
from tilelang.ops.atomic import ELEMENT
from tilelang.ops.dot2 import DOT2, by_parts
from tilelang.ops.shuffle import SHUFFLE, WARP

# Calls that mean the same as an expression node.
_CALLED_NODES = {
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "shift_left": "LShift",
    "shift_right": "RShift",
}
_DIVISIONS = ("Div", "Mod", "FloorDiv", "FloorMod")

#: What an expression means, its parts already read from TVM: a function from the machine to the value.
Meaning = Callable[[Any], Values]


def dtype_of_node(node: Any) -> DType:
    """The element type of an expression."""
    return dtype_of(str(node.ty))


def constant(value: Any, dtype: DType) -> Values:
    """A value that is the same for all lanes."""
    if dtype.is_integer and dtype.bits == 64:
        return np.asarray([int(value)], dtype.as_numpy())
    return numerics.convert(np.asarray([value], np.float64 if dtype.is_float else np.int64), dtype)


class Evaluator(Memory):
    """Evaluates expressions in the current lanes, under their mask."""

    def __init__(self, lanes: Lanes, block: tuple[int, ...] | None = None) -> None:
        super().__init__(lanes, block)
        # Each variable with the lanes that its value was made for.
        self.values: dict[Any, tuple[Values, Lanes]] = {}
        # By address, with the node, which thereby stays alive: nodes are read once, as asking TVM for a part of one takes
        # longer than most operations on values.
        self._meanings: dict[int, tuple[Any, Meaning]] = {}
        self._statements: dict[int, Any] = {}
        self._variables: dict[int, Any] = {}

    def share(self, other: Evaluator) -> None:
        """Have what `other` has: its values and buffers as they are now, and what it read of the function."""
        self.values, self.buffers = dict(other.values), dict(other.buffers)
        self._meanings, self._statements, self._variables = other._meanings, other._statements, other._variables

    def same(self, var: Any) -> Any:
        """The one Python object for a variable or buffer. Dictionaries find it by identity; to compare two costs more."""
        return self._variables.setdefault(var.__chandle__(), var)

    def bind(self, var: Any, value: Values) -> None:
        self.values[self.same(var)] = (value, self.lanes)

    def value(self, node: Any) -> Values:
        """The value of an expression for the active lanes."""
        known = self._meanings.get(node.__chandle__())
        if known is None:
            known = self._meanings[node.__chandle__()] = (node, self.meaning(node))
        return known[1](self)

    def meaning(self, node: Any) -> Meaning:
        """Read one expression; those in it are read when they have a value."""
        read = _READ.get(type(node))
        if read is not None:
            return read(node)
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise self.error(f"the interpreter knows no expression {type(node).__name__}: {node}")
        return functools.partial(_handled, handler, node)

    def scalar(self, node: Any) -> Any:
        """The value of an expression that must be equal for all active lanes, as a numpy scalar."""
        if isinstance(node, (int, float)):
            return node
        return self._collapse(self.value(node), self.lanes, str(node))[0]

    def integer(self, node: Any) -> int:
        return int(self.scalar(node))

    def under(self, mask: Values, node: Any) -> Values:
        """The value of an expression for the lanes of `mask` only."""
        outer = self.lanes.mask
        self.lanes.mask = mask
        try:
            return self.value(node)
        finally:
            self.lanes.mask = outer

    def buffer(self, var: Any) -> Buffer:
        buffer = self.buffers.get(self.same(var))
        if buffer is None:
            raise self.error(f"buffer {var.name} is used outside of the body that allocates it")
        return buffer

    def _collapse(self, value: Values, lanes: Lanes, text: str) -> Values:
        """A value of all lanes as one value; an error when active lanes differ."""
        if len(value) == 1:
            return value
        active = value[lanes.mask]
        wide = numerics.widen(active)
        same = (wide == wide[:1]) | ((wide != wide) & (wide[:1] != wide[:1]))  # NaN is equal to NaN here
        if not same.all():
            raise self.error(
                f"`{text}` differs between {lanes.kind}s, but the whole block needs one value",
                found=f"values such as {active.reshape(-1)[0]} and {active[~same].reshape(-1)[0]}",
                expected="operands of tile operators, and outer values in a parallel loop, are equal for all",
                repair="use the value in thread-level code only, or make it depend on block indices alone",
            )
        return active[:1]

    # -- nodes ------------------------------------------------------------------------------------------------

    def _variable(self, node: Any) -> Values:
        known = self.values.get(self.same(node))
        if known is None:
            raise self.error(f"variable {node.name} has no value here")
        value, lanes = known
        return value if lanes is self.lanes else self._collapse(value, lanes, node.name)

    def _operate(self, name: str, a: Values, b: Values, dtype: DType) -> Values:
        if name in _DIVISIONS and not dtype.is_float:
            zero = b == 0
            zero = zero.any(axis=-1) if zero.ndim > 1 else zero
            if (zero & self.lanes.mask).any():
                raise self.error(
                    "integer division by zero",
                    expected="no divisor 0 in an active lane (both sides of `and`, `or` and select are evaluated)",
                    repair="T.if_then_else(d != 0, a // d, 0), or an `if` around the statement",
                )
        return numerics.binary(name, a, b, dtype.scalar)

    def _and(self, node: Any) -> Values:
        return np.asarray(self.value(node.a) & self.value(node.b))

    def _or(self, node: Any) -> Values:
        return np.asarray(self.value(node.a) | self.value(node.b))

    def _not(self, node: Any) -> Values:
        return ~self.value(node.a)

    def _bitwise_not(self, node: Any) -> Values:
        dtype = dtype_of_node(node)
        return numerics.convert(
            ~numerics.widen(self.value(node.args[0] if isinstance(node, ir.Call) else node.a)), dtype.scalar
        )

    def _select(self, node: Any) -> Values:
        return self._choose(self.value(node.condition), self.value(node.true_value), self.value(node.false_value))

    def _choose(self, condition: Values, yes: Values, no: Values) -> Values:
        if condition.ndim < max(yes.ndim, no.ndim):
            condition = condition[:, None]
        return np.where(condition, yes, no)

    def _let(self, node: Any) -> Values:
        self.bind(node.var, self.value(node.value))
        return self.value(node.body)

    def _broadcast(self, node: Any) -> Values:
        return np.repeat(self.value(node.value)[:, None], int(node.lanes), axis=1)

    def _shuffle(self, node: Any) -> Values:
        parts = [v if v.ndim == 2 else v[:, None] for v in map(self.value, node.vectors)]
        count = max(len(p) for p in parts)
        lanes = np.concatenate([np.broadcast_to(p, (count, p.shape[1])) for p in parts], axis=1)
        chosen = lanes[:, [self.integer(i) for i in node.indices]]
        return chosen if dtype_of_node(node).lanes > 1 else chosen[:, 0]

    # -- calls ------------------------------------------------------------------------------------------------

    def _if_then_else(self, node: Any) -> Values:
        condition = self.value(node.args[0])
        yes, no = self.lanes.mask & condition, self.lanes.mask & ~condition
        if not no.any():
            return self.under(yes, node.args[1])
        if not yes.any():
            return self.under(no, node.args[2])
        return self._choose(condition, self.under(yes, node.args[1]), self.under(no, node.args[2]))

    def _reinterpret(self, node: Any) -> Values:
        return numerics.reinterpret(self.value(node.args[0]), dtype_of_node(node.args[0]), dtype_of_node(node))

    def _popcount(self, node: Any) -> Values:
        source = dtype_of_node(node.args[0]).scalar
        return numerics.popcount(self.value(node.args[0]), source, dtype_of_node(node).scalar)

    def _clz(self, node: Any) -> Values:
        source = dtype_of_node(node.args[0]).scalar
        return numerics.leading_zeros(self.value(node.args[0]), source, dtype_of_node(node).scalar)

    def _likely(self, node: Any) -> Values:
        return self.value(node.args[0])

    def _large_uint(self, node: Any) -> Values:
        low, high = (self.integer(a) for a in node.args)
        return constant((high << 32) | (low & 0xFFFFFFFF), dtype_of_node(node))

    def _assume(self, node: Any) -> Values:
        holds = self.value(node.args[0])
        if (~holds & self.lanes.mask).any():
            raise self.error("T.assume does not hold", found=f"{node.args[0]} is false")
        return np.zeros(1, np.int32)

    def _atomic(self, node: Any) -> Values:
        target = node.args[0].args[0]
        buffer = self.buffer(target.source)
        if buffer.owner is not None and self.lanes.count > 1:
            raise self.error(f"an atomic on {buffer.name}, which is private to one thread", repair="update it plainly")
        op = str(tile_ir.attrs_of(node)["op"])
        return self.atomic(buffer, [self.value(i) for i in target.indices], op, self.value(node.args[1]))

    def _other_thread(self, node: Any) -> Values:
        """The value that another thread of the warp has."""
        value = np.broadcast_to(self.value(node.args[0]), (self.lanes.count,))
        source = np.broadcast_to(self.value(node.args[1]), (self.lanes.count,))
        active = np.flatnonzero(self.lanes.mask)
        asked = source[active]
        there = (asked >= 0) & (asked < self.lanes.count) & (asked // WARP == active // WARP)
        missing = np.flatnonzero(~(there & self.lanes.mask[np.where(there, asked, active)]))
        if len(missing):
            asks, of = int(active[missing[0]]), int(asked[missing[0]])
            raise self.error(
                f"{self.lanes.name(asks)} asks thread {of} for a value",
                found="a thread of another warp, or one that does not come by",
                expected="a thread of the same warp, all of whose threads exchange",
                repair="exchange outside of the condition on the thread",
            )
        return np.asarray(value[np.where(self.lanes.mask, source, 0)])

    def _extern(self, node: Any) -> Values:
        name = str(node.args[0].value)
        if name not in externs:
            raise self.error(
                f"T.call_extern calls {name!r}, which has no meaning in Python",
                found="known: " + (", ".join(sorted(externs)) or "none"),
                expected="a Python function that computes what the source does",
                repair=f"tilelang.interpreter.externs[{name!r}] = lambda *args: ...",
            )
        function = externs[name]
        arguments = [self._extern_argument(a) for a in node.args[1:]]
        lanes = np.flatnonzero(self.lanes.mask)
        if getattr(function, "per_block", False):
            lanes = lanes[:1]
        returned = {int(lane): function(*[argument(int(lane)) for argument in arguments]) for lane in lanes}
        dtype = None if str(node.ty) in ("", "void", "handle") else dtype_of_node(node)
        if dtype is None or all(r is None for r in returned.values()):
            return np.zeros(1, np.int32)
        vector = (dtype.lanes,) if dtype.lanes > 1 else ()
        result = np.zeros((self.lanes.count, *vector), dtype.as_numpy())
        for lane, value in returned.items():
            result[lane] = numerics.convert(np.asarray(value), dtype.scalar)
        return result

    def _extern_argument(self, node: Any) -> Callable[[int], Any]:
        """An argument as a function from the lane to what the external function gets."""
        if isinstance(node, ir.StringImm):
            text = str(node.value)
            return lambda lane: text
        if tile_ir.is_buffer(node):
            return self._pointer(node, None)
        if isinstance(node, ir.Call) and str(getattr(node.op, "name", "")).endswith((".address_of", ".buffer_data")):
            place = node.args[0]
            return (
                self._pointer(place, None) if tile_ir.is_buffer(place) else self._pointer(place.source, place.indices)
            )
        value = self.value(node)
        return lambda lane: value[lane if len(value) > 1 else 0]

    def _pointer(self, var: Any, indices: Any) -> Callable[[int], Pointer]:
        buffer = self.buffer(var)
        if buffer.owner is self.lanes:
            buffer.storage.split(self.lanes.count)  # the function may write through it, each lane its own
        offsets = np.zeros(1, np.int64)
        for index, extent in zip([self.value(i) for i in indices or ()], buffer.shape, strict=False):
            offsets = offsets * extent + index
        copies = buffer.storage.copies

        def at(lane: int) -> Pointer:
            offset = int(offsets[lane if len(offsets) > 1 else 0])
            return Pointer(self, buffer, offset, lane if copies > 1 and buffer.owner is self.lanes else 0)

        return at


def _handled(handler: Callable[[Evaluator, Any], Values], node: Any, machine: Evaluator) -> Values:
    return handler(machine, node)


# -- nodes that are read once ---------------------------------------------------------------------------------


def _immediate(node: Any) -> Meaning:
    value = constant(node.value, dtype_of_node(node))
    value.flags.writeable = False  # everyone gets the same array
    return lambda machine: value


def _binary(node: Any) -> Meaning:
    name, a, b, dtype = type(node).__name__, node.a, node.b, dtype_of_node(node)
    return lambda machine: machine._operate(name, machine.value(a), machine.value(b), dtype)


def _compare(node: Any) -> Meaning:
    name, a, b = type(node).__name__, node.a, node.b
    return lambda machine: numerics.compare(name, machine.value(a), machine.value(b))


def _cast(node: Any) -> Meaning:
    operand, dtype = node.value, dtype_of_node(node).scalar
    return lambda machine: numerics.convert(machine.value(operand), dtype)


def _ramp(node: Any) -> Meaning:
    base, stride = node.base, node.stride
    steps = np.arange(int(node.lanes), dtype=dtype_of_node(node).scalar.as_numpy())
    return lambda machine: np.asarray(machine.value(base)[:, None] + machine.value(stride)[:, None] * steps)


def _load(node: Any) -> Meaning:
    source, indices = node.source, list(node.indices)
    return lambda machine: machine.read(machine.buffer(source), [machine.value(i) for i in indices])


def _call(node: Any) -> Meaning:
    full, args = str(getattr(node.op, "name", node.op)), list(node.args)
    name = full if full.startswith("tl.") else full.split(".")[-1]
    if name in numerics.FLOAT_FUNCTIONS:
        dtype = dtype_of_node(node).scalar
        return lambda machine: numerics.float_function(name, [machine.value(a) for a in args], dtype)
    if name in numerics.FLOAT_TESTS:
        test = numerics.FLOAT_TESTS[name]
        return lambda machine: np.asarray(test(numerics.widen(machine.value(args[0]))))
    if name in _CALLED_NODES:
        kind, dtype = _CALLED_NODES[name], dtype_of_node(node)
        return lambda machine: machine._operate(kind, *map(machine.value, args), dtype)
    if name == DOT2:
        parts = by_parts(node)
        return lambda machine: machine.value(parts)
    if name in _CALLS:
        return functools.partial(_handled, _CALLS[name], node)

    def unknown(machine: Evaluator) -> Values:
        raise machine.error(f"the interpreter knows no intrinsic {full}", found=str(node))

    return unknown


_READ: dict[type, Callable[[Any], Meaning]] = {
    prim.IntImm: _immediate,
    prim.FloatImm: _immediate,
    ir.Call: _call,
    ir.TensorLoad: _load,
    prim.Cast: _cast,
    prim.Ramp: _ramp,
    **{getattr(prim, name): _binary for name in numerics.BINARY},
    **{getattr(prim, name): _compare for name in numerics.COMPARE},
}

_HANDLERS: dict[type, Callable[[Evaluator, Any], Values]] = {
    ir.Var: Evaluator._variable,
    prim.Select: Evaluator._select,
    prim.Let: Evaluator._let,
    prim.Broadcast: Evaluator._broadcast,
    prim.Shuffle: Evaluator._shuffle,
    prim.And: Evaluator._and,
    prim.Or: Evaluator._or,
    prim.Not: Evaluator._not,
    prim.BitwiseNot: Evaluator._bitwise_not,
}

_CALLS: dict[str, Callable[[Evaluator, Any], Values]] = {
    "if_then_else": Evaluator._if_then_else,
    "reinterpret": Evaluator._reinterpret,
    "popcount": Evaluator._popcount,
    "clz": Evaluator._clz,
    "likely": Evaluator._likely,
    "large_uint_imm": Evaluator._large_uint,
    "assume": Evaluator._assume,
    "bitwise_not": Evaluator._bitwise_not,
    "call_extern": Evaluator._extern,
    "call_pure_extern": Evaluator._extern,
    ELEMENT: Evaluator._atomic,
    SHUFFLE: Evaluator._other_thread,
}
