"""A pytest plugin: every launch of every test again under many schedules, and a file that says what ran.

`-p sweep_plugin`, see `nox -s full`. The file has an entry for each test that launched something or failed, written as the
test ends: a run that is cut short keeps what it has shown, and another run adds to it. A test that fails is recorded as
failed until it passes.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulator_sweep import MODES, Sweep

from tile_runtime_cpu import emulator

_SWEPT = "launches repeated"  # a property of a test's report, which xdist's processes send to the first one


class Results:
    """The file: by test, how many kernels were launched how often under the schedules."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tests: dict[str, dict[str, Any]] = json.loads(path.read_text())["tests"] if path.exists() else {}

    def record(self, test: str, seeds: int, ran: list[dict[str, Any]], passed: bool) -> None:
        """The end of a test. One that passed and launched nothing that had not been repeated before is left out."""
        if passed and not ran:
            if not self.tests.get(test, {"passed": True})["passed"]:
                del self.tests[test]
                self.write()
            return
        self.tests[test] = {
            "passed": passed,
            "seeds": seeds,
            "kernels": len(ran),
            "launches": sum(entry["launches"] for entry in ran),
            "seconds": round(sum(entry["seconds"] for entry in ran), 1),
            "date": time.strftime("%Y-%m-%d"),
        }
        self.write()

    def keep(self, collected: set[str]) -> None:
        """Forget tests that do not exist any more, of the files that were collected."""
        files = {test.partition("::")[0] for test in collected}
        self.tests = {t: e for t, e in self.tests.items() if t in collected or t.partition("::")[0] not in files}
        self.write()

    def write(self) -> None:
        found = list(self.tests.values())
        summary = {
            "modes": list(MODES),
            "host_compiler": emulator.host_compiler().version,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "seeds": min((entry["seeds"] for entry in found), default=0),
            "tests_passed": sum(entry["passed"] for entry in found),
            "tests_failed": sum(not entry["passed"] for entry in found),
            **{key: round(sum(entry[key] for entry in found)) for key in ("kernels", "launches", "seconds")},
        }
        lines = [f"  {json.dumps(test)}: {json.dumps(entry)}" for test, entry in sorted(self.tests.items())]
        head = json.dumps(summary, indent=1).removesuffix("\n}")
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(head + ',\n "tests": {\n' + ",\n".join(lines) + "\n }\n}\n")
        new.replace(self.path)  # at once: who ends the run finds the whole file


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sweep-seeds", type=int, default=100, help="schedules of each launch, early and late")
    parser.addoption("--sweep-results", type=Path, help="the file that says what was run")
    parser.addoption("--sweep-part", default="1/1", help="2/3: of every three tests the second")
    parser.addoption("--sweep-of", default="launch", help="what is repeated once: a launch, a grid, a text")
    parser.addoption("--sweep-most-blocks", type=int, default=math.inf, help="leave larger launches alone")


class _Session:
    """The sweep of this process; where it directs others (pytest-xdist), their reports."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.getoption
        self.config = config
        self.sweep = Sweep(range(1, option("--sweep-seeds") + 1), option("--sweep-of"), option("--sweep-most-blocks"))
        path = None if hasattr(config, "workerinput") else option("--sweep-results")
        self.results = Results(path) if path else None
        self.collected: set[str] = set()
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
        self.collected = {item.nodeid for item in items}
        yield
        number, parts = map(int, config.getoption("--sweep-part").split("/"))
        config.hook.pytest_deselected(items=[item for n, item in enumerate(items) if n % parts != number - 1])
        items[:] = items[number - 1 :: parts]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        if self.results and (report.when == "teardown" or report.failed):
            ran = [entry for name, entry in report.user_properties if name == _SWEPT]
            self.results.record(report.nodeid, len(self.sweep.seeds), ran, report.nodeid not in self.failed)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        self.collected |= set(getattr(node, "workeroutput", {}).get("collected", ()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["collected"] = sorted(self.collected)
        elif self.results and not self.config.option.collectonly:
            self.results.keep(self.collected)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Session(config), "sweep-session")


@pytest.fixture(autouse=True)
def swept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every launch of every test is repeated."""
    sweep = request.config.pluginmanager.get_plugin("sweep-session").sweep
    before = len(sweep.ran)
    with sweep.over(request.node.nodeid.rpartition("/")[2]):
        yield
    request.node.user_properties += [(_SWEPT, entry) for entry in sweep.ran[before:]]
