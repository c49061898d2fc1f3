"""Every launch in the emulator again, for many seeds and with copies that complete early and late.

A correct kernel gives the same bytes under every schedule and no finding. `Sweep` repeats the launches of a test, for a
few seeds in CI; sweep_plugin.py does so for all tests of a run, for many. Launches with findings are left alone: those
tests plant a fault.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tile_runtime_cpu.emulator import Buffer, EmulatedModule, Report

MODES = ("early", "late")


class Sweep:
    """Repeats launches; `ran` has an entry for each different one.

    A launch is another one where its text, its grid or the contents of its memory are others (`of="launch"`), its text or
    its grid (`of="grid"`), or its text (`of="text"`). Launches of more than `most_blocks` are not repeated.
    """

    def __init__(self, seeds: Iterable[int], of: str = "launch", most_blocks: float = math.inf) -> None:
        if of not in ("launch", "grid", "text"):
            raise ValueError(f'of is {of!r}; it must be "launch", "grid" or "text"')
        self.seeds = tuple(seeds)
        self.of = of
        self.most_blocks = most_blocks
        self.ran: list[dict[str, Any]] = []
        self._seen: set[bytes] = set()

    @contextlib.contextmanager
    def over(self, name: str) -> Iterator[None]:
        """Inside, every launch is repeated. A finding or another result is an AssertionError."""
        original = EmulatedModule.launch

        def launch(
            module: EmulatedModule, symbol: str, grid: Any, block: Any, shared: int, args: Any, **more: Any
        ) -> Any:
            def once(**schedule: Any) -> Report:
                return original(module, symbol, grid, block, shared, args, **{**more, **schedule})

            if more.get("hook") or more.get("at_stop") or not more.get("checks", True):
                return once()
            memory = [(b.address, b.nbytes) for b in _buffers(args, more.get("buffers")) if b.writable]
            before = _read(memory)
            report = once()
            few = math.prod(grid) <= self.most_blocks
            if report.ok and few and self._new(module.source, symbol, grid, before):
                after = _read(memory)
                self.repeat(f"{name} {symbol}", once, memory, before, after, bool(report.counters["atomics"]))
                _write(memory, after)
            return report

        EmulatedModule.launch = launch  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            EmulatedModule.launch = original  # type: ignore[method-assign]

    def _new(self, source: str, symbol: str, grid: Any, before: list[bytes]) -> bool:
        """Whether this is the first launch of its kind."""
        parts = [source.encode(), symbol.encode()]
        if self.of != "text":
            parts.append(repr(tuple(grid)).encode())
        if self.of == "launch":
            parts += before
        key = hashlib.sha256(b"\0".join(hashlib.sha256(p).digest() for p in parts)).digest()
        known = key in self._seen
        self._seen.add(key)
        return not known

    def repeat(
        self,
        name: str,
        once: Any,
        memory: list[tuple[int, int]],
        before: list[bytes],
        after: list[bytes],
        atomics: bool,
    ) -> None:
        """One launch under every schedule. The sums of atomics depend on their order: of those only findings count."""
        start = time.perf_counter()
        for seed in self.seeds:
            for mode in MODES:
                _write(memory, before)
                report = once(seed=seed, mode=mode)
                assert report.ok, f"{name}, seed {seed}, {mode}: a false alarm, or a fault\n{report}"
                if not atomics:
                    assert _read(memory) == after, f"{name}, seed {seed}, {mode}: another result"
        launches = len(self.seeds) * len(MODES)
        self.ran.append({"name": name, "launches": launches, "seconds": time.perf_counter() - start})


def _buffers(args: Any, buffers: Any) -> list[Buffer]:
    if buffers is not None:
        return [Buffer(*b) for b in buffers]
    arrays = [a for a in args if hasattr(a, "ctypes")]
    return [Buffer(a.ctypes.data, a.nbytes, "", a.flags.writeable) for a in arrays]


def _read(memory: list[tuple[int, int]]) -> list[bytes]:
    return [ctypes.string_at(address, size) for address, size in memory]


def _write(memory: list[tuple[int, int]], contents: list[bytes]) -> None:
    for (address, size), content in zip(memory, contents):
        ctypes.memmove(address, content, size)
