"""What the compiler raises: classes of the language's catalogue (`tilelang/errors.py`), located by spans of the IR."""

from __future__ import annotations

from typing import Any

from tilelang import errors
from tilelang.location import Location, of_span


def where(span: Any) -> str:
    """`file:line` of a span, or an empty string."""
    location = of_span(span)
    return "" if location is None else str(location)


class CompileError(errors.TileLangError):
    """A kernel that is legal, and that this compiler or target cannot compile as written.

    `at` is a span of the IR.
    """

    code = "TL201"

    def __init__(self, message: str, *, at: Any = None, found: str = "", expected: str = "", repair: str = "") -> None:
        location = of_span(at) or Location("", 0)
        super().__init__(message, found=found or None, expected=expected or None, repair=repair or None, at=location)

    def _render(self) -> str:
        if self.location is not None and not self.location.file:
            self.location = None
        return super()._render()


class ParallelConflict(CompileError, errors.ParallelConflict):
    """Iterations of a `T.Parallel` loop write one place with different values."""

    code = errors.ParallelConflict.code


class DivergentControl(CompileError, errors.BarrierDivergence):
    """Threads disagree on a condition around work that the whole block does together."""

    code = errors.BarrierDivergence.code


class PipelineOrderError(CompileError, errors.PipelineError):
    """`order` or `stage` of a pipelined loop does not fit its body."""

    code = errors.PipelineError.code


class LaneVaryingOperand(CompileError, ValueError):
    """An operand of a tile operator or a parallel loop differs between threads."""

    code = "TL202"


class UnsupportedOnTarget(CompileError, NotImplementedError):
    """The target has no way to do this."""

    code = "TL203"


class SlowDeviceCode(UserWarning):
    """The device compiler made code that is slower than the kernel says: registers spilled to memory, or matrix
    instructions that wait for each other. The kernel is right all the same."""

    code = "TL210"
