"""Watching a compilation: the IR after every pass, what changed, how long it took."""

from __future__ import annotations

import difflib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.stage_borders import check_border


@dataclass(frozen=True)
class Step:
    """One pass that ran: the function before and after it, and seconds."""

    name: str
    before: tir.PrimFunc
    after: tir.PrimFunc
    seconds: float

    @property
    def changed(self) -> bool:
        return not tvm_ffi.structural_equal(self.before, self.after, True)

    def text(self) -> str:
        """The IR after the pass, or `(unchanged)`."""
        return readable(self.after) if self.changed else "(unchanged)"

    def diff(self) -> str:
        """A unified diff of the IR text."""
        a, b = readable(self.before).splitlines(), readable(self.after).splitlines()
        return "\n".join(difflib.unified_diff(a, b, f"before {self.name}", f"after {self.name}", lineterm="", n=3))


@dataclass
class Trace:
    """The passes of one compilation in order."""

    steps: list[Step] = field(default_factory=list)

    def after(self, name: str) -> tir.PrimFunc:
        """The function after a pass; KeyError for a pass that did not run."""
        for step in self.steps:
            if step.name == name:
                return step.after
        raise KeyError(name)

    def timings(self) -> dict[str, float]:
        return {step.name: step.seconds for step in self.steps}

    def text(self, diffs: bool = False) -> str:
        """Everything, for reading."""
        parts = [f"# traced\n{readable(self.steps[0].before)}"] if self.steps else []
        for step in self.steps:
            shown = step.diff() if diffs and step.changed else step.text()
            parts.append(f"# {step.name}  ({1000 * step.seconds:.1f} ms)\n{shown}")
        return "\n\n".join(parts)


def run_passes(
    func: tir.PrimFunc, passes: Sequence[tuple[str, Any]], ctx: CompileContext
) -> tuple[tir.PrimFunc, Trace]:
    """Apply `passes` in order; the trace holds each step. What a pass promises to remove is checked after it."""
    trace = Trace()
    gone: list[Any] = []
    for name, apply in passes:
        start = time.perf_counter()
        new = apply(func, ctx)
        trace.steps.append(Step(name, func, new, time.perf_counter() - start))
        check_border(name, func, new, gone)
        func = new
    return func, trace


def readable(func: tir.PrimFunc) -> str:
    """The text of a function without the printer's header and without attributes about the user's file."""
    for name in ("tl.source", "tl.params"):
        if func.attrs is not None and name in func.attrs:
            func = func.without_attr(name)
    lines = [line for line in func.script().splitlines() if not line.startswith("# from tvm")]
    return "\n".join(lines).strip()
