"""The tile of a product of halves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """Rows and columns of C, and steps along k: of B so much is prepared at a time, for so many rows. `at_once`: sums of one step
    are C's elements as they leave the registers. `transposed`: it is A that is prepared, for so many rows of a transposed B.
    `across`: a transposed A is read where it lies. `strip`: rows that are finished at a time, where one step makes sums to which
    more is to be done; 0: all."""

    block_m: int
    block_n: int
    block_k: int
    at_once: bool = False
    transposed: bool = False
    across: bool = False
    strip: int = 0
