"""Declared instructions of warpgroups: their text in the header, their fragments, their own checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tile_compiler.instructions import WarpgroupMultiply, runs_on, warpgroup_multiplies
from tile_compiler.targets.cuda.plugin import headers


def label(instruction: WarpgroupMultiply) -> str:
    return instruction.label


@pytest.mark.parametrize("instruction", warpgroup_multiplies(), ids=label)
def test_text_is_in_the_header(instruction: WarpgroupMultiply) -> None:
    text = headers()["tl/wgmma.cuh"]
    (entry,) = (line for line in text.splitlines() if f"({instruction.label}, {instruction.label}_rs," in line)
    assert entry.startswith("TL_WGMMA_16_BIT") == instruction.either_major
    kind = entry.split(",")[2].strip()
    (line,) = (line for line in text.splitlines() if f"KIND({kind}," in line or f"KIND_16({kind}," in line)
    assert instruction.text == f"wgmma.mma_async.sync.aligned.m64nNk{line.split(chr(34))[1]}"


# (instruction, operand, thread, register) -> element, read off the figures of the PTX ISA, 9.7.15.5.1.1
FIGURES = [
    ("wgmma_m64k16_f32_f16", "c", 0, 1, (0, 1)),
    ("wgmma_m64k16_f32_f16", "c", 37, 2, (25, 2)),
    ("wgmma_m64k16_f32_f16", "c", 127, 7, (63, 15)),
    ("wgmma_m64k16_f32_f16", "a", 5, 2, (9, 2)),
    ("wgmma_m64k16_f32_f16", "a", 5, 4, (1, 10)),
    ("wgmma_m64k8_f32_tf32", "a", 34, 1, (24, 2)),
    ("wgmma_m64k8_f32_tf32", "a", 34, 2, (16, 6)),
    ("wgmma_m64k32_s32_s8", "a", 6, 3, (1, 11)),
    ("wgmma_m64k32_s32_s8", "a", 6, 4, (9, 8)),
    ("wgmma_m64k32_f32_e4m3", "a", 96, 8, (48, 16)),
]


@pytest.mark.parametrize(("name", "operand", "thread", "register", "element"), FIGURES)
def test_fragments_are_those_of_the_manual(
    name: str, operand: str, thread: int, register: int, element: tuple[int, int]
) -> None:
    declared = next(d for d in warpgroup_multiplies() if d.label == name)
    fragment = declared.c_fragment(16) if operand == "c" else declared.a_fragment
    assert fragment(*element) == (thread, register)


def test_a_16_bit_result_is_where_the_next_product_wants_its_a() -> None:
    """So the probabilities of attention stay in their registers."""
    declared = warpgroup_multiplies()[0]
    rows, columns = np.indices((64, 16))
    for mine, yours in zip(declared.a_fragment(rows, columns), declared.c_fragment(16)(rows, columns)):
        np.testing.assert_array_equal(mine, yours)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda d: dataclasses.replace(d, k=8), "8 elements of float16 are not 32 bytes"),
        (lambda d: dataclasses.replace(d, widths=(16, 8)), "expected ascending multiples of 8"),
        (lambda d: dataclasses.replace(d, widths=(12,)), "expected ascending multiples of 8"),
        (lambda d: dataclasses.replace(d, architectures=("hopper",)), "'hopper' is no architecture"),
    ],
)
def test_declarations_check_themselves(make: Callable[[Any], WarpgroupMultiply], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        make(warpgroup_multiplies()[0])


def test_what_one_architecture_has_no_other_one_has() -> None:
    assert runs_on(("sm_90a",), "sm_90a")
    assert not runs_on(("sm_90a",), "sm_90")
    assert not runs_on(("sm_90a",), "sm_100a")
    assert runs_on(("sm_90",), "sm_90a")
