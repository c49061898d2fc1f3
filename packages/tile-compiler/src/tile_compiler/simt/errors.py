"""What lowering for GPUs raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tile_compiler.errors import CompileError, where
from tile_compiler.simt.distribution import Distribution

if TYPE_CHECKING:
    from tile_compiler.simt.layout.equations import Rule, Solution, Unknown


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
