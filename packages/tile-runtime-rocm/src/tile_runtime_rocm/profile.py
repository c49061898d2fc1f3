"""Timing on AMD GPUs: events on the current stream, around each call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from tile_runtime.device import ProfileHooks

from .launch import late_device, late_stream
from .runtime import Runtime


def hooks(runtime: Runtime) -> ProfileHooks:
    """What tile_runtime.profiler needs, of the current device."""
    device = late_device()

    def time_calls(call: Callable[[], object], repeats: int) -> list[float]:
        """Seconds between the events around each of `repeats` calls."""
        events = runtime.events(repeats + 1)
        try:
            stream = late_stream(device)
            runtime.record(events[0], stream)
            for event in events[1:]:
                call()
                runtime.record(event, stream)
            return [runtime.seconds(a, b) for a, b in pairwise(events)]
        finally:
            runtime.destroy(events)

    def time_cold_calls(call: Callable[[], object], repeats: int) -> list[float]:
        """Seconds between the events around each call, in front of which twice the L2 cache is overwritten.

        The host issues the call while the device overwrites, so its own time is not in the figure.
        """
        size = 2 * runtime.l2_bytes(device)
        memory, events = runtime.allocate(size), runtime.events(2 * repeats)
        try:
            stream = late_stream(device)
            for turn in range(repeats):
                runtime.fill(memory, turn & 0xFF, size, stream)
                runtime.record(events[2 * turn], stream)
                call()
                runtime.record(events[2 * turn + 1], stream)
            return [runtime.seconds(events[i], events[i + 1]) for i in range(0, 2 * repeats, 2)]
        finally:
            runtime.destroy(events)
            runtime.free(memory)

    runtime.use_device(device)
    return ProfileHooks(runtime.synchronize, time_calls, runtime.l2_bytes(device), time_cold_calls)
