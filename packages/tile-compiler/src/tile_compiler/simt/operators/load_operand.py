"""An operand of a matrix instruction from shared memory into registers: `ldmatrix`, else vectors, else elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import tirx as tir

from tile_compiler.instructions import MatrixMove, matrix_moves
from tile_compiler.simt.distribution import of_fragment
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.matrix_corners import REGISTER_BITS, ROW_BYTES, corners
from tile_compiler.simt.operators.nests import address, int32, local, run, store, unrolled
from tile_compiler.simt.terms import Ints, is_formula, to_tir
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Fragment, Layout, placeholders
from tilelang.layout.fit import expr_of_values


@dataclass(frozen=True)
class Matrices:
    """How `ldmatrix` fills the registers of one block: the corner (row, column) in memory of each register's matrix."""

    corners: tuple[tuple[int, int], ...]
    transposed: bool


@dataclass
class OperandLoad:
    """One operand of a product: `blocks` instruction tiles for one step along k, or for each of `steps` that registers hold.

    `fragment` has the operand's axes, (m, k) or (k, n); memory has them in this order, or the other way round if
    `turned`. `along` is the fragment's axis on which blocks follow each other (the other one is k); `origin(k)` is the
    tile index of block 0 at step k.
    """

    region: Any
    dtype: str
    fragment: Fragment
    turned: bool
    along: int
    blocks: int
    lanes: int
    low: Lowering
    steps: int = 1

    def __post_init__(self) -> None:
        self.size = self.fragment.local_size
        self.bits = dtype_of(self.dtype).bits
        self.held = local(self.steps * self.blocks * self.size, self.dtype, f"{self.region.source.name}_frag")
        self.low.temporaries.append(tir.AllocBuffer(self.held))
        self.lane = self.low.tx % self.lanes

    @cached_property
    def _places(self) -> tuple[Ints, Ints]:
        """Row and column in memory of each (lane, register)."""
        held = of_fragment(self.fragment, self.lanes).held
        i, j = np.unravel_index(held, self.fragment.shape)
        return (j, i) if self.turned else (i, j)

    @cached_property
    def _block_step(self) -> tuple[int, int]:
        """What one block further is in memory."""
        step = [0, 0]
        step[self.along ^ self.turned] = self.fragment.shape[self.along]
        return step[0], step[1]

    def fill(self, origin: tuple[Any, Any], step: Any = 0) -> list[Any]:
        """The statements that load all blocks of number `step` of the steps that are held; `origin` is (row, column) of block 0
        in the operand's axes."""
        at = origin[::-1] if self.turned else origin
        for move in self._moves():
            matrices = self._matrices(move)
            if matrices is not None:
                return self._by_matrices(matrices, at)
        return [self._by_vectors(at, self.place(0, step))]

    def place(self, block: Any, step: Any = 0) -> Any:
        """The first register of a block."""
        return (step * self.blocks + block) * self.size

    def instruction(self) -> str:
        """What the report says of the load."""
        moves = [m for m in self._moves() if self._matrices(m)]
        if moves:
            return "ldmatrix.trans" if moves[0].transposed else "ldmatrix"
        width = self._width()
        return f"{width * self.bits // 8} bytes at a time"

    # -- ldmatrix ------------------------------------------------------------------------------------------------

    def _moves(self) -> list[MatrixMove]:
        """`ldmatrix` plain and transposed, where the architecture has it and rows of 16 bytes lie together."""
        chunk = ROW_BYTES * 8 // self.bits
        if self._vector_limit(chunk) < chunk:
            return []
        known = [m for m in matrix_moves() if not m.store and m.lanes == self.lanes]
        return [m for m in known if m.count == 4 and m.runs_on(self.low.ctx.arch.name)]

    def _matrices(self, move: MatrixMove) -> Matrices | None:
        """The corners by which `move` puts every byte where the instruction wants it; None if it cannot."""
        found = corners(move, *self._places, self.bits)
        return None if found is None else Matrices(tuple((int(r), int(c)) for r, c in found), move.transposed)

    def _by_matrices(self, matrices: Matrices, at: tuple[Any, Any]) -> list[Any]:
        """Four matrices at a time: parts of a block, or several blocks; what is left by two and one."""
        count = len(matrices.corners)
        down, along = self._block_step
        every = [
            (row + b * down, column + b * along) for b in range(max(1, 4 // count)) for row, column in matrices.corners
        ]
        group = every[: max(4, count)] if count * self.blocks >= 4 else every[: count * self.blocks]
        per_group = max(1, len(group) // count)
        turns, rest = divmod(self.blocks, per_group)

        def parts(b: Any, places: Sequence[tuple[int, int]]) -> list[Any]:
            out, done = [], 0
            while done < len(places):
                width = next(w for w in (4, 2, 1) if w <= len(places) - done)
                out.append(self._move(places[done : done + width], done, b, at, matrices.transposed))
                done += width
            return out

        out = [
            unrolled("j", turns, lambda t: tile_ir.sequence(parts(t * per_group if per_group > 1 else t, group))),
        ]
        return out + (parts(int32(turns * per_group), every[: rest * count]) if rest else [])

    def _move(
        self, places: Sequence[tuple[int, int]], first: int, block: Any, at: tuple[Any, Any], transposed: bool
    ) -> Any:
        """One `ldmatrix` for the registers from `first` on of block number `block`."""
        number = self.lane // 8 if len(places) * 8 == self.lanes else self.lane // 8 % len(places)
        row, column = (self._choice([p[axis] for p in places], number) for axis in (0, 1))
        down, along = self._block_step
        place = (at[0] + block * down + row + self.lane % 8, at[1] + block * along + column)
        registers = block * self.size + first * REGISTER_BITS // self.bits
        name = f"tl::ldmatrix_x{len(places)}{'_trans' if transposed else ''}"
        source = tir.address_of(tir.BufferLoad(self.region.source, self._index(place)))
        return run(name, address(self.held, self.low.simplify(registers)), source, span=self.low.span)

    @staticmethod
    def _choice(values: Sequence[int], number: Any) -> Any:
        """`values[number]` as arithmetic."""
        return to_tir(expr_of_values(np.array(values), placeholders(1)), {"i": number})

    # -- vectors -------------------------------------------------------------------------------------------------

    def _vector_limit(self, wanted: int) -> int:
        """Neighbours in memory that one aligned access may move."""
        layout = self.low.layout(self.region.source)
        start = tile_ir.static(self.region.region[-1].min)
        width = layout.vector_width(-1, wanted) if isinstance(layout, Layout) else 1
        while width > 1 and (start is None or start % width):
            width //= 2
        return int(width)

    def _width(self) -> int:
        """Registers that every lane fills from aligned neighbours of a row."""
        rows, columns = self._places
        width, limit = 1, min(self.size, self._vector_limit(ROW_BYTES * 8 // self.bits))
        while width < limit and self.size % (2 * width) == 0:
            r, c = (x.reshape(self.lanes, -1, 2 * width) for x in (rows, columns))
            neighbours = (r == r[..., :1]).all() and (c == c[..., :1] + np.arange(2 * width)).all()
            if not neighbours or (c[..., 0] % (2 * width)).any():
                break
            width *= 2
        return width

    def _by_vectors(self, at: tuple[Any, Any], begin: Any) -> Any:
        width = self._width()
        down, along = self._block_step
        i, j = self._inverse()

        def load(b: Any, r: Any) -> Any:
            first = r * width if width > 1 else r
            values = {"i": self.lane, "j": first}
            row, column = (to_tir(e, values) for e in ((j, i) if self.turned else (i, j)))
            index = self._index((at[0] + b * down + row, at[1] + b * along + column))
            register = self.low.simplify(begin + b * self.size + first)
            if width > 1:
                index[-1] = tir.Ramp(index[-1], tir.const(1, str(index[-1].ty)), width)
                register = tir.Ramp(register, int32(1), width)
            return store(self.held, tir.BufferLoad(self.region.source, index), register, span=self.low.span)

        return unrolled("b", self.blocks, lambda b: unrolled("r", self.size // width, lambda r: load(b, r)))

    def _inverse(self) -> tuple[Any, Any]:
        """The element (i, j) of (lane, register), as index expressions."""
        found = of_fragment(self.fragment, self.lanes).inverse
        if not all(is_formula(e) for e in found):
            raise ValueError(f"the fragment {self.fragment} has no formula for the way back from lanes to elements")
        return found[0], found[1]

    def _index(self, at: tuple[Any, Any]) -> list[Any]:
        lead = [r.min for r in self.region.region[:-2]]
        moved = [r.min + offset for r, offset in zip(self.region.region[-2:], at)]
        return [self.low.simplify(i) for i in (*lead, *moved)]
