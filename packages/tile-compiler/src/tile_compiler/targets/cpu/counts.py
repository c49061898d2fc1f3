"""Counts of int64, of which some of a tile may not be there, and the loops over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx as tir

Stmt = Any


def index(value: int) -> Any:
    return tir.const(value, "int64")


def loop(count: int, body: Callable[[Any], Stmt], kind: Any = tir.ForKind.SERIAL) -> Stmt:
    """A loop of int64; one iteration needs none."""
    if count == 1:
        return body(index(0))
    var = tir.Var("t", "int64")
    return tir.For(var, index(0), index(count), kind, body(var))


def loop_of(count: Any, body: Callable[[Any], Stmt]) -> Stmt:
    """The same of a count that may be known to the launch alone."""
    var = tir.Var("t", "int64")
    return tir.For(var, index(0), count, tir.ForKind.SERIAL, body(var))


def loop_within(count: int, limit: Any, first: int, size: int, body: Callable[[Any], Stmt]) -> Stmt:
    """The same for blocks of `size` elements from `first` on, as far as they begin below `limit` (None: all)."""
    if limit is None:
        return loop(count, body)
    left = limit - index(first)
    blocks = tir.floordiv(tir.max(left, index(0)) + index(size - 1), index(size))
    return loop_of(tir.min(blocks, index(count)), body)


def at_most(count: int, left: Any) -> Any:
    """`count`, or what is left of it (None: all)."""
    return index(count) if left is None else tir.min(tir.max(left, index(0)), index(count))
