"""What one request of a warp costs: sectors of global memory, turns of the banks of shared memory.

Addresses are in bytes, by (request, lane).
"""

from __future__ import annotations

import numpy as np

from tile_compiler.simt.thread_values import Array

SECTOR, BANKS, BANK_BYTES = 32, 32, 4


def collapsed(place: Array, period: int) -> Array:
    """`place` without the axes along which all threads move by one multiple of `period` bytes: the cost is the same."""
    for axis in range(place.ndim - 1):
        moved = place - place.take([0], axis)
        same = moved == moved.reshape(*moved.shape[: axis + 1], -1)[..., :1].reshape(
            *moved.shape[: axis + 1], *[1] * (place.ndim - axis - 1)
        )
        if place.shape[axis] > 1 and bool(same.all()) and not (moved % period).any():
            place = place.take([0], axis)
    return place


def distinct(values: Array, active: Array) -> Array:
    """For each row the number of different values among the active ones."""
    ordered = np.sort(np.where(active, values, np.iinfo(np.int64).max), axis=1)
    new = np.ones(ordered.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    counted: Array = (new & (ordered != np.iinfo(np.int64).max)).sum(axis=1)
    return counted


def wavefronts(address: Array, active: Array, width: int) -> tuple[Array, Array]:
    """(turns, turns without conflicts) of each request. Accesses of 8 and 16 bytes are made by half and quarter warps;
    in each part a bank serves one word of 4 bytes at a time, to all lanes that want it."""
    lanes = 32 if width <= 4 else 16 if width == 8 else 8
    words = max(1, width // BANK_BYTES)
    parts = address.reshape(-1, lanes, 1) // BANK_BYTES + np.arange(words)
    on = np.broadcast_to(active.reshape(-1, lanes, 1), parts.shape).reshape(len(parts), -1)
    nowhere = np.iinfo(np.int64).max
    ordered = np.sort(np.where(on, parts.reshape(len(parts), -1), nowhere), axis=1)
    new = ordered != nowhere
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    row, column = np.nonzero(new)
    bank = row * BANKS + ordered[row, column] % BANKS
    turns = np.bincount(bank, minlength=len(parts) * BANKS).reshape(-1, BANKS).max(axis=1)
    return turns.reshape(len(address), -1).sum(axis=1), on.any(axis=1).reshape(len(address), -1).sum(axis=1)
