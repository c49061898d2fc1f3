"""What the operators' tests share: the ways to run one, and the proof that our kernel ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from emulator_sweep import Sweep

import tile_ops

#: Target that the emulator plays; "cpu" runs compiled.
WAYS = ["cpu", "cuda -arch=sm_90a", "hip -mcpu=gfx942"]


@pytest.fixture(scope="session")
def schedules() -> Sweep:
    """Three seeds, copies early and late."""
    return Sweep(seeds=(1, 2, 3), of="grid")


@pytest.fixture(autouse=True)
def under_all_schedules(request: pytest.FixtureRequest, schedules: Sweep) -> Iterator[None]:
    """In every test: the first launch of each text on a grid is repeated in the emulator."""
    with schedules.over(request.node.name):
        yield


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """CPU tensors run on the CPU, or in the emulator as on that GPU."""
    if request.param != "cpu":
        monkeypatch.setenv("TILELANG_EXECUTION", "emulate")
        monkeypatch.setenv("TILELANG_DEFAULT_TARGET", request.param)
    return str(request.param)


@pytest.fixture
def ran() -> Callable[..., Any]:
    """`ran(tile_ops.matmul, a, b)` calls the operator, and fails unless every kernel that `explain` named ran."""

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before = tile_ops.explain(function, *args, **kwargs)
        result = function(*args, **kwargs)
        after = tile_ops.explain(function, *args, **kwargs)
        assert after.kernels, "no kernel is named"
        for old, new in zip(before.kernels, after.kernels):
            assert new.launches > old.launches, f"{new.spec} did not run"
        return result

    return call


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest error relative to |expected| plus the root mean square of `expected`; infinity for a lost NaN."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    found, expected = found.double(), expected.double()
    if not expected.numel():
        return 0.0
    typical = expected.square().mean().sqrt().clamp_min(1e-30)
    error = (found - expected).abs() / (expected.abs() + typical)
    return float(error.nan_to_num(nan=float("inf")).max())


@pytest.fixture
def close() -> Callable[[torch.Tensor, torch.Tensor, float], None]:
    """`close(found, expected, tolerance)` fails with the first wrong coordinate."""

    def check(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
        error = relative_error(found, expected)
        if not error <= tolerance:
            typical = expected.double().square().mean().sqrt()
            bad = (found.double() - expected.double()).abs() / (expected.double().abs() + typical)
            where = tuple(int(i) for i in (~(bad <= tolerance)).nonzero()[0])
            raise AssertionError(
                f"error {error:.2e} > {tolerance:.0e}; first at {where}: {found[where]} for {expected[where]}"
            )

    return check
