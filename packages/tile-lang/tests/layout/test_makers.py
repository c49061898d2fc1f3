"""Ready-made layouts: one-to-one for any extents, conflict-free, and equal to the hardware's address patterns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilelang.layout import (
    SWIZZLE_MODES,
    Layout,
    make_full_bank_swizzled_layout,
    make_half_bank_swizzled_layout,
    make_linear_layout,
    make_padded_layout,
    make_quarter_bank_swizzled_layout,
    make_swizzled_layout,
    make_volta_swizzled_layout,
    make_wgmma_swizzled_layout,
    swizzle_by_name,
)

BITS = {"float64": 64, "float32": 32, "float16": 16, "int8": 8, "int4": 4}
MAKERS = [
    (make_full_bank_swizzled_layout, "swizzle_128b", 128),
    (make_half_bank_swizzled_layout, "swizzle_64b", 64),
    (make_quarter_bank_swizzled_layout, "swizzle_32b", 32),
]


def column_reads(layout: Layout, bits: int) -> int:
    """Worst conflict of eight lanes that read 16 bytes each from eight consecutive rows, over all such reads."""
    rows, columns = layout.shape[-2:]
    chunk = 128 // bits
    return max(
        layout.bank_conflicts([(row + n, column) for n in range(8)], bits, vector=chunk)
        for row in range(0, rows - 7, 8)
        for column in range(0, columns - chunk + 1, chunk)
    )


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize(("make", "name", "width"), MAKERS)
def test_swizzle_modes_follow_the_byte_address(make: Any, name: str, width: int, dtype: str) -> None:
    """Oracle: TMA XORs bits 4.. of the byte address with bits 7.. (PTX ISA, "Tensor swizzling modes")."""
    bits = BITS[dtype]
    per_row = width * 8 // bits
    layout = make((16, 2 * per_row), dtype=dtype)
    mask = {128: 7, 64: 3, 32: 1}[width]
    for row, column in [(0, 0), (3, 5), (7, per_row - 1), (9, per_row), (15, 2 * per_row - 1)]:
        address = ((column // per_row * 16 + row) * per_row + column % per_row) * bits // 8
        assert layout(row, column)[0] * bits // 8 == address ^ ((address >> 7 & mask) << 4)
    assert layout.is_bijective()
    assert layout.vector_width() == 128 // bits
    assert layout == swizzle_by_name(name, (16, 2 * per_row), dtype) == make(16, 2 * per_row, bits)
    assert column_reads(layout, bits) == 1


@given(st.sampled_from(MAKERS), st.integers(1, 21), st.integers(1, 3), st.lists(st.integers(1, 3), max_size=1))
@settings(max_examples=30)
def test_swizzles_are_bijections_for_any_number_of_rows(maker: Any, rows: int, panels: int, lead: list[int]) -> None:
    make, _, width = maker
    layout = make((*lead, rows, panels * width // 2), dtype="float16")
    assert layout.is_bijective()
    assert layout.inverse().compose(layout) == Layout(layout.shape, lambda *indices: indices)


@given(st.integers(1, 40), st.integers(1, 90), st.sampled_from(list(BITS)), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_default_choice_is_one_to_one_for_any_extents(
    rows: int, columns: int, dtype: str, k_major: bool, allow_pad: bool
) -> None:
    layout = make_swizzled_layout((rows, columns), dtype, k_major=k_major, allow_pad=allow_pad)
    assert layout.is_injective()
    assert allow_pad or layout.is_bijective()


@pytest.mark.parametrize("columns", [16, 24, 32, 40, 64, 72, 128])
def test_default_choice_is_free_of_conflicts(columns: int) -> None:
    assert column_reads(make_swizzled_layout((16, columns), "float16"), 16) == 1


def test_linear_rows_of_128_bytes_conflict_eightfold() -> None:
    assert column_reads(make_linear_layout((16, 64)), 16) == 8


def test_default_choice_takes_the_widest_mode_that_fits() -> None:
    for columns, width in ((64, 3), (96, 2), (48, 1)):
        swizzle = make_swizzled_layout((8, columns), "float16").swizzle
        assert swizzle is not None
        assert swizzle.bits == width
    padded = make_swizzled_layout((8, 40), "float16")
    assert padded.swizzle is None
    assert padded.affine == ((40, 1), 0)
    assert make_swizzled_layout((8, 24 + 8 * 8), "float16", allow_pad=False).is_bijective()
    assert make_swizzled_layout((64, 64), "int8", k_major=False).affine == ((80, 1), 0)
    assert make_swizzled_layout((7,), "float16") == make_linear_layout((7,))


def test_buffers_regions_and_shapes_are_accepted() -> None:
    buffer = SimpleNamespace(shape=[16, 64], dtype="float16")
    region = SimpleNamespace(buffer=buffer)
    assert make_swizzled_layout(buffer) == make_swizzled_layout(region) == make_swizzled_layout((16, 64), "float16")
    assert make_full_bank_swizzled_layout(buffer) == make_swizzled_layout(buffer)
    assert make_linear_layout(buffer) == make_linear_layout(16, 64) == make_linear_layout((16, 64))


def test_padding_in_elements_or_chosen() -> None:
    assert make_padded_layout((4, 64), "float16").affine == ((72, 1), 0)
    assert make_padded_layout((4, 60), "float16").affine == ((72, 1), 0)
    assert make_padded_layout((4, 60), pad=3).affine == ((63, 1), 0)
    assert make_padded_layout((2, 4, 60), pad=4).affine == ((256, 64, 1), 0)


@pytest.mark.parametrize(("is_a", "k_inner"), [(True, True), (True, False), (False, False)])
def test_volta_layouts_are_bijections(is_a: bool, k_inner: bool) -> None:
    for shape in ((32, 64), (64, 128), (2, 32, 64)):
        layout = make_volta_swizzled_layout(shape, is_a=is_a, k_inner=k_inner)
        assert layout.is_bijective()
        assert layout.vector_width(limit=8) == (4 if k_inner else 8)


def test_wgmma_layouts() -> None:
    assert make_wgmma_swizzled_layout((64, 64), "float16") == make_full_bank_swizzled_layout((64, 64), dtype="float16")
    by_32 = make_wgmma_swizzled_layout((64, 64), "float16", continuity=32)
    assert by_32 == make_half_bank_swizzled_layout((64, 64), dtype="float16")
    core = make_wgmma_swizzled_layout((16, 8), "float16")
    assert core.swizzle is None
    assert [core(row, 0)[0] for row in (0, 1, 8)] == [0, 8, 64]
    assert make_wgmma_swizzled_layout((16, 24), "float16")(0, 8) == (128,)


def test_modes_are_listed_widest_first() -> None:
    widths = [mode.row_elements(8) for mode in SWIZZLE_MODES.values()]
    assert widths == [128, 64, 32] == sorted(widths, reverse=True)
    assert np.all(np.diff([mode.bits for mode in SWIZZLE_MODES.values()]) < 0)


def test_errors_name_the_fault_and_a_repair() -> None:
    with pytest.raises(ValueError, match=r"rows in multiples of 64 elements \(128 bytes\).*rows of 40 elements of 16"):
        make_full_bank_swizzled_layout((8, 40), dtype="float16")
    with pytest.raises(ValueError, match=r"no shared-memory layout named 'swizzle_256b'\. Use one of swizzle_128b"):
        swizzle_by_name("swizzle_256b", (8, 64), "float16")
    with pytest.raises(TypeError, match="no dtype was given"):
        make_swizzled_layout((8, 64))
    with pytest.raises(TypeError, match="Pass the flags by name"):
        make_swizzled_layout((8, 64), False)
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        make_full_bank_swizzled_layout((64,), dtype="float16")
    with pytest.raises(ValueError, match=r"rows in multiples of 32 and columns in multiples of 32.*16 x 64"):
        make_volta_swizzled_layout(16, 64)
    with pytest.raises(ValueError, match="A wgmma operand needs rows in multiples of 8 elements"):
        make_wgmma_swizzled_layout((8, 12), "float16")
    with pytest.raises(TypeError, match="was called with 2 arguments"):
        make_full_bank_swizzled_layout(8, 64)
    with pytest.raises(ValueError, match="pad of at least 0, but -1"):
        make_padded_layout((8, 64), pad=-1)
    with pytest.raises(ValueError, match="Elements of 256 bits do not divide"):
        make_swizzled_layout((8, 64), "float32x8")
