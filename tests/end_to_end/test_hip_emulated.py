"""Every example as HIP text for gfx942 and gfx90a, run by the emulator against the same references as on CUDA."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from checking import TOLERANCES

from .test_examples import cases

#: gfx90a has no asynchronous copies: when they complete makes no difference there.
RUNS = [("gfx942", "early", "7"), ("gfx942", "late", "3"), ("gfx90a", "early", "5")]


@pytest.mark.parametrize(("arch", "mode", "seed"), RUNS, ids=[f"{arch}-{mode}" for arch, mode, _ in RUNS])
@pytest.mark.parametrize(("name", "case"), cases())
def test_example_agrees_in_the_emulator(
    name: str, case: dict[str, Any], arch: str, mode: str, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILELANG_EMULATE_MODE", mode)
    monkeypatch.setenv("TILELANG_EMULATE_SEED", seed)
    example, target = importlib.import_module(name), f"hip -mcpu={arch}"
    assert example.check(target, "emulate", **case) <= TOLERANCES[example.DTYPE]
