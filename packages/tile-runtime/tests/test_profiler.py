from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from tile_runtime.device import ProfileHooks
from tile_runtime.profiler import do_bench, rotating


def hooks(seconds: list[float]) -> ProfileHooks:
    def timer(call: object, repeats: int) -> list[float]:
        for _ in range(repeats):
            call()  # type: ignore[operator]
        return [seconds[i % len(seconds)] for i in range(repeats)]

    return ProfileHooks(lambda: None, timer, 1 << 20)


def test_statistics_are_in_milliseconds() -> None:
    fake = hooks([0.001, 0.002, 0.006])
    assert do_bench(lambda: None, fake, warmup=0, rep=5.9) == pytest.approx(2.0, abs=1e-6)
    assert do_bench(lambda: None, fake, warmup=0, rep=5.9, statistic="max") == pytest.approx(6.0)
    assert do_bench(lambda: None, fake, warmup=0, rep=0, statistic="min") == pytest.approx(1.0)
    with pytest.raises(KeyError):
        do_bench(lambda: None, fake, statistic="mode")


def test_the_wall_clock_is_met() -> None:
    found: list[float] = []

    def timer(call: object, repeats: int) -> list[float]:
        found.clear()
        for _ in range(repeats):
            start = time.perf_counter()
            call()  # type: ignore[operator]
            found.append(time.perf_counter() - start)
        return found

    ms = do_bench(lambda: time.sleep(0.002), ProfileHooks(lambda: None, timer, 0), warmup=1, rep=10)
    assert 2.0 <= 1e3 * min(found) <= ms <= 1e3 * max(found)


def test_cold_measurements_are_taken_where_the_device_has_them() -> None:
    fake = hooks([0.001])
    assert do_bench(lambda: None, fake, cold=True) == pytest.approx(1.0)
    cold = fake._replace(time_cold=lambda call, repeats: [0.005] * repeats)
    assert do_bench(lambda: None, cold, cold=True) == pytest.approx(5.0)
    assert do_bench(lambda: None, cold) == pytest.approx(1.0)


def test_inputs_are_walked_through() -> None:
    seen: list[int] = []
    do_bench(seen.append, hooks([0.01]), warmup=0, rep=50, inputs=[(0,), (1,), (2,)])
    assert set(seen) == {0, 1, 2}


def test_rotating_copies_fill_the_cache_twice() -> None:
    a, b = np.ones((1 << 18,), np.uint8), torch.ones(1 << 18, dtype=torch.uint8)
    sets = rotating((a, 3, b), 1 << 20)
    assert len(sets) == 4
    assert sets[0][0] is a
    assert all(s[1] == 3 for s in sets)
    assert len({s[0].ctypes.data for s in sets} | {s[2].data_ptr() for s in sets}) == 8
    assert rotating((3,), 1 << 20) == [(3,)]
    assert len(rotating((np.zeros(1),), 1 << 30)) == 64
