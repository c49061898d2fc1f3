"""Conditions of which memory decides a part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx as tir

from tile_compiler.simt.thread_values import ThreadValues, Unknown

STEP, MEMORY, LANE = (tir.Var(name, "int32") for name in ("step", "memory", "lane"))


@pytest.fixture
def values() -> ThreadValues:
    """Of 4 threads in step 1; `memory` is not known."""
    found = ThreadValues(4)
    found.values |= {STEP: np.asarray([1]), MEMORY: Unknown(False), LANE: np.arange(4)}
    return found


@pytest.mark.parametrize("join", [lambda a, b: (a, b), lambda a, b: (b, a)], ids=["left", "right"])
@pytest.mark.parametrize(
    ("connective", "known", "expected"),
    [
        (tir.And, STEP < 1, False),
        (tir.And, STEP < 2, None),
        (tir.And, LANE < 2, None),
        (tir.And, LANE < 0, False),
        (tir.Or, STEP < 2, True),
        (tir.Or, STEP < 1, None),
        (tir.Or, LANE < 2, None),
    ],
)
def test_a_part_that_decides_for_all_threads_does_so(
    values: ThreadValues, connective: Any, known: Any, expected: bool | None, join: Any
) -> None:
    condition = connective(*join(MEMORY < 3, known))
    if expected is None:
        with pytest.raises(Unknown):
            values.value(condition)
    else:
        assert (values.value(condition).astype(bool) == expected).all()
