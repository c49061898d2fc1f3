"""How a device's results are compared with the emulator's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """benchmarks/device.py, which is in no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import device

    yield device
    sys.modules.pop("device", None)


def test_bits_and_numbers_are_the_same_numbers(device: Any) -> None:
    x = torch.tensor([1.5, -0.0, 3e38]).bfloat16()
    for found in (x, x.view(torch.int16), x.view(torch.uint16)):
        assert device.numbers(found, torch.bfloat16).tolist() == x.double().tolist()


@pytest.mark.parametrize(
    ("have", "want", "difference"),
    [
        ([4.0, 1.0], [4.0, 2.0], 0.25),
        ([np.nan, np.inf, 2.0], [np.nan, np.inf, 2.0], 0.0),
        ([np.nan, 2.0], [1.0, 2.0], np.inf),
        ([1.0, 2.0], [np.nan, 2.0], np.inf),
        ([np.inf, 2.0], [-np.inf, 2.0], np.inf),
        ([-0.0], [0.0], 0.0),
    ],
)
def test_a_number_of_one_side_alone_is_wrong(
    device: Any, have: list[float], want: list[float], difference: float
) -> None:
    assert device.difference(np.array(have), np.array(want)) == difference
