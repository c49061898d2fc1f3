"""Every example as HIP text for gfx942 and gfx90a, run by the emulator against the same references as on CUDA."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from checking import TOLERANCES
from emulator_sweep import Sweep

from .test_examples import cases


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a"])
@pytest.mark.parametrize(("name", "case"), cases())
def test_example_agrees_in_the_emulator(name: str, case: dict[str, Any], arch: str) -> None:
    """Three schedules (gfx90a: one), each with copies that complete early and late. `nox -s full` runs a hundred."""
    example = importlib.import_module(name)
    with Sweep(seeds=(1, 2, 3) if arch == "gfx942" else (1,)).over(f"{name}[{arch}]"):
        assert example.check(f"hip -mcpu={arch}", "emulate", **case) <= TOLERANCES[example.DTYPE]
