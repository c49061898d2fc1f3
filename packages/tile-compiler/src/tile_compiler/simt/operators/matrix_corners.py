"""Where the matrices of `ldmatrix` and `stmatrix` begin, if they put every byte of a tile where its fragment says."""

from __future__ import annotations

import numpy as np

from tile_compiler.instructions import MatrixMove
from tile_compiler.simt.distribution import of_fragment
from tile_compiler.simt.terms import Ints

REGISTER_BITS = 32
ROW_BYTES = 16


def corners(move: MatrixMove, rows: Ints, columns: Ints, bits: int) -> Ints | None:
    """(row, column) of the first element of each register's matrix, shape (registers, 2); None if there is none.

    `rows`, `columns`: the place in memory of each (lane, element of the lane's array), elements of `bits` bits.
    """
    count = rows.shape[1] * bits // REGISTER_BITS
    if bits < 8 or rows.shape[1] * bits % REGISTER_BITS:
        return None
    byte = np.arange(REGISTER_BITS // 8)
    halves = of_fragment(move.fragment, move.lanes).held  # of one matrix: by lane and half of a register
    row, pair = np.divmod(halves[:, byte // 2], 8)
    moved = np.stack([row, pair * 2 + byte % 2])  # (row, byte in the row) by lane and byte of a register
    found = np.empty((count, 2), np.int64)
    for q in range(count):
        element = (q * REGISTER_BITS + byte * 8) // bits
        wanted = np.stack([rows[:, element], columns[:, element] * (bits // 8) + byte % (bits // 8)])
        corner = wanted.min(axis=(1, 2))
        if corner[1] % ROW_BYTES or (wanted - corner[:, None, None] != moved).any():
            return None
        found[q] = corner[0], corner[1] * 8 // bits
    return found
