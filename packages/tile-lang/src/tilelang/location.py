"""Where in the user's text something stands: file, line, and the line's words."""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """A line of the user's source; `line` counts from 1, 0 when unknown."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """The line itself, stripped; empty when the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def of_span(span: object) -> Location | None:
    """The location that an IR node's span records, or None."""
    name = getattr(getattr(span, "source_name", None), "name", None)
    return None if name is None else Location(str(name), int(span.line))  # type: ignore[attr-defined]
