"""The sweep repeats launches, sees what is wrong with them, and its file says what ran."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulator_sweep import Sweep
from sweep_plugin import Results

from tile_runtime_cpu.emulator import EmulatedModule


class Launches:
    """Stands for the emulator: writes `wrong` for one schedule, finds a fault under another."""

    def __init__(self) -> None:
        self.schedules: list[tuple[int, str]] = []
        self.wrong: tuple[int, str] | None = None
        self.faulty: tuple[int, str] | None = None
        self.atomics = 0

    def __call__(
        self, module: Any, symbol: str, grid: Any, block: Any, shared: int, args: Any, **more: Any
    ) -> SimpleNamespace:
        schedule = (more.get("seed", 0), more.get("mode", "early"))
        self.schedules.append(schedule)
        args[0][:] = args[0] * 2 + (schedule == self.wrong)
        return SimpleNamespace(ok=schedule != self.faulty, counters={"atomics": self.atomics})


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    found = Launches()
    monkeypatch.setattr(EmulatedModule, "launch", lambda *args, **more: found(*args, **more))
    return found


def launch(value: int = 3, text: str = "text", grid: tuple[int, ...] = (2,), **more: Any) -> int:
    memory = np.full(4, value)
    EmulatedModule.launch(SimpleNamespace(source=text), "kernel", grid, (32,), 0, [memory], **more)
    return int(memory[0])


EVERY = [(seed, mode) for seed in (1, 2, 3) for mode in ("early", "late")]


def test_a_launch_is_repeated_for_every_seed_early_and_late(launches: Launches) -> None:
    sweep = Sweep(seeds=(1, 2, 3))
    with sweep.over("test"):
        assert launch() == 6, "each repetition begins with the memory of the first, which keeps its result"
    assert launches.schedules == [(0, "early"), *EVERY]
    assert [(e["name"], e["launches"]) for e in sweep.ran] == [("test kernel", 6)]
    launch()
    assert len(launches.schedules) == 8, "once outside"


@pytest.mark.parametrize(
    ("of", "repeated"), [("launch", [1, 0, 1, 1, 1]), ("grid", [1, 0, 0, 1, 1]), ("text", [1, 0, 0, 0, 1])]
)
def test_what_is_the_same_is_repeated_once(launches: Launches, of: str, repeated: list[int]) -> None:
    sweep, found = Sweep(seeds=(1,), of=of), []
    different: list[dict[str, Any]] = [{}, {}, {"value": 4}, {"grid": (3,)}, {"text": "other"}]
    with sweep.over("test"):
        for call in different:
            before = len(sweep.ran)
            launch(**call)
            found.append(len(sweep.ran) - before)
    assert found == repeated


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match='"launch", "grid" or "text"'):
        Sweep(seeds=(1,), of="kernel")


@pytest.mark.parametrize("more", [{"grid": (3, 2)}, {"hook": print}, {"checks": False}])
def test_these_run_once(launches: Launches, more: dict[str, Any]) -> None:
    with Sweep(seeds=(1,), most_blocks=5).over("test"):
        launch(**more)
    assert launches.schedules == [(0, "early")]


def test_another_result_is_an_error(launches: Launches) -> None:
    launches.wrong = (2, "late")
    with pytest.raises(AssertionError, match="test kernel, seed 2, late: another result"), Sweep((1, 2)).over("test"):
        launch()
    launches.atomics = 1  # whose order may change sums
    with Sweep((1, 2)).over("test"):
        launch()


def test_a_finding_is_an_error(launches: Launches) -> None:
    launches.faulty = (1, "late")
    with (
        pytest.raises(AssertionError, match="test kernel, seed 1, late: a false alarm, or a fault"),
        Sweep((1,)).over("test"),
    ):
        launch()
    launches.faulty = (0, "early")  # a planted fault: the test itself looks at it
    with Sweep((1,)).over("test"):
        launch()
    assert launches.schedules[-1] == (0, "early")


RAN = [{"name": "t k", "launches": 6, "seconds": 0.26}, {"name": "t l", "launches": 6, "seconds": 1.0}]


def test_results_are_added_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    Results(path).record("a.py::one", 3, RAN, passed=True)
    later = Results(path)
    later.record("a.py::two", 2, [], passed=False)
    later.record("b.py::launches_nothing", 2, [], passed=True)
    found = json.loads(path.read_text())
    assert list(found["tests"]) == ["a.py::one", "a.py::two"]
    assert found["tests"]["a.py::one"].items() >= {"passed": True, "kernels": 2, "launches": 12, "seconds": 1.3}.items()
    assert found.items() >= {"seeds": 2, "tests_passed": 1, "tests_failed": 1, "kernels": 2, "launches": 12}.items()


def test_a_failure_stays_until_the_test_passes(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.json")
    results.record("a.py::one", 3, RAN, passed=False)
    results.record("a.py::two", 3, RAN, passed=False)
    results.record("a.py::one", 3, RAN, passed=True)
    assert [e["passed"] for e in results.tests.values()] == [True, False]


def test_tests_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.json")
    for test in ("a.py::one", "a.py::gone", "b.py::not_collected_now"):
        results.record(test, 3, RAN, passed=True)
    results.keep({"a.py::one"})
    assert list(json.loads(results.path.read_text())["tests"]) == ["a.py::one", "b.py::not_collected_now"]


TESTS = """
import os
from types import SimpleNamespace
import numpy as np
import pytest
from tile_runtime_cpu.emulator import EmulatedModule
EmulatedModule.launch = lambda *args, **more: SimpleNamespace(ok=True, counters={"atomics": 0})

@pytest.fixture
def broken():
    yield
    raise RuntimeError("at the end")

def launch():
    EmulatedModule.launch(SimpleNamespace(source="text"), "kernel", (1,), (32,), 0, [np.random.rand(4)])

def test_passes(): launch()
def test_of_another_part(): launch()
def test_fails(): launch(); raise AssertionError
def test_of_another_part_too(): launch()
def test_fails_at_its_end(broken): launch()
def test_of_another_part_again(): launch()
def test_ends_the_run(): os._exit(3)
"""


def test_a_run_that_is_cut_short_has_recorded_what_ran(tmp_path: Path) -> None:
    """The file is written as tests end. Of two parts of the tests this is the first."""
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    results = tmp_path / "results.json"
    options = ["-p", "sweep_plugin", "--sweep-seeds=2", "--sweep-part=1/2", f"--sweep-results={results}"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_some.py"]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 3, done.stdout + done.stderr
    found = json.loads(results.read_text())["tests"]
    passed = {name.partition("::")[2]: (entry["passed"], entry["launches"]) for name, entry in found.items()}
    assert passed == {"test_passes": (True, 4), "test_fails": (False, 4), "test_fails_at_its_end": (False, 4)}
