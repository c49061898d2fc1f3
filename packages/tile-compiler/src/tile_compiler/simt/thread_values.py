"""The values of integer expressions for all threads of a block at once, as far as memory does not decide them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

Array = npt.NDArray[Any]

SMALL = 8  # elements of a private integer array that is followed


class Unknown(Exception):
    """An expression that depends on memory; `varying` says whether threads may disagree on it."""

    def __init__(self, varying: bool) -> None:
        super().__init__()
        self.varying = varying


Known = tuple[dict[Any, Any], dict[Any, bool]]  # what private arrays hold: `ThreadValues.private` and `unknown`


class ThreadValues:
    """Variables and small private integer arrays of `threads` threads; `mask` says which of them are active.

    Expressions are turned into closures once: a walk asks for the same ones in every iteration of a loop.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.lane = np.arange(threads)
        self.mask = np.ones(threads, bool)
        self.values: dict[Any, Any] = {}
        self.private: dict[Any, Array] = {}
        self.unknown: dict[Any, bool] = {}  # private arrays whose content is not known: whether threads may differ
        self.followed: set[Any] = set()
        self._parts: dict[int, tuple[Any, list[Any]]] = {}  # as `_ready`: what decides whether threads disagree
        self._ready: dict[int, tuple[Any, Callable[[], Array]]] = {}  # by identity: == of expressions is slow

    def follow(self, buffer: Any) -> None:
        """Keep the content of a private array, if it is small and of integers."""
        if can_be_followed(buffer):
            self.private[buffer] = np.zeros((self.threads, int(buffer.ty.shape[0])), np.int64)
            self.unknown[buffer] = True
            self.followed.add(buffer)

    def keep(self, buffer: Any, index: Any, value: Any) -> None:
        """A store to a private array."""
        if buffer not in self.private:
            return
        try:
            place, new = self.value(index), self.value(value)
        except Unknown as found:
            self.unknown[buffer] = found.varying or not self.mask.all()
            return
        whole = self.private[buffer].shape[1] == 1 and self.mask.all()
        if self.unknown.get(buffer) is not None and whole:
            del self.unknown[buffer]
        active = self.lane[self.mask]
        at = np.broadcast_to(place, (self.threads,))[self.mask] % self.private[buffer].shape[1]
        self.private[buffer][active, at] = np.broadcast_to(new, (self.threads,))[self.mask]

    def known(self) -> Known:
        """What private arrays hold now."""
        return {buffer: content.copy() for buffer, content in self.private.items()}, dict(self.unknown)

    def known_as(self, known: Known) -> None:
        """Private arrays hold what they held then; those that came since are as they are."""
        for buffer, content in known[0].items():
            self.private[buffer] = content.copy()
            self.unknown.pop(buffer, None)
        self.unknown.update(known[1])

    def or_else(self, other: Known, stored: Collection[Any], varying: bool = False) -> None:
        """Private arrays may hold what they held then instead, where something was `stored`; `varying`: of some threads."""
        content, unknown = other
        for buffer in stored:
            if buffer not in content or buffer not in self.private:
                continue
            mine, yours = self.unknown.get(buffer), unknown.get(buffer)
            if mine is None and yours is None and np.array_equal(self.private[buffer], content[buffer]):
                continue
            each = (_differs(self.private[buffer], mine), _differs(content[buffer], yours))
            self.unknown[buffer] = varying or any(each)

    @contextmanager
    def all_iterations(self, var: Any, numbers: Array) -> Iterator[None]:
        """Inside, each thread stands once for every value in `numbers` of a loop's variable."""
        before = self.threads, self.lane, self.mask, self.values
        times = len(numbers)
        self.values = {
            v: np.tile(known, times) if isinstance(known, np.ndarray) and len(known) > 1 else known
            for v, known in self.values.items()
        }
        self.values[var] = np.repeat(numbers, self.threads)
        self.threads, self.lane, self.mask = self.threads * times, np.tile(self.lane, times), np.tile(self.mask, times)
        yield
        self.threads, self.lane, self.mask, self.values = before

    def value(self, node: Any) -> Array:
        """An integer or boolean expression for all threads (length 1 if it is the same for all); Unknown otherwise."""
        ready = self._ready.get(hash(node))
        if ready is None:
            ready = self._ready[hash(node)] = (node, self._closure(node))
        try:
            return ready[1]()
        except Unknown as unknown:
            raise Unknown(unknown.varying or self._varies(node)) from None

    def _closure(self, node: Any) -> Callable[[], Array]:
        if isinstance(node, (tir.IntImm, tir.FloatImm)):
            constant = np.asarray([node.value])
            return lambda: constant
        if isinstance(node, ir.Var):
            return lambda: self._variable(node)
        if isinstance(node, ir.prim.Cast):
            return self._closure(node.value)
        if isinstance(node, ir.prim.Not):
            negated = self._closure(node.a)
            return lambda: ~negated().astype(bool)
        chosen = isinstance(node, ir.prim.Select)
        if chosen or is_call(node, "prim.if_then_else"):
            parts = (node.condition, node.true_value, node.false_value) if chosen else node.args
            condition, one, other = map(self._closure, parts)
            return lambda: np.where(condition(), one(), other())
        if isinstance(node, ir.TensorLoad):
            return lambda: self._private(node)
        if is_call(node, "tirx.call_extern") and str(node.args[0].value) == "tl::uniform":
            return self._closure(node.args[1])
        operation = _OPERATIONS.get(type(node).__name__)
        if operation is None or not hasattr(node, "a"):
            return lambda: _raise(self._varies(node))
        a, b = self._closure(node.a), self._closure(node.b)
        if type(node).__name__ in ("FloorDiv", "FloorMod", "Div", "Mod") and not tile_ir.static(node.b):
            return lambda: np.asarray(operation(a(), _not_zero(b())))
        if type(node).__name__ in ("And", "Or"):
            return lambda: _connected(operation, a, b, decides=type(node).__name__ == "Or")
        return lambda: np.asarray(operation(a(), b()))

    def _variable(self, node: Any) -> Array:
        found = self.values.get(node)
        if isinstance(found, Unknown):
            raise Unknown(found.varying)
        if found is None:
            raise Unknown(True)
        return np.asarray(found)

    def _private(self, node: Any) -> Array:
        buffer = node.source
        if buffer not in self.private or buffer in self.unknown:
            raise Unknown(self.unknown.get(buffer, self._varies(node)))
        content = self.private[buffer][self.lane, self.value(node.indices[0])]
        active = content[self.mask]
        return active[:1] if len(active) and (active == active[0]).all() else content

    def _varies(self, node: Any) -> bool:
        """Whether threads may disagree on a value that is not known."""
        if hash(node) not in self._parts:
            self._parts[hash(node)] = (node, list(tile_ir.walk(tir.Evaluate(node), ir.TensorLoad, ir.Call, ir.Var)))
        for part in self._parts[hash(node)][1]:
            if isinstance(part, ir.TensorLoad) and str(part.source.scope()) in tile_ir.PRIVATE:
                if self.unknown.get(part.source, part.source not in self.private):
                    return True
            if is_call(part, "tirx.call_extern", "tl.atomic_elem"):
                return True
            if isinstance(part, ir.Var) and not tile_ir.is_buffer(part):
                found = self.values.get(part)
                if found is None or (found.varying if isinstance(found, Unknown) else len(found) > 1):
                    return True
        return False


