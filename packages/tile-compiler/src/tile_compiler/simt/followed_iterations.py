"""Which iterations of a loop are followed where barriers are placed: enough to see every version of a buffer meet every other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import sym
from tvm import tirx as tir

from tile_compiler.loops.affine import depends, linear
from tile_compiler.rewrite import substitute
from tilelang.ir import tile_ir

MANY = 3  # iterations of a loop that are followed at its beginning, beyond the versions that its buffers have

_COMPARISONS = ("LT", "LE", "GT", "GE", "EQ", "NE")


def followed(loop: tir.For, size: int | None, versions: int, value: Callable[[Any], Any]) -> list[int]:
    """The first ones, the last ones, and those around a change of a condition. `size`: how many there are, if that is known;
    `value` of an expression in the iterations of the loops around.

    Between them lie multiples of `versions`, whose iterations do what those before did.
    """
    first = MANY + versions
    if size is not None and size <= 2 * first:
        return list(range(size))
    ends = sorted({*_changes(loop, value), *([] if size is None else [size])})
    numbers = list(range(first))
    for end in ends:
        following = numbers[-1] + 1
        stop = end + 2 if size is None else min(end + 2, size)
        start = following + max(0, end - versions - following) // versions * versions
        numbers += range(start, stop)
    return numbers


def _changes(loop: tir.For, value: Callable[[Any], Any]) -> set[int]:
    """The iterations at which a condition on the loop's variable against a constant changes."""
    found: set[int] = set()
    number = tir.Var("number", str(loop.loop_var.ty))
    for n in tile_ir.walk(loop.body):
        if type(n).__name__ in _COMPARISONS and depends(n, {loop.loop_var}):
            both = value(substitute(n.a - n.b, {loop.loop_var: loop.min + number}))
            line = linear(both, number)
            base = None if line is None else tile_ir.static(sym.Analyzer().simplify(line[1]))
            if line is not None and line[0] and base is not None:
                found.add(max(0, -base // line[0]))
    return found
