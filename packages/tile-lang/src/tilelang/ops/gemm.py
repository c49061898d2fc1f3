"""`T.gemm`: the tile matrix product, accumulating into C (paper 3.2)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilelang.ops.base import Machine, TileOp, register


class GemmWarpPolicy(enum.IntEnum):
    """How the warps of a block share the tile of C: balanced, all along rows, or all along columns."""

    Square = 0
    FullRow = 1
    FullCol = 2


@register
@dataclass(frozen=True)
class Gemm(TileOp):
    """`tl.gemm(a, b, c, clear_accum)`: C = (0 if clear_accum else C) + op(A) @ op(B).

    A is (M, K), stored (K, M) when `transpose_a`; B is (K, N), stored (N, K) when `transpose_b`; C is (M, N).
    Regions may have leading dimensions of extent 1. M, N, K are static. Sums are in C's dtype and in any order, or in a
    wider dtype and rounded to C's (here: float32 for a narrower floating C). `clear_accum` is a boolean expression of
    the block. `by_warpgroups`: on Hopper nothing but wgmma will do, and an explicit wait may follow (`tl.wait_wgmma`).
    """

    NAME: ClassVar[str] = "tl.gemm"
    OPERANDS: ClassVar[tuple[str, ...]] = ("a", "b", "c", "clear_accum")

    a: Any
    b: Any
    c: Any
    clear_accum: Any
    transpose_a: bool = False
    transpose_b: bool = False
    policy: int = 0
    k_pack: int | None = None
    by_warpgroups: bool | None = None

    def reads(self) -> list[Any]:
        from tilelang.ir import tile_ir

        accumulates = tile_ir.static(self.clear_accum) != 1
        return [self.a, self.b, *([self.c] if accumulates else [])]

    def writes(self) -> list[Any]:
        return [self.c]

    @property
    def m(self) -> int:
        return int(self.c.region[-2].extent)

    @property
    def n(self) -> int:
        return int(self.c.region[-1].extent)

    @property
    def k(self) -> int:
        return int(self.a.region[-2 if self.transpose_a else -1].extent)

    def meaning(self, machine: Machine) -> None:
        a, b = _matrix(machine.load(self.a)), _matrix(machine.load(self.b))
        a = a.T if self.transpose_a else a
        b = b.T if self.transpose_b else b
        integral = str(self.c.source.dtype).startswith(("int", "uint"))
        wide = np.int64 if integral else np.float64
        product = a.astype(wide) @ b.astype(wide)
        if not bool(machine.evaluate(self.clear_accum)):
            product = product + _matrix(machine.load(self.c)).astype(wide)
        machine.store(self.c, product.reshape([int(r.extent) for r in self.c.region]))


def _matrix(tile: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return tile.reshape(tile.shape[-2:])
