"""Timing on CUDA: events on the current stream, around each call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from tile_runtime.device import ProfileHooks

from .driver import Driver
from .launch import late_device, late_stream


def hooks(driver: Driver) -> ProfileHooks:
    """What tile_runtime.profiler needs, of the current device."""
    device = late_device()

    def time_calls(call: Callable[[], object], repeats: int) -> list[float]:
        """Seconds between the events around each of `repeats` calls."""
        events = driver.events(repeats + 1)
        try:
            stream = late_stream(device)
            driver.record(events[0], stream)
            for event in events[1:]:
                call()
                driver.record(event, stream)
            return [driver.seconds(a, b) for a, b in pairwise(events)]
        finally:
            driver.destroy(events)

    driver.use_device(device)
    return ProfileHooks(synchronize=driver.synchronize, time=time_calls, cache_bytes=driver.l2_bytes(device))
