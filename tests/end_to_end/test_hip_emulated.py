"""Every example as HIP text for gfx942 and gfx90a, run by the emulator against the same references as on CUDA."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from checking import TOLERANCES
from emulator_sweep import Sweep

from .test_examples import NAMES


def cases() -> list[Any]:
    """Two shapes of each example on gfx942 and the first on gfx90a; all in `nox -s full`."""
    return [
        pytest.param(arch, name, case, id=f"{name}-{number}-{arch}", marks=pytest.mark.full if number >= here else ())
        for name in NAMES
        for number, case in enumerate(importlib.import_module(name).CASES)
        for arch, here in (("gfx942", 2), ("gfx90a", 1))
    ]


@pytest.mark.parametrize(("arch", "name", "case"), cases())
def test_example_agrees_in_the_emulator(name: str, case: dict[str, Any], arch: str) -> None:
    """Three schedules (gfx90a: one), each with copies that complete early and late. `nox -s full` runs a hundred."""
    example = importlib.import_module(name)
    with Sweep(seeds=(1, 2, 3) if arch == "gfx942" else (1,)).over(f"{name}[{arch}]"):
        assert example.check(f"hip -mcpu={arch}", "emulate", **case) <= TOLERANCES[example.DTYPE]
