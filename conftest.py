"""What all tests share: reproducible hypothesis runs, a kernel cache of their own, the documents' folder."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # the emulator's sweeps run on machines without it
    pass
else:
    # One kernel compiles in tens of milliseconds and sometimes a second: hypothesis must not call that an error.
    _LIMITS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "database": None}
    settings.register_profile("fixed", derandomize=True, max_examples=15, **_LIMITS)
    settings.register_profile("explore", max_examples=500, print_blob=True, **_LIMITS)
    settings.load_profile("fixed")

# A test says itself how it runs its kernels.
_FROM_OUTSIDE = ["TILELANG_EXECUTION", "TILELANG_DEFAULT_TARGET", "TILELANG_TARGET_OVERRIDE"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite expected texts; read them before committing")
    parser.addoption(
        "--device", choices=("cuda",), help="the operators' tests on this device (packages/tile-ops/tests)"
    )
    parser.addoption("--full", action="store_true", help="also what only `nox -s full` has the time for")


def pytest_configure(config: pytest.Config) -> None:
    """Give the run an empty kernel cache; the processes of xdist inherit it."""
    config.addinivalue_line("markers", "cpu(why): a test of operators that means the CPU, also with --device")
    config.addinivalue_line("markers", "full: one more point of a grid, left to `nox -s full`")
    config.addinivalue_line("markers", "amd_in_full: an operator's test whose way on AMD is left to `nox -s full`")
    config.addinivalue_line("markers", "gpus_in_full: one whose ways on GPUs are")
    if config.getoption("--device"):  # what ptxas spills is in the summary of warnings
        config.addinivalue_line("filterwarnings", "default::tile_compiler.errors.SlowDeviceCode")
    for name in _FROM_OUTSIDE:
        os.environ.pop(name, None)
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="tilelang-tests-")
        os.environ["TILELANG_CACHE_DIR"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the points of large grids that are marked `full` to `nox -s full`; the summary counts them as deselected."""
    if config.getoption("--full"):
        return
    left = [item for item in items if item.get_closest_marker("full")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_collection_finish() -> None:
    """What is there now stays to the end (TVM, torch, thousands of tests): no garbage collection looks through it again."""
    gc.freeze()


@pytest.fixture(scope="session")
def seeds() -> Path:
    """The folder of the documents whose listings must run. It lies beside the repository, not in it."""
    folder = Path(__file__).resolve().parent.parent / "shared" / "seeds"
    if not folder.is_dir():
        pytest.skip("the documents (../shared/seeds beside the repository) are absent: their listings were NOT run")
    return folder


@pytest.fixture
def amx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The target of CPUs with tile registers. Where this one has none, all of this process takes it for one that has, and
    generated code calls `tile_registers`."""
    import tile_registers

    from tile_compiler.targets.cpu import codegen
    from tile_compiler.targets.cpu.features import V4_AMX, V4_BF16_VNNI, host_features
    from tile_compiler.targets.cpu.library import function_text
    from tile_runtime_cpu import cpuid

    target = "cpu -mcpu=x86-64-v4+bf16+vnni+amx"
    if host_features() == V4_AMX:
        yield target
        return
    if host_features() != V4_BF16_VNNI:
        pytest.skip("machines with tile registers have instructions beside them that this processor lacks")
    there = cpuid.features() | set(V4_AMX.extra)
    monkeypatch.setattr(cpuid, "features", lambda: there)
    monkeypatch.setattr(codegen, "function_text", lambda *given: tile_registers.in_python(function_text(*given)))
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))  # such code is this process's
    tile_registers.refused.clear()
    yield target
    assert tile_registers.refused == []
