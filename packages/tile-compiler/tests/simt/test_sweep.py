"""A sample of the mutation sweep; `nox -s full` runs all of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import sweep
from mutants import predicate_mutants
from mutation_kernels import SUBJECTS

import tilelang.language as T

SAMPLE = {
    "product_3_stages": 3,
    "rows_through_registers": 4,
    "product_staged_epilogue_in_order": 4,
    "rolling": 3,
    "tree": 3,
    "product_2_stages_gfx942": 2,
    "reversal_in_turns_gfx942": 4,
    "row_sums_gfx90a": 2,
    "product_3_stages_sm_90a": 5,
    "cluster_sm_90a": 4,
    "weights_sm_90a": 5,
    "bulk_sm_90a": 4,
}
#: Verdicts on mutants that may stay: each of their entries carries its proof.
HARMLESS = {"redundant", "always true", "same function"}


def faults(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    unproved = [e for e in found if e["verdict"] in HARMLESS and not e.get("proof")]
    known = {"reported", "wrong", *HARMLESS}
    return [e for e in found if e["verdict"] not in known or sweep.missed(e)] + unproved


@pytest.mark.parametrize("name", SAMPLE)
def test_mutants_are_found(name: str) -> None:
    subject = next(s for s in SUBJECTS if s.name == name)
    found = sweep.sweep(subject, SAMPLE[name])
    assert Counter(e["verdict"] for e in found)["reported"] >= 1
    assert not faults(found)


def test_there_are_enough_kernels_of_both_vendors() -> None:
    names = [s.name for s in SUBJECTS]
    assert len(set(names)) == len(names)
    assert (
        len([n for n in names if "gfx" in n]) >= 30 <= len([n for n in names if "gfx" not in n and "sm_90a" not in n])
    )
    assert len([n for n in names if "sm_90a" in n]) >= 15


def test_recorded_sweep_has_every_kernel_and_no_gap() -> None:
    found = json.loads(sweep.RESULT.read_text())
    assert {e["kernel"] for e in found} == {s.name for s in SUBJECTS}
    assert not faults(found)


@T.prim_func
def guarded(A: T.Tensor((40,), "float32"), B: T.Tensor((40,), "float32")):
    with T.Kernel(1, threads=64) as bx:
        tx = T.get_thread_binding()
        if tx < 40 and tx != 3:
            B[tx] = T.if_then_else(tx > 7, A[tx], T.float32(0))


def test_each_predicate_and_each_part_of_one_is_left_out() -> None:
    final = sweep.lowered(guarded)[0].steps[-1].after
    assert sorted(str(p) for _, p in predicate_mutants(final)) == [
        "predicate 0: without tx > 7",
        "predicate 1: without tx != 3",
        "predicate 1: without tx < 40",
        "predicate 1: without tx < 40 and tx != 3",
    ]
