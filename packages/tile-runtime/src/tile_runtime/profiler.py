"""Times a call, with whatever clock the vendor offers: `do_bench(call, device.profile_hooks())`.

A kernel that is called again on the same small inputs finds them in the cache. `rotating` makes as many copies of the
inputs as fill the last-level cache twice over; `do_bench` walks through them. With `cold` it overwrites the cache instead.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from .device import ProfileHooks
from .tensor import Unreadable, read

_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
    "min": min,
    "max": max,
}
_MAX_SETS = 64
_MAX_REPEATS = 100_000
_MAX_COLD = 2_000  # each also overwrites a cache: 40 us on an H200


def do_bench(
    call: Callable[..., object],
    hooks: ProfileHooks,
    warmup: float = 25.0,
    rep: float = 100.0,
    inputs: Sequence[tuple[Any, ...]] = ((),),
    statistic: str = "median",
    cold: bool = False,
) -> float:
    """Milliseconds of one call: the median (mean, min, max) over about `rep` ms, after about `warmup` ms.

    `inputs` are tuples of arguments, used in turn. `cold`: before each call the last-level cache is overwritten, where
    the device can. At least 5 calls are measured. Raises KeyError for an unknown statistic and whatever the call raises.
    """
    summarise = _STATISTICS[statistic]
    time = hooks.time_cold if cold and hooks.time_cold is not None else hooks.time
    turn = _turns(call, inputs)
    turn()  # compiles, loads, allocates: not measured
    hooks.synchronize()
    once = max(1e-9, statistics.median(time(turn, 3)))
    for _ in range(math.ceil(warmup / 1000 / once) if warmup > 0 else 0):
        turn()
    hooks.synchronize()
    repeats = min(_MAX_COLD if time is not hooks.time else _MAX_REPEATS, max(5, math.ceil(rep / 1000 / once)))
    return summarise(time(turn, repeats)) * 1000


def rotating(args: Sequence[Any], cache_bytes: int) -> list[tuple[Any, ...]]:
    """`args` and copies of them, enough to fill twice `cache_bytes` (64 sets at most). Numbers stay as they are."""
    size = sum(_bytes(a) for a in args)
    sets = min(_MAX_SETS, max(1, -(-2 * cache_bytes // size))) if size else 1
    return [tuple(args), *(tuple(_copy(a) for a in args) for _ in range(sets - 1))]


def _turns(call: Callable[..., object], inputs: Sequence[tuple[Any, ...]]) -> Callable[[], object]:
    if len(inputs) == 1:
        only = inputs[0]
        return lambda: call(*only)
    position = 0

    def turn() -> object:
        nonlocal position
        position = (position + 1) % len(inputs)
        return call(*inputs[position])

    return turn


def _bytes(value: Any) -> int:
    try:
        view = read(value)
    except Unreadable:
        return 0
    return 0 if view is None else math.prod(view.shape) * view.itemsize


def _copy(value: Any) -> Any:
    for name in ("clone", "copy"):  # torch, numpy
        if hasattr(value, name) and _bytes(value):
            return getattr(value, name)()
    return value
