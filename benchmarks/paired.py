"""Paired timing: every contender once per round, in one process, so that a slow moment of the machine meets them all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

PAUSE = 0.05  # seconds


def paired(
    contenders: dict[str, Callable[[], object]], seconds: float = 2.0, rounds: int = 5, turn: float = 1e-3
) -> dict[str, float]:
    """Median seconds of one call of each contender; at least `rounds` rounds, more until `seconds` have passed.

    A call shorter than `turn` seconds is repeated within its turn, and the turn divided by the count. A turn begins with a
    pause, in which the threads of the one before stop spinning (OpenBLAS's do so for some 25 ms, on the other cores), and
    with a call that is not timed and wakes this one's own threads.
    """
    counts = {}
    for name, call in contenders.items():
        call()
        begin = time.perf_counter()
        call()
        counts[name] = max(1, int(turn / max(time.perf_counter() - begin, 1e-9)))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    begin = time.perf_counter()
    while len(next(iter(times.values()))) < rounds or time.perf_counter() - begin < seconds:
        for name, call in contenders.items():
            time.sleep(PAUSE)
            call()
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            times[name].append((time.perf_counter() - start) / counts[name])
    return {name: statistics.median(values) for name, values in times.items()}
