"""Every error that tracing, compiling and configuring a kernel can raise: one class each, with a stable code.

A message says what was found, what was expected and one way to repair it, and shows the user's line. Each class
also derives from the builtin exception that a Python user would expect there, so `except ValueError` works.
The errors of calling a kernel (wrong arguments) are in `tile_runtime/errors.py`. `docs/errors.md` is generated
from the docstrings here.
"""

from __future__ import annotations

import sys

from tilelang.location import Location


class TileLangError(Exception):
    """Base class of all errors of the language."""

    code = "TL000"

    def __init__(
        self,
        message: str,
        *,
        found: str | None = None,
        expected: str | None = None,
        repair: str | None = None,
        at: Location | None = None,
    ) -> None:
        self.message, self.found, self.expected, self.repair = message, found, expected, repair
        here = places() if at is None else [at]
        self.location, self.callers = (here[0] if here else None), here[1:]
        super().__init__(self._render())

    def suggest(self, repair: str) -> None:
        """Another repair, for an error that is on its way through somebody who knows one."""
        self.repair = repair
        self.args = (self._render(),)

    def _render(self) -> str:
        lines = [f"[{self.code}] {self.message}"]
        if self.location is not None:
            text = self.location.text
            lines.append(f"  --> {self.location}" + (f"   {text}" if text else ""))
        for caller in self.callers:
            lines.append(f"  called from {caller}" + (f"   {caller.text}" if caller.text else ""))
        for label, part in (("found:   ", self.found), ("expected:", self.expected), ("try:     ", self.repair)):
            if part:
                lines.append(f"  {label} {part}")
        return "\n".join(lines)


_OURS = {"tilelang", "tile_compiler", "tile_runtime", "tile_runtime_cpu", "contextlib", "functools", "inspect"}
_TRACERS = {"trace", "trace_eager", "_attempt", "run"}


def places() -> list[Location]:
    """Where the user's program stands now: the innermost line first, then the lines of the kernel that led there."""
    from tilelang.frontend.builder import active

    builder = active()
    traced = [] if builder is None or not builder.line else [builder.location, *reversed(builder.callers)]
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if traced and code.co_name in _TRACERS and frame.f_globals.get("__name__", "").startswith("tilelang.frontend"):
            return traced  # no text of the user's is running: the builder knows where the trace stands
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _OURS and not code.co_name.startswith(
            "<lambda"
        ):
            if traced and ("__tl" in code.co_freevars or "__tl" in code.co_varnames):
                return traced  # the kernel's own text: the builder knows the statement
            inner = Location(code.co_filename, frame.f_lineno)
            return [inner, *(place for place in traced if place != inner)]
        frame = frame.f_back  # type: ignore[assignment]
    return traced


class SourceUnavailable(TileLangError, OSError):
    """The source text of a kernel cannot be read (typed at a prompt, or made by `exec`)."""

    code = "TL101"


class UnsupportedConstruct(TileLangError, NotImplementedError):
    """A Python construct stands in a kernel that has no meaning there."""

    code = "TL102"


class StaticValueNeeded(TileLangError, TypeError):
    """A run-time value stands where Python needs one at compile time (a plain `if` in a helper, `range`, `int()`)."""

    code = "TL103"


class RuntimeValueNeeded(TileLangError, TypeError):
    """A compile-time value or another object stands where a run-time value, buffer or region is needed."""

    code = "TL104"


class UndefinedName(TileLangError, NameError):
    """A name is used before anything was assigned to it."""

    code = "TL105"


class LoopCarriedValue(TileLangError, TypeError):
    """A plain Python name is changed in a run-time loop or branch and used afterwards: it needs `T.alloc_var`."""

    code = "TL106"


class AssignToParameter(TileLangError, TypeError):
    """A tensor parameter (or a buffer) is assigned to as a whole."""

    code = "TL107"


class NoKernel(TileLangError, ValueError):
    """A function has no `with T.Kernel(...)`, so there is nothing to launch."""

    code = "TL108"


