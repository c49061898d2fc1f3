"""Panels of B: where the kernels of a product find them, and what packs them from a tensor, all before or one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx as tir
from tvm.ir import prim

from .counts import Stmt, at_most, index, loop_of, loop_within

#: Panels that one walk along the rows of a row-major B packs: a single one reads but a line or two of each row, whose next lines
#: wait for memory again. In tile registers, 32 columns to a panel, Xeon with AMX, of torch's speed by 1 and by 4: 16x4096x4096
#: 1.23, 1.64, 64x4096x4096 1.12, 1.34, 64x768x3072 0.91, 1.21, 128x1024x1024 1.18, 1.37, 1024x1024x1024 1.17, 1.21; by 8 of
#: them, which lie powers of two apart, 64x768x3072 0.97. Fetching rows ahead instead 1.24, 1.13, 0.98, 1.17, 1.17.
WALK = 4


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
    """Packs a B that lies in a tensor: `pack(t, place, cols)` makes panels of so many columns, from the t-th `together` ones on,
    from the panel `place` on of a buffer [panels][groups][width] of units; `row`: bytes of a row of a panel; `walks`: how many
    times `together` one walk along the rows makes, the most that there are."""

    buffer: Any
    together: int
    width: int
    row: int
    pack: Callable[[Any, Any, int], Stmt]
    walks: tuple[int, ...] = ()

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

        def pack(first: Any, cols: int) -> Stmt:
            return self.pack(first, first * self.together, cols)

        def walked(begin: Any, end: Any, walk: int) -> Stmt:
            times = tir.floordiv(end - begin, index(walk))
            return loop_of(times, lambda t: pack(begin + t * walk, walk * self.cols))

        def walks(first: int, count: int, cols: int) -> list[Stmt]:
            some = [walk for walk in self.walks if walk <= count] if cols == self.cols else []
            if not some:
                return [loop_within(count, limit, first * self.cols, cols, lambda t: pack(t + index(first), cols))]
            there, stmts, begin = at_most(count * cols, limit), [], index(0)
            for walk in (*some, 1):
                up = cols - 1 if walk == 1 else 0  # the last panel may not be whole
                end = tir.floordiv(there + index(up), index(walk * cols)) * walk
                stmts.append(walked(begin, end, walk))
                begin = end
            return stmts

        return Panels(self.at, self.row, True, [stmt for part in self.parts(n) for stmt in walks(*part)])

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
