"""Cases of benchmarks/operators.py that only a GPU is measured by, at small shapes on the CPU: they compare, and make a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """benchmarks/operators.py, which is in no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import operators

    yield operators
    sys.modules.pop("operators")


@pytest.mark.parametrize("family", ["chunk_scan", "chunk_state"])
def test_cases_beside_recorded_peers(operators: ModuleType, monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    monkeypatch.setattr(operators, family.upper(), {(1, 512): 1.0})
    found = list(getattr(operators, family)("cpu"))
    assert found
    for case in found:
        operators.agree(case)
        assert list(case.recorded.values()) == [1e-3]
        said = operators.line(case, {"ours": 1e-3, "torch": 2e-3}, 1e12, 1e14)
        assert said["ratio"] == 2.0
        assert said["bound by"] == "memory"
