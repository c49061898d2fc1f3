"""`T.reduce` and its named forms: combine a tile along one dimension (paper 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilelang.ops.base import Machine, TileOp, register

KINDS = ("sum", "max", "min", "prod", "abssum", "absmax", "bitand", "bitor", "bitxor", "custom")

# Kinds that users added: name -> what it makes of a tile along axis 0 (see `tilelang.extension.register_reduction`).
ADDED: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {}


@register
@dataclass(frozen=True)
class Reduce(TileOp):
    """`tl.reduce(src, dst)`: dst[...] = reduce(src, dim), combined with dst's old content unless `clear`.

    `dst` has src's extents without `dim`, or with 1 there. The old content enters exactly once. The kinds:
    sum, max, min, prod, abssum, absmax, bitand, bitor, bitxor, custom, and those in `ADDED`. max and min skip NaN unless
    `nan_propagate`. Floating sums and products are formed in float32 at least, in any order, and rounded
    once to dst's dtype. An empty dimension gives the identity.

    `custom` combines with the expression `combined` over the variables `lhs` and `rhs`, starting at `identity`
    (all of dst's dtype); it must be associative and commutative.
    """

    NAME: ClassVar[str] = "tl.reduce"
    OPERANDS: ClassVar[tuple[str, ...]] = ("src", "dst", "lhs", "rhs", "combined", "identity")

    src: Any
    dst: Any
    lhs: Any = None
    rhs: Any = None
    combined: Any = None
    identity: Any = None
    kind: str = "sum"
    dim: int = -1
    clear: bool = True
    nan_propagate: bool = False

    def reads(self) -> list[Any]:
        return [self.src] if self.clear else [self.src, self.dst]

    def writes(self) -> list[Any]:
        return [self.dst]

    def meaning(self, machine: Machine) -> None:
        tile = machine.load(self.src)
        out_dtype = numpy_dtype(self.dst)
        out_shape = [int(machine.evaluate(r.extent)) for r in self.dst.region]
        parts = [wide(np.moveaxis(tile, self.dim, 0), out_dtype)]
        if self.kind in ("abssum", "absmax"):
            parts = [np.abs(parts[0])]
        if not self.clear:
            parts.append(wide(machine.load(self.dst), out_dtype).reshape((1, *parts[0].shape[1:])))
        stacked = np.concatenate(parts)
        if self.kind == "custom":
            result = machine.fold(stacked, self.lhs, self.rhs, self.combined, self.identity)
        else:
            result = fold(stacked, self.kind, self.nan_propagate, out_dtype)
        machine.store(self.dst, np.asarray(result).reshape(out_shape))


def fold(tiles: np.ndarray[Any, Any], kind: str, nan_propagate: bool, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Combine `tiles` along axis 0 from the kind's identity, in the widened type of `tiles`."""
    if kind in ADDED:
        return np.asarray(ADDED[kind](tiles))
    largest, smallest = limits(dtype)
    if kind in ("sum", "abssum"):
        return np.asarray(tiles.sum(axis=0))
    if kind == "prod":
        return np.asarray(tiles.prod(axis=0))
    if kind in ("max", "absmax"):
        start = smallest if kind == "max" else 0
        return np.asarray((np.maximum if nan_propagate else np.fmax).reduce(tiles, axis=0, initial=start))
    if kind == "min":
        return np.asarray((np.minimum if nan_propagate else np.fmin).reduce(tiles, axis=0, initial=largest))
    ufunc = {"bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor}[kind]
    return np.asarray(ufunc.reduce(tiles, axis=0, initial=~tiles.dtype.type(0) if kind == "bitand" else 0))


def limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """(identity of min, identity of max): infinities for floats, the type's bounds for integers."""
    if dtype.kind == "b":
        return True, False
    if not is_integer(dtype):
        return np.inf, -np.inf
    signed = dtype.name.startswith("int")
    bits = int(dtype.name.lstrip("uint")) - signed
    return (1 << bits) - 1, -(1 << bits) if signed else 0


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Also for the ml_dtypes integers under a byte, which numpy takes for opaque."""
    return dtype.name.startswith(("int", "uint"))


def wide(tile: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """`tile` in the type that reductions compute in: 64-bit integers for integer results, float64 otherwise."""
    if dtype.kind == "b" or is_integer(dtype):
        return tile.astype(np.uint64 if dtype == np.uint64 else np.int64)
    return tile.astype(np.float64)


def numpy_dtype(region: Any) -> np.dtype[Any]:
    from tilelang.ir.dtypes import dtype_of

    return dtype_of(str(region.source.dtype)).as_numpy()
