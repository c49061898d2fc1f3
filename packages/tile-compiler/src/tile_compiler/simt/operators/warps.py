"""How the waves of a block share a tile of C, and the fragments that follow."""

from __future__ import annotations

from dataclasses import dataclass

from tile_compiler.instructions import MatrixMultiply
from tile_compiler.simt.distribution import Distribution
from tilelang.layout import Fragment, IndexExpr, placeholders
from tilelang.layout.expr import Placeholder
from tilelang.layout.expr import substitute as substituted
from tilelang.ops.gemm import GemmWarpPolicy

MAX_THREADS = 1024


@dataclass(frozen=True)
class WarpTiling:
    """`rows` x `columns` waves, each with its own part of C; `copies` groups of waves compute the same.

    Wave number: row + rows * (column + columns * copy).
    """

    mma: MatrixMultiply
    m: int
    n: int
    k: int
    rows: int
    columns: int
    copies: int
    threads: int

    @property
    def row_blocks(self) -> int:
        """Instruction tiles along m in one wave."""
        return self.m // self.rows // self.mma.m

    @property
    def column_blocks(self) -> int:
        return self.n // self.columns // self.mma.n

    @property
    def k_blocks(self) -> int:
        return self.k // self.mma.k

    @property
    def label(self) -> str:
        return self.mma.label

    def _fragment(
        self, base: Fragment, shape: tuple[int, int], block: tuple[int, int], wave: IndexExpr, copies: int
    ) -> Distribution:
        return repeated(base, shape, block, wave * self.mma.lanes, copies, self.threads)

    def c(self) -> Distribution:
        i, j = placeholders(2)
        rep = Placeholder("rep")
        block = (self.m // self.rows, self.n // self.columns)
        wave = i // block[0] + (j // block[1] + rep * self.columns) * self.rows
        return self._fragment(self.mma.c_fragment, (self.m, self.n), block, wave, self.copies)

    def a(self) -> Distribution:
        """A in registers: every wave of a row of waves holds the same rows."""
        i, _ = placeholders(2)
        block = (self.m // self.rows, self.k)
        wave = i // block[0] + Placeholder("rep") * self.rows
        return self._fragment(self.mma.a_fragment, (self.m, self.k), block, wave, self.columns * self.copies)

    def b(self) -> Distribution:
        """B in registers: every wave of a column of waves holds the same columns."""
        _, j = placeholders(2)
        rep = Placeholder("rep")
        block = (self.k, self.n // self.columns)
        wave = rep % self.rows + (j // block[1] + rep // self.rows * self.columns) * self.rows
        return self._fragment(self.mma.b_fragment, (self.k, self.n), block, wave, self.rows * self.copies)


def repeated(
    base: Fragment, shape: tuple[int, int], block: tuple[int, int], first: IndexExpr, copies: int, threads: int
) -> Distribution:
    """`base` over one part of `shape` (`block`) for each group of threads, which begins at thread `first`.

    Registers are row-major over the instruction tiles of a part.
    """
    i, j = placeholders(2)
    height, width = base.shape
    inside = {"i": i % height, "j": j % width}
    down, along = i % block[0] // height, j % block[1] // width
    number = down * (block[1] // width) + along
    thread = substituted(base.thread_expr, inside) + first
    index = substituted(base.index_expr, inside) + number * base.local_size
    return Distribution(Fragment.from_exprs(shape, thread, index, copies, threads), threads)


def tiling(mma: MatrixMultiply, m: int, n: int, k: int, policy: int, threads: int) -> WarpTiling | None:
    """The split of a block's waves by `policy`; None if the tile or the block does not fit the instruction.

    Waves that find no rows or columns of their own repeat the work of others.
    """
    if threads % mma.lanes or not fits(mma, m, n, k):
        return None
    waves = threads // mma.lanes

    def legal(rows: int, columns: int) -> bool:
        return waves % (rows * columns) == 0 and m % (mma.m * rows) == 0 and n % (mma.n * columns) == 0

    pairs = [(r, c) for r in range(1, waves + 1) for c in range(1, waves + 1) if legal(r, c)]

    def merit(pair: tuple[int, int]) -> tuple[float, ...]:
        rows, columns = pair
        if policy == GemmWarpPolicy.FullRow:
            return (rows, columns)
        if policy == GemmWarpPolicy.FullCol:
            return (columns, rows)
        return (rows * columns, -(m / rows + n / columns), rows)

    rows, columns = max(pairs, key=merit)
    return WarpTiling(mma, m, n, k, rows, columns, waves // (rows * columns), threads)


def fits(mma: MatrixMultiply, m: int, n: int, k: int) -> bool:
    """Whether a tile is a multiple of the instruction's."""
    return m % mma.m == 0 and n % mma.n == 0 and k % mma.k == 0


def thread_counts(mma: MatrixMultiply, m: int, n: int, k: int) -> list[int]:
    """The sizes of a block in which every wave has a part of the tile of its own."""
    counts = range(mma.lanes, MAX_THREADS + 1, mma.lanes)
    return [t for t in counts if (found := tiling(mma, m, n, k, GemmWarpPolicy.Square, t)) and found.copies == 1]
