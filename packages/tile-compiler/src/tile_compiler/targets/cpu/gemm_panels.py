"""Panels of B: where the kernels of a product find them, and what packs them from a tensor, all before or one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx as tir
from tvm.ir import prim

from .counts import Stmt, index, loop_within


@dataclass(frozen=True)
class Panels:
    """B as the kernels read it: `at(p, group)` is the address of a group along K in panel p; `row` the bytes between groups, an
    expression of int64 where B lies in a tensor whose rows' distance is not known; `padded`: whether rows are padded to whole
    vectors. `before`: what makes them before all products; `pack(p)`: what makes panel p just before its own (None: nothing)."""

    at: Callable[[Any, Any], Any]
    row: Any
    padded: bool
    before: Sequence[Stmt] = ()
    pack: Callable[[Any], Stmt] | None = None


@dataclass(frozen=True)
class Packer:
    """Packs a B that lies in a tensor: `pack(t, place, cols)` makes the t-th `together` panels of it, so many columns, from the
    panel `place` on of a buffer [panels][groups][width] of units; `row`: bytes of a row of a panel."""

    buffer: Any
    together: int
    width: int
    row: int
    pack: Callable[[Any, Any, int], Stmt]

    @property
    def cols(self) -> int:
        """Columns of B that are packed at once."""
        return self.together * self.width

    def parts(self, n: int) -> list[tuple[int, int, int]]:
        """(first, count, columns) of what is packed at once of n columns: the whole ones and the last."""
        full, rest = divmod(n, self.cols)
        return [part for part in ((0, full, self.cols), (full, 1, rest)) if all(part[1:])]

    def at(self, panel: Any, group: Any) -> Any:
        """The address of a group of a panel of the buffer."""
        return tir.address_of(tir.BufferLoad(self.buffer, [panel, group, index(0)]))

    def panels_before(self, n: int, limit: Any) -> Panels:
        """Of n columns, as far as they begin below the limit: the buffer has all of them."""

        def all_of(first: int, count: int, cols: int) -> Stmt:
            def one(t: Any) -> Stmt:
                block = t + index(first)
                return self.pack(block, block * self.together, cols)

            return loop_within(count, limit, first * self.cols, cols, one)

        return Panels(self.at, self.row, True, [all_of(*part) for part in self.parts(n)])

    def panels_by_and_by(self, n: int) -> Panels:
        """Of n columns: the buffer has those that are packed at once, before the first product with them."""

        def held(panel: Any) -> Any:
            return index(0) if self.together == 1 else tir.floormod(panel, index(self.together))

        def pack(panel: Any) -> Stmt:
            block = tir.floordiv(panel, index(self.together))
            (_, full, cols), *last = self.parts(n)
            stmt = self.pack(block, index(0), cols)
            if last:
                stmt = tir.IfThenElse(block < index(full), stmt, self.pack(block, index(0), last[0][2]))
            return stmt if self.together == 1 else tir.IfThenElse(prim.EQ(held(panel), index(0)), stmt, None)

        return Panels(lambda panel, group: self.at(held(panel), group), self.row, True, pack=pack)
