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

    runtime.use_device(device)
    return ProfileHooks(synchronize=runtime.synchronize, time=time_calls, cache_bytes=runtime.l2_bytes(device))
