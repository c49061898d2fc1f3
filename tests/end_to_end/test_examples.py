"""Every example agrees with its reference, for each of its shapes, and says so as a program."""

from __future__ import annotations

import contextlib
import importlib
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checking import TOLERANCES, main, relative_error
from emulator_sweep import Sweep

from tilelang.errors import TargetUnavailable

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in ("checking", "models", "quickstart"))


def cases() -> list[Any]:
    """Example and shape, for each shape of each example."""
    found = []
    for name in NAMES:
        for number, case in enumerate(importlib.import_module(name).CASES):
            found.append(pytest.param(name, case, id=f"{name}-{number}"))
    return found


@pytest.mark.parametrize(("name", "case"), cases())
def test_example_agrees_with_its_reference(name: str, case: dict[str, Any], execution: str) -> None:
    example = importlib.import_module(name)
    assert example.check("cpu", execution, **case) <= TOLERANCES[example.DTYPE]


def test_quickstart_succeeds(
    execution: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILELANG_EXECUTION", execution)
    runpy.run_path(str(EXAMPLES / "quickstart.py"), run_name="__main__")
    assert capsys.readouterr().out.endswith("ok\n")


@pytest.mark.parametrize("name", ["models", "quickstart", *NAMES])
def test_readme_describes_the_example(name: str) -> None:
    assert f"[{name}.py]({name}.py)" in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize(("error", "status"), [(1e-3, 0), (1e-1, 1), (np.inf, 1), (np.nan, 1)])
def test_exit_status_tells_disagreement(error: float, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["example"])
    assert main(lambda target, execution, **case: error, [{"M": 1}, {"M": 2}], "float16") == status


@pytest.mark.parametrize(
    ("actual", "expected", "error"),
    [([1, 2], [1, 2], 0), ([2, 2], [1, 1], 0.5), ([np.nan, 1], [1, 1], np.inf), ([np.inf, 1], [1, 1], np.inf)],
)
def test_relative_error(actual: list[float], expected: list[float], error: float) -> None:
    assert relative_error(np.array(actual), np.array(expected)) == error


@pytest.mark.parametrize(("name", "case"), cases())
def test_example_agrees_in_the_emulator(name: str, case: dict[str, Any]) -> None:
    """The generated CUDA text, run thread by thread with races, bounds and unwritten reads checked: three schedules,
    each with copies that complete early and late. `nox -s full` runs a hundred."""
    example = importlib.import_module(name)
    with Sweep(seeds=(1, 2, 3)).over(name):
        assert example.check("cuda -arch=sm_80", "emulate", **case) <= TOLERANCES[example.DTYPE]


def device_cases() -> list[Any]:
    """Example, shape and architecture; all but the first shape, on Hopper, are left to `nox -s full`."""
    return [
        pytest.param(name, case, arch, id=f"{arch}-{name}-{number}", marks=pytest.mark.full if left else ())
        for name in NAMES
        for number, case in enumerate(importlib.import_module(name).CASES)
        for arch in ("sm_90a", "sm_80")
        for left in (number > 0 or arch == "sm_80",)
    ]


@pytest.mark.parametrize(("name", "case", "arch"), device_cases())
def test_example_neither_spills_nor_is_serialized(name: str, case: dict[str, Any], arch: str) -> None:
    """Compiled as for a card; what the device compiler makes slow is a warning (SlowDeviceCode), and so an error here. On a card
    results agree with the reference."""
    example = importlib.import_module(name)
    with contextlib.suppress(TargetUnavailable):  # the call, where there is no such card
        assert example.check(f"cuda -arch={arch}", "device", **case) <= TOLERANCES[example.DTYPE]
