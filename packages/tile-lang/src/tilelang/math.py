"""Integer helpers for host code."""

from __future__ import annotations

from tilelang.language.math import cdiv as cdiv


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n; 1 for n <= 1."""
    return 1 if n <= 1 else 1 << (int(n) - 1).bit_length()
