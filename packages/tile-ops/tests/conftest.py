"""What the operators' tests share: the ways to run one, and the proof that our kernel ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from emulator_sweep import Sweep

import tile_ops
from tile_ops.again import Again
from tile_ops.kernel import target as targets
from tile_ops.kernel import target_of
from tile_ops.kernel.resolve import _loaded
from tile_ops.operator import Operator
from tile_ops.registration import Operation

from .moved import move_operators

#: Target that the emulator plays; "cpu" runs compiled.
WAYS = ["cpu", "cuda -arch=sm_90a", "hip -mcpu=gfx942"]
FAMILIES = {family.name for family in tile_ops.families()}
LARGE = "past_2_31"  # tensors of many GB


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--device`, the families and what is large: the rest asks nothing of a device, or needs more than torch."""
    if collection_path.parent != Path(__file__).parent:
        return None
    if config.getoption("--device"):
        return collection_path.name not in FAMILIES | {LARGE}
    return True if collection_path.name == LARGE else None


@pytest.hookimpl(tryfirst=True)  # before those that are marked `full` are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the AMD way of tests that are `amd_in_full`, and both GPUs' of those that are `gpus_in_full`."""
    kinds = {"amd_in_full": ("hip",), "gpus_in_full": ("cuda", "hip")}
    for item in items:
        way = str(item.callspec.params.get("way", "")) if hasattr(item, "callspec") else ""
        if any(item.get_closest_marker(marker) and way.startswith(kind) for marker, kind in kinds.items()):
            item.add_marker("full")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """The kind of the device that operators run on: "cpu", or the one of `--device`."""
    chosen = request.config.getoption("--device") or "cpu"
    if chosen == "cuda" and not torch.cuda.is_available():
        pytest.exit("--device cuda: torch sees no GPU here", returncode=pytest.ExitCode.USAGE_ERROR)
    return str(chosen)


@pytest.fixture(autouse=True)
def on_the_device(request: pytest.FixtureRequest, device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With `--device`: operators run there. A test that ran a kernel on the CPU did not test it, and fails."""
    if device == "cpu":
        yield
        return
    only = request.node.get_closest_marker("cpu")
    if only is not None:
        pytest.skip(f"for the CPU alone: {only.args[0]}")
    move_operators(monkeypatch, device)
    before = on_cpu()
    yield
    assert on_cpu() == before, "a kernel ran on the CPU: pass its tensors through an operator, or mark the test `cpu`"


def on_cpu() -> int:
    """How many launches on the CPU this process has seen."""
    return sum(kernel.launches for (_, target), kernel in _loaded.items() if target.kind == "cpu")


@pytest.fixture(scope="session")
def schedules() -> Sweep:
    """Three seeds, copies early and late."""
    return Sweep(seeds=(1, 2, 3), of="grid")


@pytest.fixture(autouse=True)
def under_all_schedules(request: pytest.FixtureRequest, schedules: Sweep) -> Iterator[None]:
    """In every test: the first launch of each text on a grid is repeated in the emulator."""
    with schedules.over(request.node.name):
        yield


@pytest.fixture
def run_as(monkeypatch: pytest.MonkeyPatch, device: str) -> Callable[..., None]:
    """`run_as("cuda -arch=sm_90a")`: operators run as on that GPU, in the emulator. With `--device` the device itself runs
    what is its own, with `any_gpu` also what any GPU of its vendor can, and the rest is skipped."""

    def choose(target: str, any_gpu: bool = False) -> None:
        if device != "cpu":
            there = target_of(torch.empty(0, device=device)).text()
            if target != there and not (any_gpu and target.split()[0] == there.split()[0]):
                pytest.skip(f"as on {target}; the device is {there}")
        elif target != "cpu":
            monkeypatch.setenv("TILELANG_EXECUTION", "emulate")
            monkeypatch.setenv("TILELANG_DEFAULT_TARGET", target)

    return choose


@pytest.fixture
def in_registers(amx: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Operator[Any], Operation], None]:
    """`in_registers(OPERATOR, operation)`: its calls are those of a CPU with tile registers, and are kept apart."""
    monkeypatch.setattr(targets, "_target", targets._target.__wrapped__)

    def choose(operator: Operator[Any], operation: Operation) -> None:
        monkeypatch.setattr(operator, "_calls", {})
        operation.again.forget()
        monkeypatch.setattr(operation, "again", Again())

    return choose


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, run_as: Callable[..., None], device: str) -> str:
    """Operators run on the CPU, in the emulator as on that GPU, or on the device of `--device`: the way's name."""
    run_as(request.param)
    return str(request.param if device == "cpu" else device)


@pytest.fixture(params=WAYS[:2])
def cpu_or_hopper(request: pytest.FixtureRequest, run_as: Callable[..., None]) -> None:
    """Two ways."""
    run_as(request.param)


@pytest.fixture
def hopper(run_as: Callable[..., None]) -> None:
    """One way."""
    run_as(WAYS[1])


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
