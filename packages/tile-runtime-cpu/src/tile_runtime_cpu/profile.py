"""Timing on the CPU: the wall clock around each call; launches are synchronous."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tile_runtime.device import ProfileHooks

_DEFAULT_CACHE_BYTES = 32 << 20
_UNITS = {"K": 1 << 10, "M": 1 << 20}


def last_level_cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Size of the largest cache that CPU 0 sees; 32 MiB where the system does not say."""
    sizes = []
    for file in sorted(folder.glob("index*/size")):
        text = file.read_text().strip()
        if text[:-1].isdigit() and text[-1] in _UNITS:
            sizes.append(int(text[:-1]) * _UNITS[text[-1]])
    return max(sizes, default=_DEFAULT_CACHE_BYTES)


def time_calls(call: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls."""
    clock, seconds = time.perf_counter_ns, []
    for _ in range(repeats):
        start = clock()
        call()
        seconds.append((clock() - start) * 1e-9)
    return seconds


def hooks() -> ProfileHooks:
    """What tile_runtime.profiler needs."""
    return ProfileHooks(synchronize=lambda: None, time=time_calls, cache_bytes=last_level_cache_bytes())
