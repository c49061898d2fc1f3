"""Lines that are fetched into the caches: by a GEMM kernel while it multiplies, a few at a time, and by `T.prefetch`.

The products leave the memory idle; all lines at once would hold up the kernel's own loads (docs/performance/cpu.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx as tir

from tile_compiler.context import Ahead, Fetch
from tilelang.ir import tile_ir

from .llvm_text import Function, Value

#: Bytes of a line of the caches.
LINE = 64
#: Lines that a step fetches of a tile at most: more would hold up its own loads.
MOST_LINES = 8


@dataclass(frozen=True)
class FetchedLines:
    """`each` lines of a matrix are fetched in each step, one after the other; `row` lines make a row. Powers of two."""

    each: int
    row: int
    level = 1

    @classmethod
    def of(cls, rows: int, row_bytes: int, steps: int) -> FetchedLines:
        """So many that steps fetch the whole matrix, or `MOST_LINES` each."""
        row = power_of_two(-(-row_bytes // LINE))
        return cls(min(MOST_LINES, power_of_two(-(-rows * row // steps))), row)

    def addresses(self, f: Function, step: Value, start: Value, stride: Value) -> list[Value]:
        """What a step fetches of a matrix with `stride` bytes between rows."""
        first = step * self.each
        row = f.anywhere(start, (first >> (self.row.bit_length() - 1)) * stride)
        at = f.anywhere(row, (first & (self.row - 1)) * LINE)
        return [f.anywhere(at, stride * (i // self.row) + i % self.row * LINE) for i in range(self.each)]


@dataclass(frozen=True)
class FetchedColumns:
    """In each step the next line of each of so many rows is fetched, into the second cache."""

    each: int
    row = 0  # no line of a row follows another in a step
    level = 2

    def addresses(self, f: Function, step: Value, start: Value, stride: Value) -> list[Value]:
        """What a step fetches of a matrix with `stride` bytes between rows."""
        at = f.anywhere(start, step * LINE)
        return [f.anywhere(at, stride * i) for i in range(self.each)]


@dataclass(frozen=True)
class Fetched:
    """Lines of a matrix from an address on, rows of which are `stride` bytes apart."""

    lines: FetchedLines
    address: Any
    stride: Any


@dataclass(frozen=True)
class FetchedRows:
    """Rows of a matrix from an address on, `stride` bytes apart."""

    lines: FetchedColumns
    address: Any
    stride: Any


@dataclass(frozen=True)
class Share:
    """What one of `blocks` blocks fetches of a tile, `each` lines in each of its steps.

    All counts are powers of two, so that a block's lines begin a row or lie in one: up to a half is fetched twice or, of a
    tile that is large beside the products, left out.
    """

    tile: Ahead
    lines: FetchedLines
    block: int  # lines of a block
    whole: bool  # nothing is left out

    @classmethod
    def of(cls, tile: Ahead, blocks: int, steps: int) -> Share:
        slots = power_of_two(steps + 1) // 2
        lines = FetchedLines.of(tile.rows, tile.row_bytes, blocks * slots)
        return cls(tile, lines, lines.each * slots, lines.each * slots * blocks >= tile.rows * lines.row)

    def begin(self, number: Any) -> tuple[Any, Any]:
        """The row and the byte where the lines of a block begin."""
        first, row = number * self.block, tir.const(self.lines.row, "int64")
        return tir.truncdiv(first, row), tir.truncmod(first, row) * LINE

    def of_block(self, number: Any) -> Fetched:
        """What a block fetches."""
        return Fetched(self.lines, self.tile.address(*self.begin(number)), self.tile.stride)


def power_of_two(least: int) -> int:
    """The power of two from `least` on."""
    return 1 << (least - 1).bit_length()


def fetched(piece: Fetch) -> Any:
    """The statement that fetches a piece of memory into the second cache."""
    size = tile_ir.static(piece.size)
    if size is not None and size <= MOST_LINES * LINE:
        return tir.Evaluate(tir.call_extern("void", f"tl.fetch.{-(-size // LINE)}", piece.address))
    return tir.Evaluate(tir.call_extern("void", "tl.fetch.lines", piece.address, piece.size))


def _fetch(name: str, count: str) -> Function:
    """`void tl.fetch.4(ptr at)`: four lines from that of `at` on, where a call would have the loop around give up its registers;
    `void tl.fetch.lines(ptr at, i64 bytes)`: any number of them."""
    if count != "lines":
        f = Function(name, "void", [("at", "ptr")])
        f.block("entry")
        for line in range(int(count)):
            f.fetch(f.anywhere(f.args[0], f.const("i64", line * LINE)), level=2)
        f.ret()
        return f
    f = Function(name, "void", [("at", "ptr"), ("bytes", "i64")], inline=False)
    at, size = f.args
    f.block("entry")
    with f.count("lines", "entry", size, LINE) as offset:
        f.fetch(f.anywhere(at, offset), level=2)
    f.ret()
    return f


WRITERS: dict[str, Callable[..., Function]] = {"fetch": _fetch}
