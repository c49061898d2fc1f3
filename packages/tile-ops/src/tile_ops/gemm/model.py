"""How long the tiles of a product take on a chip, whole or in parts along k, and which parts take least."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

#: Microseconds of a second launch that begins early, and bytes of parts that are written and read again in one. Fitted to
#: 20 products in parts (cuda.md, "Products of any shape"): 3 to 4 us with 1 MB, 4 to 6 with 4 MB, 4 to 5 with 8 MB.
LAUNCH, BYTES = 3.0, 3.0e6
#: Parts that a tile has at most, steps that a part has at least: fewer, and starting costs more than it brings.
PARTS, STEPS = 32, 4
#: Of the time of whole tiles: what parts must come below, as the model is not exact.
WORTH = 0.85


@dataclass(frozen=True)
class Rates:
    """Microseconds of a block's step and of its beginning and end together, where `slots` blocks run at once; bytes in a
    microsecond that such tiles read of the operands, all blocks together."""

    step: float
    start: float
    slots: int
    memory: float = math.inf

    def reading(self, size: int) -> float:
        """Microseconds that a product lasts at least whose operands have so many bytes."""
        return self.start + size / self.memory


@dataclass(frozen=True)
class Division:
    """The first `whole` tiles by a block each, the others in `parts` parts of `steps` steps (the last has the rest)."""

    whole: int
    parts: int
    steps: int
    microseconds: float

    def pieces(self, tiles: int) -> int:
        """How many parts there are in all."""
        return (tiles - self.whole) * self.parts


def whole(tiles: int, steps: int, rates: Rates, size: int = 0) -> Division:
    """One block for each tile: as many waves as the chip has turns of `slots`, the last one as long as the others.
    `size`: bytes of the operands."""
    waves = -(-tiles // rates.slots)
    return Division(tiles, 1, steps, max(waves * (rates.start + steps * rates.step), rates.reading(size)))


def staying(tiles: int, steps: int, rates: Rates, turn: float, size: int = 0) -> Division:
    """Blocks that stay: a tile is stored, which takes `turn` microseconds of its turn, while the next one is loaded."""
    waves = -(-tiles // rates.slots)
    time = rates.start + waves * (turn + steps * rates.step)
    return Division(tiles, 1, steps, max(time, rates.reading(size)))


def divisions(tiles: int, steps: int, area: int, rates: Rates, size: int = 0) -> Iterator[Division]:
    """Ways to cut what whole waves leave, or that and one wave more, into parts; `area` elements in a tile, `size` bytes of
    the operands."""
    full = tiles - tiles % rates.slots
    for first in {full, max(0, full - rates.slots)} - {tiles}:
        for parts in range(2, min(PARTS, steps // STEPS) + 1):
            each = -(-steps // parts)
            if -(-steps // each) < parts:
                continue  # as many steps in fewer parts
            pieces = (tiles - first) * parts
            time = first // rates.slots * (rates.start + steps * rates.step)
            time += -(-pieces // rates.slots) * (rates.start + each * rates.step)
            time = max(time, rates.reading(size)) + LAUNCH + 4 * pieces * area / BYTES
            yield Division(first, parts, each, time)


def least(tiles: int, steps: int, area: int, rates: Rates, size: int = 0) -> Division | None:
    """The way to cut that takes the least time by this model."""
    return min(divisions(tiles, steps, area, rates, size), key=lambda d: d.microseconds, default=None)


def best(tiles: int, steps: int, area: int, rates: Rates, size: int = 0) -> Division:
    """The division that takes the least time by this model; whole tiles where parts bring little."""
    plain = whole(tiles, steps, rates, size)
    cut = least(tiles, steps, area, rates, size)
    return cut if cut is not None and cut.microseconds < WORTH * plain.microseconds else plain
