"""A sample of the mutation sweep; `nox -s full` runs all of it."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import sweep
from mutation_kernels import SUBJECTS

SAMPLE = {
    "product_3_stages": 6,
    "rows_through_registers": 4,
    "product_staged_epilogue_in_order": 4,
    "rolling": 3,
    "tree": 3,
}


@pytest.mark.parametrize("name", SAMPLE)
def test_mutants_are_found(name: str) -> None:
    subject = next(s for s in SUBJECTS if s.name == name)
    found = sweep.sweep(subject, SAMPLE[name])
    assert Counter(e["verdict"] for e in found)["reported"] >= 1
    assert not [e for e in found if e["verdict"] == "gap" or sweep.missed(e)]


def test_there_are_enough_kernels() -> None:
    assert len({s.name for s in SUBJECTS}) == len(SUBJECTS) >= 30


def test_recorded_sweep_has_no_gap() -> None:
    found = json.loads(sweep.RESULT.read_text())
    assert {e["kernel"] for e in found} <= {s.name for s in SUBJECTS}
    assert not [e for e in found if e["verdict"] == "gap" or sweep.missed(e)]


def test_parts_of_predicates() -> None:
    text = "  if (a < b && (c && d)) {\n    x = y < z ? 1 : 0;\n"
    changes = [words for _, _, words in sweep.predicates(text)]
    assert changes == [
        "line 1: without a < b && (c && d)",
        "line 1: without a < b",
        "line 1: without (c && d)",
        "line 2: without y < z",
    ]
