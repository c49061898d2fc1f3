"""What a user sees while a sweep runs: one line that is rewritten on a terminal, one line per stage elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

WIDTH = 24


class Progress:
    """`with Progress("compiling", 12) as bar: bar.step("block_M=128")`. Silent with `shown=False`."""

    def __init__(self, what: str, total: int, shown: bool = True, stream: TextIO | None = None) -> None:
        self.what, self.total, self.shown = what, total, shown and total > 0
        self.stream = sys.stderr if stream is None else stream
        self.done = 0
        self.note = ""
        self.since = time.monotonic()

    def __enter__(self) -> Progress:
        self._draw("")
        return self

    def step(self, text: str, note: str = "") -> None:
        """One more is done; `note` stays until the next one, as the best so far does."""
        self.done += 1
        self.note = note or self.note
        self._draw(text)

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Leave the line as it stands."""
        if self.shown:
            self.stream.write(("\r" if self._terminal() else "") + self.line("").ljust(100).rstrip() + "\n")
            self.stream.flush()

    def line(self, text: str) -> str:
        """compiling  [########................]  4/12  3.1 s  best 0.120 ms  block_M=128, block_N=64"""
        full = WIDTH * self.done // max(1, self.total)
        parts = [
            f"{self.what:10} [{'#' * full}{'.' * (WIDTH - full)}] {self.done:3}/{self.total}",
            f"{time.monotonic() - self.since:.1f} s",
            self.note,
            text,
        ]
        return "  ".join(p for p in parts if p)

    def _draw(self, text: str) -> None:
        if self.shown and self._terminal():
            self.stream.write("\r" + self.line(text)[:118].ljust(118))
            self.stream.flush()

    def _terminal(self) -> bool:
        return bool(getattr(self.stream, "isatty", lambda: False)())
