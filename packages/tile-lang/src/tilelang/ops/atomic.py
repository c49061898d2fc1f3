"""Atomic updates: of a whole tile (`tl.atomic`), and of one element (`tl.atomic_elem`, an expression).

The element form is a call inside expressions, `tl.atomic_elem(address_of(dst[i]), value)` with attrs `op` and
`memory_order`; it returns the old value in dst's dtype. Elements outside the buffer are left alone (old: 0).
`op` is one of OPS; load takes no value (pass 0); store and exchange write the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilelang.ops.base import Machine, TileOp, register

ELEMENT = "tl.atomic_elem"
OPS = ("add", "max", "min", "and", "or", "xor", "load", "store", "exchange")


@register
@dataclass(frozen=True)
class AtomicTile(TileOp):
    """`tl.atomic(dst, value)`: dst[...] = op(dst[...], cast(value[...])), each element atomically.

    `value` is a region with dst's extents once the 1s are dropped, or a scalar expression. `op` is add, max or
    min. Relaxed order unless `memory_order` says otherwise.
    """

    NAME: ClassVar[str] = "tl.atomic"
    OPERANDS: ClassVar[tuple[str, ...]] = ("dst", "value")

    dst: Any
    value: Any
    op: str = "add"
    memory_order: str = "relaxed"

    def reads(self) -> list[Any]:
        return [self.dst, *([self.value] if hasattr(self.value, "region") else [])]

    def writes(self) -> list[Any]:
        return [self.dst]

    def meaning(self, machine: Machine) -> None:
        old = machine.load(self.dst)
        if hasattr(self.value, "region"):
            value = machine.load(self.value).reshape(old.shape)
        else:
            value = np.asarray(machine.evaluate(self.value))
        machine.store(self.dst, update(self.op, old, machine.convert(value, self.dst)))


def update(op: str, old: np.ndarray[Any, Any], value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The new content after one atomic operation, elementwise, in old's dtype."""
    if op == "load":
        return old
    if op in ("store", "exchange"):
        return np.broadcast_to(value, old.shape)
    ufunc = {
        "add": np.add,
        "max": np.fmax if old.dtype.kind not in "iub" else np.maximum,
        "min": np.fmin if old.dtype.kind not in "iub" else np.minimum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[op]
    return np.asarray(ufunc(old, value))
