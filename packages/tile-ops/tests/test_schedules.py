"""Launches in the emulator are repeated in every test of the operators."""

from __future__ import annotations

import pytest
import torch

import tile_ops


@pytest.mark.parametrize("way", ["hip -mcpu=gfx942"], indirect=True)
def test_the_first_launch_of_each_grid_runs_under_three_seeds_early_and_late(way, schedules, monkeypatch):
    monkeypatch.setattr(schedules, "_seen", set())  # of other tests
    weight = torch.ones(8)
    found = []
    for rows in (2, 2, 3000):
        before = len(schedules.ran)
        tile_ops.rms_norm(torch.randn(rows, 8), weight)
        found.append([entry["launches"] for entry in schedules.ran[before:]])
    assert found == [[6], [], [6]]
