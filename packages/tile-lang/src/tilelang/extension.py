"""For extending the language: tile operators and reductions of your own (docs/tutorial/07-extending.md).

This is the half that says what they mean; `tile_compiler.extension` is the half that says how they are done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tilelang import fingerprint
from tilelang.frontend.builder import tile_operator
from tilelang.ops.base import Machine, TileOp
from tilelang.ops.base import register as _register
from tilelang.ops.reduce import ADDED, KINDS

__all__ = ["Machine", "TileOp", "emit", "region", "register_operator", "register_reduction"]

Operator = TypeVar("Operator", bound=type[TileOp])


def register_operator(cls: Operator) -> Operator:
    """Class decorator: make an operator known by its `NAME`, which begins with "tl.". ValueError for one that is taken.

    Registering a class of the same module and name again replaces it, as a notebook does.
    """
    from tilelang.ops import OPERATORS

    if not cls.NAME.startswith("tl."):
        raise ValueError(f"{cls.__name__}.NAME is {cls.NAME!r}; names of operators begin with 'tl.'")
    known = OPERATORS.get(cls.NAME)
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"{cls.NAME} is the operator {known.__module__}.{known.__qualname__}; give yours another NAME")
    fingerprint.depends_on(cls)
    _register(cls)
    return cls


def register_reduction(name: str, fold: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> None:
    """Let `T.reduce(tile, out, name, dim)` reduce by `fold`, which combines an array along its axis 0.

    The array is float64 for floating results, int64 (uint64) for integers; with `clear=False` the old content of `out`
    is its last row. The fold must be associative and commutative. ValueError for a name of the language's own.
    """
    from tilelang.language.tile import _REDUCE_NAMES

    if name in KINDS or name in _REDUCE_NAMES:
        raise ValueError(f"{name!r} is a reduction of the language; give yours another name")
    fingerprint.depends_on(fold)
    ADDED[name] = fold


def emit(op: TileOp, what: str = "") -> None:
    """Place an operator in the kernel that is being traced, at the user's line. `what` names it in messages.

    Raises OutsideKernel, or TileOperatorInParallel inside T.Parallel.
    """
    builder = tile_operator(what or f"T.{op.NAME.removeprefix('tl.')}")
    builder.emit(op.to_stmt(builder.span()))


def region(x: Any, what: str = "operand") -> Any:
    """A buffer, or a region such as `A[0:16, :]`, as an operand of an operator. RuntimeValueNeeded for anything else."""
    from tilelang.language.tile import _region_of

    return _region_of(what, x, "the operand").node()
