"""Launches are timed without a GPU; the loop that times the driver's launch calls what it is given as often as it is told."""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tile_runtime.artifact import Artifact

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """benchmarks/launch.py, which is in no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import launch

    yield launch
    for name in ("launch", "paired"):
        sys.modules.pop(name, None)


def test_the_launcher_alone_is_timed_without_a_gpu(
    launch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(launch, "COUNTS", (4,))
    launch.pack(tmp_path, "sm_90")
    calls = launch.contenders(Artifact.load(tmp_path / "4.tile"), 4)
    assert list(calls) == ["plain", "prepared"]
    for call in calls.values():
        call()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86-64")
def test_the_loop_launches_as_often_as_it_is_told(launch: Any) -> None:
    seen = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
    function = kind(lambda *given: seen.append(given) or 0)
    address = ctypes.cast(function, ctypes.c_void_p).value
    for n in (1, 3):
        launch.looped(n, address, 5, 6, 1 << 40)
    assert seen == [(5, 6, 1 << 40, None)] * 4


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86-64")
def test_the_driver_gets_what_the_launcher_filled_in(launch: Any) -> None:
    seen = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
    slot = type("Slot", (), {"config": 16, "params": 32})()
    free: list[Any] = []
    driver = kind(lambda *given: seen.append(given) or 0)
    namespace = {"launch": lambda *tensors: free.append(slot), "free0": free, "fn0": 24, "cu_launch": driver}
    launch.driver_alone(namespace, [])()
    assert seen == [(16, 24, 32, None)] * launch.BATCH