class OutsideKernel(TileLangError, RuntimeError):
    """A kernel operation is used outside of a kernel."""

    code = "TL109"


class IndexOutOfRange(TileLangError, IndexError):
    """A constant index lies outside its dimension, or there are too many indices."""

    code = "TL110"


class TileOperatorInParallel(TileLangError, ValueError):
    """A tile operator or a nested `T.Parallel` stands inside `T.Parallel`."""

    code = "TL111"


class ParallelConflict(TileLangError, ValueError):
    """Several iterations of `T.Parallel` certainly write one place."""

    code = "TL112"


class GemmShapeMismatch(TileLangError, AssertionError, ValueError):
    """The operands of `T.gemm` do not fit together."""

    code = "TL113"


class CopyShapeMismatch(TileLangError, ValueError):
    """The two sides of `T.copy` cannot match."""

    code = "TL114"


class ReduceShapeMismatch(TileLangError, ValueError):
    """The result of a reduction or scan has the wrong shape."""

    code = "TL115"


class MissingDtype(TileLangError, TypeError):
    """An allocation names no element type."""

    code = "TL116"


class InvalidArgument(TileLangError, ValueError):
    """An argument of a language function has a value that makes no sense there."""

    code = "TL117"


class DtypeError(TileLangError, TypeError, ValueError):
    """An unknown element type, or an operation that its operands' types do not have."""

    code = "TL118"


class BadAnnotation(TileLangError, TypeError):
    """A parameter has no annotation that says what it is."""

    code = "TL119"


class OutputError(TileLangError, ValueError):
    """`out_idx` or the returned outputs contradict the function."""

    code = "TL120"


class InvalidThreads(TileLangError, ValueError):
    """The grid or the threads of `T.Kernel` are impossible."""

    code = "TL121"


class PrivateWriteInParallel(TileLangError, ValueError):
    """A thread's own buffer from outside is written inside `T.Parallel`."""

    code = "TL122"


class ViewMismatch(TileLangError, ValueError):
    """`T.reshape` or `T.view` asks for another number of bytes."""

    code = "TL123"


class UnknownTarget(TileLangError, ValueError):
    """A target that nobody provides, or text that is no target."""

    code = "TL124"


class UnknownOption(TileLangError, ValueError):
    """A compile option with an unknown name or an impossible value."""

    code = "TL125"


class TargetUnavailable(TileLangError, RuntimeError):
    """The target is known, but this installation cannot compile for it or run it."""

    code = "TL126"


class UnboundDimension(TileLangError, ValueError):
    """A `T.const` size or a dynamic dimension gets its value from nowhere."""

    code = "TL127"


class DistributionClash(ImportError):
    """Another distribution's `tilelang` package shadows this one."""

    code = "TL128"


class PipelineError(TileLangError, ValueError):
    """`order`, `stage` or `num_stages` of `T.Pipelined` contradict each other or the loop."""

    code = "TL129"


class NotInThisRelease(TileLangError, AttributeError):
    """A name that the language does not have here: a later release will, or something else does its work."""

    code = "TL131"


class BarrierDivergence(TileLangError, ValueError):
    """Work of the whole block stands under a condition that differs between its threads."""

    code = "TL130"


class BadConfigurations(TileLangError, ValueError):
    """What `tilelang.autotune` is to choose from is empty, or does not fit the function's parameters."""

    code = "TL132"


class TuningFailed(TileLangError, RuntimeError):
    """No configuration could be measured: all were pruned, failed, or the moment is wrong for measuring."""

    code = "TL133"


class BadTuningFile(TileLangError, ValueError):
    """A file of tuning results or a plan cannot be read, or says something impossible."""

    code = "TL134"


def catalogue() -> list[type[Exception]]:
    """Every error class, in the order of the codes."""
    found = [c for c in globals().values() if isinstance(c, type) and issubclass(c, Exception) and hasattr(c, "code")]
    return sorted(found, key=lambda c: c.code)
