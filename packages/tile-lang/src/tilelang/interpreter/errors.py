"""The one exception of the interpreter: what went wrong, where in the user's text, and how to repair it."""

from __future__ import annotations

import linecache
from typing import Any


class InterpreterError(RuntimeError):
    """A kernel did something that its meaning forbids, or the interpreter was called wrongly.

    `file` and `line` are the user's statement (None when unknown); `problem` is the first line of the message.
    """

    def __init__(
        self,
        problem: str,
        *,
        span: Any = None,
        found: str | None = None,
        expected: str | None = None,
        repair: str | None = None,
    ) -> None:
        self.problem, self.found, self.expected, self.repair = problem, found, expected, repair
        self.file: str | None = str(span.source_name.name) if span is not None else None
        self.line: int | None = int(span.line) if span is not None else None
        super().__init__(self._render())

    def _render(self) -> str:
        lines = [self.problem]
        if self.file is not None and self.line is not None:
            text = linecache.getline(self.file, self.line).strip()
            lines.append(f"  --> {self.file}:{self.line}" + (f"   {text}" if text else ""))
        for label, part in (("found:   ", self.found), ("expected:", self.expected), ("try:     ", self.repair)):
            if part:
                lines.append(f"  {label} {part}")
        return "\n".join(lines)
