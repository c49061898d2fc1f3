"""mbarriers of a running block: arrivals that are awaited, bytes that are under way, phases that have ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Barrier:
    """One barrier whose phases end after `count` arrivals; `ended` phases are over."""

    count: int
    arrived: int = 0
    bytes: int = 0  # announced and not yet copied; less than 0 if copied before they were announced
    ended: int = 0

    def arrive(self, times: int) -> bool:
        """Whether so many arrivals belong to this phase."""
        self.arrived += times
        if self.arrived > self.count:
            return False
        self._end()
        return True

    def copied(self, size: int) -> None:
        """`size` bytes have landed; less than 0: they are announced."""
        self.bytes -= size
        self._end()

    def _end(self) -> None:
        if self.arrived == self.count and self.bytes == 0:
            self.arrived = 0
            self.ended += 1

    def passed(self, parity: int) -> bool:
        """Whether a wait for the phase of this parity returns."""
        return self.ended % 2 != parity % 2

    def describe(self) -> str:
        return f"{self.arrived} of {self.count} arrivals, {self.bytes} bytes outstanding, {self.ended} phases over"
