"""What lowering for GPUs raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tile_compiler.errors import CompileError, where
from tile_compiler.simt.distribution import Distribution
from tile_compiler.simt.layout.drawing import beside, drawn
from tile_compiler.simt.layout.equations import Annotation
from tilelang.location import of_span

if TYPE_CHECKING:
    from tile_compiler.instructions import MatrixMultiply
    from tile_compiler.simt.layout.equations import Rule, Solution, Unknown
    from tilelang.ops import Gemm


class LayoutConflict(CompileError, ValueError):
    """Two operators demand different distributions of one tile over the threads, and no copy between can help.

    `rule` cannot live with the value that `other` (its words and line) gave to `unknown`; `annotated`: the user did.
    """

    code = "TL204"
    unknown: Unknown | None = None
    rule: Rule | None = None
    other: str = ""
    annotated: bool = False

    @classmethod
    def between(cls, rule: Rule, unknown: Unknown, solution: Solution, why: str) -> LayoutConflict:
        """The error of `rule`, which says `why` it needs something else than `solution` has for `unknown`."""
        giver = solution.origin.get(unknown)
        other = f"{giver.text} at {where(giver.span)}" if giver is not None else "row-major order"
        annotated, name = giver is None or isinstance(giver, Annotation), unknown.name
        by_hand = f"drop the annotation of {name}, or T.copy {name} to another fragment for {rule.text}"
        error = cls(
            f"{rule.text} and {other} need different layouts of {name}",
            at=rule.span,
            found=_maps(rule, giver, unknown, solution, other),
            expected=why,
            repair=by_hand
            if annotated
            else f"write {name} in one T.Parallel loop and read it in the next, or use a shared buffer for it",
        )
        error.unknown, error.rule, error.other, error.annotated = unknown, rule, other, annotated
        return error


def _maps(rule: Rule, giver: Rule | None, unknown: Unknown, solution: Solution, other: str) -> str:
    """What both sides want: as formulas, and drawn side by side."""
    given, mine = solution.values.get(unknown), rule.wanted(unknown, solution.values)
    if not isinstance(given, Distribution):
        return f"{other} lays {unknown.name} out as {given}"
    lines = [f"{other} gives {unknown.name} {given.describe()}"]
    left = [f"{other if giver is None else _briefly(giver)}:", *drawn(given)]
    if mine is None:
        return "\n            ".join([*lines, *left])
    lines.append(f"{rule.text} wants {mine.describe()}")
    return "\n            ".join([*lines, *beside(left, [f"{_briefly(rule)}:", *drawn(mine)])])


def _briefly(rule: Rule) -> str:
    """Over a drawing: two products differ by their lines alone."""
    location = of_span(rule.span)
    return rule.text if location is None else f"{rule.text}, line {location.line}"


class SharedMemoryRace(CompileError, ValueError):
    """Two threads meet at one place of shared memory with no barrier between them."""

    code = "TL205"


class BarrierMismatch(CompileError, ValueError):
    """Arrivals, bytes and waits of an mbarrier do not fit: a wait never ends, or does so for an earlier phase."""

    code = "TL208"


class ProductUnderWay(CompileError, ValueError):
    """The registers of an asynchronous product are used before it has been waited for."""

    code = "TL209"


class SharedMemoryOverflow(CompileError, ValueError):
    """A block asks for more shared memory than the architecture has."""

    code = "TL206"


class ThreadsDoNotFit(CompileError, ValueError):
    """A block's threads do not form whole waves, which a matrix instruction needs."""

    code = "TL207"

    @classmethod
    def of(cls, instruction: MatrixMultiply, op: Gemm, threads: int, counts: list[int], span: Any) -> ThreadsDoNotFit:
        """`counts` are the sizes of a block that the product can be split over."""
        shown = ", ".join(map(str, counts))
        return cls(
            f"T.gemm into {op.c.source.name} cannot be split over the threads of the block",
            at=span,
            found=f"{threads} threads; {instruction.label} runs in waves of {instruction.lanes}",
            expected=f"{shown} threads for a tile of {op.m} x {op.n}",
            repair=f"T.Kernel(..., threads={min(counts, key=lambda c: abs(c - threads))})",
        )
