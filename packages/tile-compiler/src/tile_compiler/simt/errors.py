"""What lowering for GPUs raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tile_compiler.errors import CompileError, where
from tile_compiler.simt.distribution import Distribution

if TYPE_CHECKING:
    from tile_compiler.instructions import MatrixMultiply
    from tile_compiler.simt.layout.equations import Rule, Solution, Unknown
    from tilelang.ops import Gemm


class LayoutConflict(CompileError, ValueError):
    """Two operators demand different distributions of one tile over the threads."""

    code = "TL204"
    unknown: Unknown | None = None

    @classmethod
    def between(cls, rule: Rule, unknown: Unknown, solution: Solution, why: str) -> LayoutConflict:
        """`rule` cannot live with the value that another rule gave to `unknown`."""
        other = solution.origin.get(unknown)
        value = solution.values.get(unknown)
        shown = value.describe() if isinstance(value, Distribution) else str(value)
        by = f"{other.text} at {where(other.span)}" if other is not None else "an annotation"
        lines = [f"{by} distributes {unknown.name} as {shown}"]
        for mine in rule.unknowns():
            demand = solution.values.get(mine)
            if mine is not unknown and isinstance(demand, Distribution):
                giver = solution.origin.get(mine)
                source = f" ({giver.text} at {where(giver.span)})" if giver is not None and giver is not rule else ""
                lines.append(f"{mine.name} as {demand.describe()}{source}")
        error = cls(
            f"{rule.text} and {by} need different layouts of {unknown.name}",
            at=rule.span,
            found="; ".join(lines),
            expected=why,
            repair=f"copy {unknown.name} to a shared buffer and from there to a fragment of its own",
        )
        error.unknown = unknown
        return error


class SharedMemoryRace(CompileError, ValueError):
    """Two threads meet at one place of shared memory with no barrier between them."""

    code = "TL205"


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
