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

    def time_cold_calls(call: Callable[[], object], repeats: int) -> list[float]:
        """Seconds between the events around each call, in front of which twice the L2 cache is overwritten.

        The host issues the call while the device overwrites, so its own time is not in the figure.
        """
        size = 2 * driver.l2_bytes(device)
        memory, events = driver.allocate(size), driver.events(2 * repeats)
        try:
            stream = late_stream(device)
            for turn in range(repeats):
                driver.fill(memory, turn & 0xFF, size, stream)
                driver.record(events[2 * turn], stream)
                call()
                driver.record(events[2 * turn + 1], stream)
            return [driver.seconds(events[i], events[i + 1]) for i in range(0, 2 * repeats, 2)]
        finally:
            driver.destroy(events)
            driver.free(memory)

    driver.use_device(device)
    return ProfileHooks(driver.synchronize, time_calls, driver.l2_bytes(device), time_cold_calls)
