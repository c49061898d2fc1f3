"""The statement builder: what a kernel under trace has emitted so far, and where in the user's text it stands."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilelang.location import Location


@dataclass
class LoopFrame:
    """The loop that a `break` would leave: `kind` is static (unrolled by Python), serial or parallel."""

    kind: str
    branch_depth: int = 0


@dataclass
class Builder:
    """Collects tirx statements for one function.

    `bodies` is a stack of open statement lists; `loops` the stack of open loops; `names` are targets of the
    assignment being executed, which the next allocations take their names from.
    """

    file: str
    line: int = 0
    bodies: list[list[Any]] = field(default_factory=lambda: [[]])
    loops: list[LoopFrame] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    branch_depth: int = 0
    kernel: Any = None
    kernel_count: int = 0
    taken: dict[str, int] = field(default_factory=dict)
    parameters: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    eager: Any = None
    last_loop_static: bool = True
    macro_frames: list[tuple[int, int]] = field(default_factory=list)
    callers: list[Location] = field(default_factory=list)  # where the macros being traced were called
    _analyzer: Any = None

    # -- where we are ------------------------------------------------------------------------------------
    @property
    def location(self) -> Location:
        return Location(self.file, self.line)

    def span(self) -> Any:
        from tvm import ir

        return ir.Span(ir.SourceName(self.file), self.line, self.line, 0, 0)

    @property
    def in_parallel(self) -> bool:
        return any(frame.kind == "parallel" for frame in self.loops)

    # -- statements --------------------------------------------------------------------------------------
    def emit(self, stmt: Any) -> None:
        self.bodies[-1].append(stmt)

    def open(self) -> None:
        self.bodies.append([])

    def close(self) -> list[Any]:
        return self.bodies.pop()

    @contextlib.contextmanager
    def body(self) -> Iterator[list[Any]]:
        """A nested statement list; on a failure it is dropped."""
        self.open()
        statements = self.bodies[-1]
        try:
            yield statements
        finally:
            self.bodies.pop()

    # -- names -------------------------------------------------------------------------------------------
    def name(self, default: str) -> str:
        """A name for the next buffer or variable: the assignment's target if there is one, made unique."""
        wanted = self.names.pop(0) if self.names else default
        return self.unique(wanted)

    def unique(self, wanted: str) -> str:
        count = self.taken.get(wanted, 0)
        self.taken[wanted] = count + 1
        return wanted if count == 0 else f"{wanted}_{count}"

    # -- facts about variables ---------------------------------------------------------------------------
    @property
    def analyzer(self) -> Any:
        """What is known of loop variables so far (ranges); used to simplify extents and to prove signs."""
        if self._analyzer is None:
            from tvm import sym

            self._analyzer = sym.Analyzer()
        return self._analyzer

    def bind_range(self, var: Any, minimum: Any, extent: Any) -> None:
        from tvm import ir

        self.analyzer.bind(var, ir.Range.from_min_extent(minimum, extent))


class _Active(threading.local):
    builder: Builder | None = None


_active = _Active()


def active() -> Builder | None:
    """The builder of the function being traced in this thread, or None."""
    return _active.builder


@contextlib.contextmanager
def tracing(builder: Builder) -> Iterator[Builder]:
    previous, _active.builder = _active.builder, builder
    try:
        yield builder
    finally:
        _active.builder = previous


def require(what: str) -> Builder:
    """The active builder; OutsideKernel if nothing is being traced."""
    builder = _active.builder
    if builder is None:
        from tilelang.errors import OutsideKernel

        raise OutsideKernel(
            f"{what} is used outside of a kernel",
            expected="a call inside a function under @T.prim_func, @tilelang.jit or @T.macro",
            repair="move it into the kernel, or use numpy or torch for work on the host",
        )
    return builder


def require_kernel(what: str) -> Builder:
    """The active builder, inside `with T.Kernel`; OutsideKernel otherwise."""
    builder = require(what)
    if builder.kernel is None:
        from tilelang.errors import OutsideKernel

        raise OutsideKernel(
            f"{what} stands outside of `with T.Kernel(...)`",
            expected="kernel work inside the body of `with T.Kernel`",
            repair="open `with T.Kernel(grid, threads=...) as ...:` around it",
        )
    return builder


def tile_operator(what: str) -> Builder:
    """The active builder, at a place where a tile operator may stand."""
    builder = require_kernel(what)
    if builder.in_parallel:
        from tilelang.errors import TileOperatorInParallel

        raise TileOperatorInParallel(
            f"{what} stands inside T.Parallel",
            found="an operator of the whole block inside a loop whose iterations are spread over its threads",
            expected="elementwise statements only",
            repair=f"move {what} before or after the T.Parallel loop, or use T.serial for the loop",
        )
    return builder
