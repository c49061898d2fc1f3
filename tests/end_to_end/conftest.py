"""Whole kernels, each in every way to run one that this machine has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# The examples import each other as scripts do; the listings' test imports its corrections.
sys.path[:0] = [str(HERE.parents[1] / "examples"), str(HERE)]


@pytest.fixture(params=["interpret", "cpu"])
def execution(request: pytest.FixtureRequest) -> str:
    """How the CPU target runs: in the interpreter, or compiled."""
    return "interpret" if request.param == "interpret" else "device"
