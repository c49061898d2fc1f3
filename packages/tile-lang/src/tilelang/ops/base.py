"""What every tile operator offers, and the machine that its meaning is written against."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np


class Machine(Protocol):
    """What an operator's `meaning` may do: read and write tiles of one block, evaluate scalars.

    Implemented by `tilelang/interpreter/machine.py`. Regions keep their full rank: a region of extents (1, 64)
    loads as an array of shape (1, 64).
    """

    def load(self, region: Any) -> np.ndarray[Any, Any]:
        """The region's elements; outside the buffer: 0, or its `T.annotate_safe_value`."""

    def store(self, region: Any, tile: np.ndarray[Any, Any]) -> None:
        """Write the region, converting to the buffer's dtype; elements outside the buffer are dropped."""

    def convert(self, values: np.ndarray[Any, Any], region: Any) -> np.ndarray[Any, Any]:
        """`values` in the element type of the region's buffer, by the IR's rules of conversion."""

    def evaluate(self, expr: Any) -> Any:
        """The value of a scalar expression that is the same for the whole block."""

    def fold(self, tiles: np.ndarray[Any, Any], lhs: Any, rhs: Any, combined: Any, identity: Any) -> Any:
        """Combine along axis 0 with an expression over the variables lhs and rhs."""

    def set_safe_value(self, buffer: Any, value: Any) -> None:
        """From here on reads outside `buffer` give `value`."""

    def emit(self, text: str) -> None:
        """Print a line for the user."""

    def fail(self, message: str) -> None:
        """Stop the launch: a device assertion is false."""

    def arrive(self, barrier: Any, count: int, rank: Any = None) -> None:
        """Each active thread arrives `count` times at a barrier: its block's, or that of block `rank` of the cluster."""

    def expect(self, barrier: Any, size: int) -> None:
        """Each active thread announces that `size` bytes will be copied before the barrier's phase ends."""

    def complete(self, barrier: Any, size: int) -> None:
        """`size` bytes have been copied, for each active thread."""

    def wait(self, barrier: Any, parity: Any) -> None:
        """Until the barrier's phase of that parity, an expression of the thread, has ended."""

    def come(self, scope: str) -> None:
        """The block says that it has come to the barrier of its "cluster" or "grid"."""

    def meet(self, scope: str) -> None:
        """Until every block of the cluster or grid has come as often as this one."""


@dataclass(frozen=True)
class TileOp:
    """A tile operator: a frozen record of its operands, equal to one `tl.<name>` call of the IR.

    Fields are operands (regions, expressions) first, then literals; `OPERANDS` names the former in the order
    of the call's arguments. An operand that is None is left out, so only trailing ones may be.
    """

    NAME: ClassVar[str]
    OPERANDS: ClassVar[tuple[str, ...]] = ()

    def reads(self) -> list[Any]:
        """Regions that the operator reads."""
        return []

    def writes(self) -> list[Any]:
        """Regions that the operator writes."""
        return []

    def meaning(self, machine: Machine) -> None:
        """Execute the operator on tiles (numpy): the definition that every backend must agree with."""
        raise NotImplementedError(f"{type(self).__name__} has no meaning")

    def to_call(self, span: Any = None) -> Any:
        from tilelang.ir import tile_ir

        args = [getattr(self, f) for f in self.OPERANDS if getattr(self, f) is not None]
        literals = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in self.OPERANDS}
        return tile_ir.call(self.NAME, args, {k: v for k, v in literals.items() if v is not None}, span=span)

    def to_stmt(self, span: Any = None) -> Any:
        from tvm import tirx

        return tirx.Evaluate(self.to_call(span), span=span)

    @classmethod
    def from_call(cls, call: Any) -> TileOp:
        from tilelang.ir import tile_ir

        operands = dict(zip(cls.OPERANDS, call.args))
        return cls(**operands, **tile_ir.attrs_of(call))


@dataclass(frozen=True)
class ThreadOp(TileOp):
    """What each thread that comes by does for itself: it may stand under a condition on the thread."""


OPERATORS: dict[str, type[TileOp]] = {}


def register(cls: type[TileOp]) -> type[TileOp]:
    """Class decorator: make an operator known by its IR name."""
    OPERATORS[cls.NAME] = cls
    return cls


def parse(call: Any) -> TileOp:
    """The operator record of a `tl.*` call; KeyError for a name that nobody registered."""
    return OPERATORS[str(call.op.name)].from_call(call)