def _differs(content: Array, unknown: bool | None) -> bool:
    """Whether threads may disagree on the content of a private array."""
    return bool((content != content[:1]).any()) if unknown is None else unknown


def can_be_followed(buffer: Any) -> bool:
    """Whether an array is a thread's own, small and of integers."""
    if str(buffer.scope()) not in tile_ir.PRIVATE:
        return False
    kind = dtype_of(tile_ir.dtype_name(buffer))
    size = tile_ir.static(buffer.ty.shape[0]) if len(buffer.ty.shape) == 1 else None
    return size is not None and size <= SMALL and (kind.is_integer or kind.kind == "bool")


def _raise(varying: bool) -> Array:
    raise Unknown(varying)


def _not_zero(divisor: Array) -> Array:
    return np.where(divisor == 0, 1, divisor)


def _connected(operation: Any, a: Callable[[], Array], b: Callable[[], Array], decides: bool) -> Array:
    """A conjunction or disjunction; one part that has the value `decides` for all threads makes the other one matter not."""
    try:
        left = a()
    except Unknown:
        right = b()
        if (right.astype(bool) != decides).any():
            raise
        return right
    try:
        return np.asarray(operation(left, b()))
    except Unknown:
        if (left.astype(bool) != decides).any():
            raise
        return left


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Div": lambda a, b: (a - np.fmod(a, b)) // b,  # truncated, as in C
    "Mod": np.fmod,
    "Min": np.minimum,
    "Max": np.maximum,
    "BitwiseXor": np.bitwise_xor,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "LShift": np.left_shift,
    "RShift": np.right_shift,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
}
