"""`MatrixMove`: instructions that carry small matrices between shared memory and the registers of a wave."""

from __future__ import annotations

from dataclasses import dataclass

from tile_compiler.instructions.architectures import check, in_words, runs_on
from tilelang.layout import Fragment

ROWS, ROW_BYTES = 8, 16


@dataclass(frozen=True)
class MatrixMove:
    """`count` matrices of 8 rows of 16 bytes between shared memory and 32-bit registers.

    Lane i of the first 8 * count gives the address of row i % 8 of matrix i // 8. Register q of a lane holds, of matrix
    q, the two 16-bit elements that `fragment` (8, 8) puts there; with `transposed`, of the transposed matrix.
    `store`: from registers to memory, else the reverse. `name(void* to, const void* from)` is the header's function.
    """

    name: str
    text: str
    count: int
    transposed: bool
    store: bool
    lanes: int
    architectures: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        check(self.architectures)
        fragment = self.fragment
        if self.count not in (1, 2, 4) or ROWS * self.count > self.lanes:
            raise ValueError(f"{self.name}: {self.count} matrices for {self.lanes} lanes")
        if fragment.cover_fault() or fragment.thread_extent * fragment.local_size != 64:
            raise ValueError(f"{self.name}: {fragment.cover_fault() or 'the matrix does not fill the registers'}")

    @property
    def fragment(self) -> Fragment:
        """Where element (row, column) of one matrix lies: (lane, half of the register)."""
        if self.transposed:
            return Fragment((8, 8), lambda i, j: (j * 4 + i // 2, i % 2))
        return Fragment((8, 8), lambda i, j: (i * 4 + j // 2, j % 2))

    def runs_on(self, architecture: str) -> bool:
        return runs_on(self.architectures, architecture)

    @property
    def where(self) -> str:
        return in_words(self.architectures)
