"""The bytes of shared memory that a matrix instruction of a warpgroup reads, from its text and its descriptors.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Shared Memory Matrix Layout" and "Matrix descriptor".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tile_compiler.simt.block_memory import Memory
from tile_compiler.simt.thread_values import Array

STEP = 32  # bytes along k of one instruction
GROUP = 8  # rows of a core matrix
CHUNK = 16  # bytes of a row of a core matrix

_NAME = re.compile(r"tl::wgmma_m64k(\d+)_([a-z0-9]+?)_([a-z0-9_]+?)(_rs)?<(\d+)((?:, *tl::\w+)*)>")


@dataclass(frozen=True)
class Product:
    """An instruction: its shape is 64 x n x k; whether a comes from registers; whether a and b have k along rows."""

    n: int
    k: int
    from_registers: bool
    k_major: tuple[bool, bool]

    @staticmethod
    @lru_cache(maxsize=256)
    def of(name: str) -> Product:
        """`tl::wgmma_m64k16_f32_f16<128, tl::k_major, tl::mn_major>` as facts."""
        found = _NAME.fullmatch(name)
        assert found is not None, name
        majors = [m.strip() == "tl::k_major" for m in found[6].split(",")[1:]]
        registers = found[4] is not None
        if registers:
            majors = [True, *majors]
        majors += [True] * (2 - len(majors))
        return Product(int(found[5]), int(found[1]), registers, (majors[0], majors[1]))


@lru_cache(maxsize=256)
def offsets(extent: int, k: int, k_major: bool, swizzle: int, leading: int, stride: int) -> Array:
    """Where a matrix of `extent` x `k` (32 bytes along k) has its bytes, from the descriptor's start; not yet swizzled."""
    if k_major:
        row, byte = np.arange(extent)[:, None], np.arange(STEP)[None]
        if swizzle:
            return (row // GROUP * stride + row % GROUP * swizzle + byte).ravel()
        return (row // GROUP * stride + row % GROUP * CHUNK + byte // CHUNK * leading + byte % CHUNK).ravel()
    row, byte = np.arange(k)[:, None], np.arange(extent * STEP // k)[None]
    if swizzle:
        return (row // GROUP * stride + row % GROUP * swizzle + byte // swizzle * leading + byte % swizzle).ravel()
    return (row // GROUP * leading + row % GROUP * CHUNK + byte // CHUNK * stride + byte % CHUNK).ravel()


def swizzled(address: Array, swizzle: int) -> Array:
    """The XOR of the 16-byte chunk within a row and the row within a group."""
    return address ^ ((address >> 3) & (swizzle - CHUNK)) if swizzle else address


@lru_cache(maxsize=1024)
def places(form: tuple[int, int, bool, int, int, int], first: int, unit: int, count: int) -> tuple[Array, int]:
    """Which of `count` places of `unit` bytes the matrix of this form (see `offsets`) has that starts at byte `first`;
    a number that is equal for equal places."""
    held = np.zeros(count, bool)
    found = swizzled(first + offsets(*form), form[3]) // unit
    held[found[found < count]] = True
    place = np.flatnonzero(held)
    place.setflags(write=False)
    return place, hash(place.tobytes())


class Matrix(NamedTuple):
    """What a product reads of shared memory; `number` is equal for equal places."""

    memory: Memory
    place: Array
    number: int
