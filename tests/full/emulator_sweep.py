"""Every launch in the emulator again, for many seeds and with copies that complete early and late.

A correct kernel gives the same bytes under every schedule and no finding. `Sweep` repeats the launches of a test; as a
pytest plugin (`-p emulator_sweep`, see `nox -s full`) it does so for all tests that it is loaded with and writes what
it ran. Launches with findings are left alone: those tests plant a fault.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tile_runtime_cpu import emulator
from tile_runtime_cpu.emulator import Buffer, EmulatedModule, Report

MODES = ("early", "late")


class Sweep:
    """Repeats launches; `ran` has an entry for each different one."""

    def __init__(self, seeds: Iterable[int]) -> None:
        self.seeds = tuple(seeds)
        self.ran: list[dict[str, Any]] = []
        self._seen: set[bytes] = set()

    @contextlib.contextmanager
    def over(self, name: str) -> Iterator[None]:
        """Inside, every launch is repeated. A finding or another result is an AssertionError."""
        original = EmulatedModule.launch

        def launch(
            module: EmulatedModule, symbol: str, grid: Any, block: Any, shared: int, args: Any, **more: Any
        ) -> Any:
            def once(**schedule: Any) -> Report:
                return original(module, symbol, grid, block, shared, args, **{**more, **schedule})

            if more.get("hook") or more.get("at_stop") or not more.get("checks", True):
                return once()
            memory = [(b.address, b.nbytes) for b in _buffers(args, more.get("buffers")) if b.writable]
            before = _read(memory)
            report = once()
            if report.ok and self._new(module.source, symbol, grid, before):
                after = _read(memory)
                self.repeat(f"{name} {symbol}", once, memory, before, after, bool(report.counters["atomics"]))
                _write(memory, after)
            return report

        EmulatedModule.launch = launch  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            EmulatedModule.launch = original  # type: ignore[method-assign]

    def _new(self, source: str, symbol: str, grid: Any, before: list[bytes]) -> bool:
        """Whether this text has not been launched on this memory before."""
        parts = [source.encode(), symbol.encode(), repr(tuple(grid)).encode(), *before]
        key = hashlib.sha256(b"\0".join(hashlib.sha256(p).digest() for p in parts)).digest()
        known = key in self._seen
        self._seen.add(key)
        return not known

    def repeat(
        self,
        name: str,
        once: Any,
        memory: list[tuple[int, int]],
        before: list[bytes],
        after: list[bytes],
        atomics: bool,
    ) -> None:
        """One launch under every schedule. The sums of atomics depend on their order: of those only findings count."""
        start = time.perf_counter()
        for seed in self.seeds:
            for mode in MODES:
                _write(memory, before)
                report = once(seed=seed, mode=mode)
                assert report.ok, f"{name}, seed {seed}, {mode}: a false alarm, or a fault\n{report}"
                if not atomics:
                    assert _read(memory) == after, f"{name}, seed {seed}, {mode}: another result"
        launches = len(self.seeds) * len(MODES)
        self.ran.append({"name": name, "launches": launches, "seconds": time.perf_counter() - start})


def _buffers(args: Any, buffers: Any) -> list[Buffer]:
    if buffers is not None:
        return [Buffer(*b) for b in buffers]
    arrays = [a for a in args if hasattr(a, "ctypes")]
    return [Buffer(a.ctypes.data, a.nbytes, "", a.flags.writeable) for a in arrays]


def _read(memory: list[tuple[int, int]]) -> list[bytes]:
    return [ctypes.string_at(address, size) for address, size in memory]


def _write(memory: list[tuple[int, int]], contents: list[bytes]) -> None:
    for (address, size), content in zip(memory, contents):
        ctypes.memmove(address, content, size)


def summary(ran: list[dict[str, Any]], seeds: int, before: dict[str, Any]) -> dict[str, Any]:
    """The result file: by test, how many kernels were launched how often. `before`: results of tests that did not run now."""
    tests: dict[str, dict[str, Any]] = dict(before)
    for entry in ran:
        test = test_of(entry["name"].partition(" ")[0])
        found = tests.setdefault(test, {"kernels": 0, "launches": 0, "seconds": 0.0})
        found["kernels"] += 1
        found["launches"] += entry["launches"]
        found["seconds"] = round(found["seconds"] + entry["seconds"], 1)
    return {
        "seeds": seeds,
        "modes": list(MODES),
        "host_compiler": emulator.host_compiler().version,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "date": time.strftime("%Y-%m-%d"),
        "seconds": round(sum(t["seconds"] for t in tests.values())),
        "kernels": sum(t["kernels"] for t in tests.values()),
        "launches": sum(t["launches"] for t in tests.values()),
        "false_alarms": 0,  # one fails its test, and then nothing is written
        "tests": dict(sorted(tests.items())),
    }


def test_of(nodeid: str) -> str:
    """test_file.py::test_name of a test's case."""
    return nodeid.partition("[")[0].rpartition("/")[2]


# -- the plugin -------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sweep-seeds", type=int, default=100, help="schedules of each launch, early and late")
    parser.addoption("--sweep-results", type=Path, help="where to write what was run, if no test failed")
    parser.addoption(
        "--sweep-part", default="1/1", help="2/3: of every three tests the second; the results of the others stay"
    )


class _Session:
    """The sweep of this process, or of all where it directs others (pytest-xdist)."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.sweep = Sweep(range(1, config.getoption("--sweep-seeds") + 1))
        self.others: set[str] = set()  # tests of other parts

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        number, parts = map(int, config.getoption("--sweep-part").split("/"))
        names = sorted({test_of(item.nodeid) for item in items})
        self.others = {name for i, name in enumerate(names) if i % parts != number - 1}
        config.hook.pytest_deselected(items=[item for item in items if test_of(item.nodeid) in self.others])
        items[:] = [item for item in items if test_of(item.nodeid) not in self.others]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        self.sweep.ran += getattr(node, "workeroutput", {}).get("sweep", [])

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["sweep"] = self.sweep.ran
            return
        results = self.config.getoption("--sweep-results")
        if results and exitstatus == 0:
            known = json.loads(results.read_text())["tests"] if results.exists() else {}
            before = {name: entry for name, entry in known.items() if name in self.others}
            found = summary(self.sweep.ran, len(self.sweep.seeds), before)
            results.write_text(json.dumps(found, indent=1) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Session(config), "emulator-sweep")


@pytest.fixture(autouse=True)
def swept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every launch of every test is repeated."""
    session = request.config.pluginmanager.get_plugin("emulator-sweep")
    with session.sweep.over(request.node.nodeid.rpartition("/")[2]):
        yield
