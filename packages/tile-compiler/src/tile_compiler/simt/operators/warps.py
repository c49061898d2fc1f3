"""How the warps of a block share a tile of C, and the fragments that follow."""

from __future__ import annotations

from dataclasses import dataclass

from tile_compiler.simt.distribution import Distribution
from tile_compiler.simt.operators.instructions import Mma
from tilelang.layout import Fragment, IndexExpr, placeholders
from tilelang.layout.expr import Placeholder
from tilelang.layout.expr import substitute as substituted
from tilelang.ops.gemm import GemmWarpPolicy


@dataclass(frozen=True)
class WarpTiling:
    """`rows` x `columns` warps, each with its own part of C; `copies` groups of warps compute the same.

    Warp number: row + rows * (column + columns * copy).
    """

    mma: Mma
    m: int
    n: int
    k: int
    rows: int
    columns: int
    copies: int
    threads: int

    @property
    def row_blocks(self) -> int:
        """Instruction tiles along m in one warp."""
        return self.m // self.rows // 16

    @property
    def column_blocks(self) -> int:
        return self.n // self.columns // 8

    @property
    def k_blocks(self) -> int:
        return self.k // self.mma.k

    def _fragment(
        self, base: Fragment, shape: tuple[int, int], block: tuple[int, int], warp: IndexExpr, order: int, copies: int
    ) -> Distribution:
        """`base` repeated over a warp's part of `shape` (`block`), registers row-major over the blocks (or column-major)."""
        i, j = placeholders(2)
        height, width = base.shape
        inside = {"i": i % height, "j": j % width}
        down, along = i % block[0] // height, j % block[1] // width
        number = down * (block[1] // width) + along if order == 0 else along * (block[0] // height) + down
        thread = substituted(base.thread_expr, inside) + warp * 32
        index = substituted(base.index_expr, inside) + number * base.local_size
        return Distribution(Fragment.from_exprs(shape, thread, index, copies, self.threads), self.threads)

    def c(self) -> Distribution:
        i, j = placeholders(2)
        rep = Placeholder("rep")
        block = (self.m // self.rows, self.n // self.columns)
        warp = i // block[0] + (j // block[1] + rep * self.columns) * self.rows
        return self._fragment(self.mma.c(), (self.m, self.n), block, warp, 0, self.copies)

    def a(self) -> Distribution:
        """A in registers: every warp of a row of warps holds the same rows."""
        i, _ = placeholders(2)
        block = (self.m // self.rows, self.k)
        warp = i // block[0] + Placeholder("rep") * self.rows
        return self._fragment(self.mma.a(), (self.m, self.k), block, warp, 0, self.columns * self.copies)

    def b(self) -> Distribution:
        """B in registers: every warp of a column of warps holds the same columns."""
        _, j = placeholders(2)
        rep = Placeholder("rep")
        block = (self.k, self.n // self.columns)
        warp = rep % self.rows + (j // block[1] + rep // self.rows * self.columns) * self.rows
        return self._fragment(self.mma.b(), (self.k, self.n), block, warp, 0, self.rows * self.copies)


def tiling(mma: Mma, m: int, n: int, k: int, policy: int, threads: int) -> WarpTiling | None:
    """The split of a block's warps by `policy`; None if the tile or the block does not fit the instruction.

    Warps that find no rows or columns of their own repeat the work of others.
    """
    if threads % 32 or m % 16 or n % 8 or k % mma.k:
        return None
    warps = threads // 32

    def legal(rows: int, columns: int) -> bool:
        return warps % (rows * columns) == 0 and m % (16 * rows) == 0 and n % (8 * columns) == 0

    pairs = [(r, c) for r in range(1, warps + 1) for c in range(1, warps + 1) if legal(r, c)]

    def merit(pair: tuple[int, int]) -> tuple[float, ...]:
        rows, columns = pair
        if policy == GemmWarpPolicy.FullRow:
            return (rows, columns)
        if policy == GemmWarpPolicy.FullCol:
            return (columns, rows)
        return (rows * columns, -(m / rows + n / columns), rows)

    rows, columns = max(pairs, key=merit)
    return WarpTiling(mma, m, n, k, rows, columns, warps // (rows * columns), threads)
