"""Layouts as values: one-to-one, inverse, composition, equality, for any extents."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelang.layout import Layout, Swizzle, make_linear_layout, make_padded_layout

SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple)


@st.composite
def one_to_one(draw: Any) -> Layout:
    """Permuted strides with random padding, in one or two physical dimensions, with or without an XOR stage."""
    shape = draw(SHAPES)
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), 1
    for axis in order:
        step += draw(st.sampled_from([0, 0, 1, 3]))
        strides[axis] = step
        step *= shape[axis]
    start = draw(st.integers(0, 3))
    bits = draw(st.integers(0, 2))
    swizzle = Swizzle(bits, draw(st.integers(0, 2)), bits + draw(st.integers(0, 2)))
    width = draw(st.sampled_from([0, 2, 5]))

    def forward(*indices: Any) -> Any:
        place = sum((i * s for i, s in zip(indices, strides, strict=True)), start)
        return (place // width, place % width) if width else place

    return Layout(shape, forward, swizzle=swizzle)


@given(one_to_one())
def test_inverse_after_forward_is_the_identity(layout: Layout) -> None:
    assert layout.is_injective()
    back = layout.inverse()
    indices = np.indices(layout.shape)
    for found, wanted in zip(back(*layout(*indices)), indices, strict=True):
        assert np.array_equal(np.broadcast_to(found, layout.shape), wanted)
    holes = np.broadcast_to(back(*np.indices(back.shape))[0], back.shape) < 0
    assert holes.sum() == layout.physical_size - math.prod(layout.shape)
    assert layout.is_bijective() == (not holes.any())


@given(one_to_one())
def test_compose_with_the_inverse_is_the_identity_layout(layout: Layout) -> None:
    identity = layout.inverse().compose(layout)
    assert identity == Layout(layout.shape, lambda *indices: indices)


@given(one_to_one(), SHAPES)
def test_compose_applies_the_inner_layout_first(outer: Layout, shape: tuple[int, ...]) -> None:
    inner = Layout(shape, lambda *x: tuple(sum(x) % n for n in outer.shape))
    both = outer.compose(inner)
    for point in np.ndindex(shape):
        assert both(*point) == outer(*inner(*point))


@given(one_to_one())
def test_json_round_trip(layout: Layout) -> None:
    again = Layout.from_json(json.loads(json.dumps(layout.to_json())))
    assert again == layout
    assert hash(again) == hash(layout)
    assert repr(again) == repr(layout)


@given(one_to_one(), st.integers(1, 3), st.integers(0, 2))
def test_repeat_puts_each_copy_in_a_block_of_its_own(layout: Layout, factor: int, axis: int) -> None:
    axis %= len(layout.shape)
    tiled = layout.repeat(axis, factor)
    assert tiled.is_injective()
    assert tiled.output_shape == (factor, *layout.output_shape)
    for point in np.ndindex(tiled.shape):
        inside = tuple(p % n for p, n in zip(point, layout.shape, strict=True))
        assert tiled(*point) == (point[axis] // layout.shape[axis], *layout(*inside))


@given(one_to_one())
def test_reshape_keeps_the_memory(layout: Layout) -> None:
    flat = layout.reshape((math.prod(layout.shape),))
    assert np.array_equal(flat.offsets, layout.offsets.ravel())
    assert flat.reshape(layout.shape) == layout


@given(SHAPES, st.integers(0, 12), st.integers(1, 4))
def test_is_injective_agrees_with_a_set(shape: tuple[int, ...], modulus: int, divisor: int) -> None:
    layout = Layout(shape, lambda *x: sum(x) * modulus // divisor + x[0])
    places = {layout(*point) for point in np.ndindex(shape)}
    assert layout.is_injective() == (len(places) == math.prod(shape))


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 5000))
def test_swizzle_undoes_itself_and_keeps_aligned_blocks(bits: int, base: int, extra: int, offset: int) -> None:
    swizzle = Swizzle(bits, base, bits + extra)
    assert swizzle.apply(swizzle.apply(offset)) == offset
    assert swizzle.apply(offset) >> (base + bits) == offset >> (base + bits)


@given(one_to_one())
def test_vector_width_by_brute_force(layout: Layout) -> None:
    extent, width = layout.shape[-1], layout.vector_width()
    assert extent % width == 0
    assert width & (width - 1) == 0

    def fits(v: int) -> bool:
        rows = layout.offsets.reshape(-1, v).tolist()
        return all(row[0] % v == 0 and row == list(range(row[0], row[0] + v)) for row in rows)

    assert fits(width)
    assert extent % (2 * width) != 0 or not fits(2 * width)


def test_vector_width_follows_axis_and_limit() -> None:
    columns = Layout((8, 4), lambda i, j: j * 8 + i)
    assert (columns.vector_width(), columns.vector_width(axis=0), columns.vector_width(0, limit=2)) == (1, 8, 2)


def test_ints_arrays_and_expressions_are_mapped_alike() -> None:
    layout = Layout([4, 6], lambda i, j: (j, i * 2))
    assert layout.shape == layout.input_shape == (4, 6)
    assert layout.output_shape == (6, 7)
    assert layout(3, 5) == layout.evaluate(3, 5) == layout.map_forward_index([3, 5]) == (5, 6)
    rows, columns = layout(np.array([0, 3]), 5)
    assert rows == 5
    assert columns.tolist() == [0, 6]
    assert [str(e) for e in layout(*layout.index)] == ["i * 2", "j * 2"]
    assert str(layout.offset) == "j * 7 + i * 2"


def test_padding_is_injective_but_not_onto() -> None:
    padded = Layout((3, 5), lambda i, j: i * 8 + j)
    assert padded.is_injective()
    assert not padded.is_bijective()
    assert padded.physical_size == 21
    assert padded.affine == ((8, 1), 0)
    assert padded.inverse()(10) == (1, 2)
    assert padded.inverse()(6) == (-1, -1)


def test_equality_is_by_map_not_by_formula() -> None:
    a = Layout((8, 8), lambda i, j: i * 8 + j)
    b = Layout((8, 8), lambda i, j: (i * 8 + j) // 2 * 2 + j % 2)
    assert a == b
    assert hash(a) == hash(b)
    assert a != Layout((8, 8), lambda i, j: j * 8 + i)
    assert a != Layout((8, 8), lambda i, j: (i, j))
    assert a != Layout((8, 4), lambda i, j: i * 8 + j)
    assert a != "layout"
    assert Layout((8, 8), lambda i, j: i * 8 + j, swizzle=Swizzle(1, 0, 3)) == Layout(
        (8, 8), lambda i, j: i * 8 + (j ^ (i & 1))
    )


def test_inverse_of_swizzle_stays_a_formula() -> None:
    layout = Layout((8, 64), lambda i, j: i * 64 + j, swizzle=Swizzle(3, 3, 3))
    assert "lookup" not in repr(layout.inverse())
    assert repr(layout.inverse().compose(layout)) == "Layout((8, 64) -> (8, 64), (i, j) -> (i, j))"


def test_bank_conflicts_of_a_column_of_words() -> None:
    column = np.array([(i, 0) for i in range(32)])
    assert make_linear_layout((32, 32)).bank_conflicts(column, 32) == 32
    assert make_padded_layout((32, 32), "float32", pad=1).bank_conflicts(column, 32) == 1
    assert make_linear_layout((32, 32)).bank_conflicts(np.zeros((32, 2)), 32) == 1  # one word for all lanes


def test_errors_name_the_fault_and_a_repair() -> None:
    with pytest.raises(ValueError, match=r"\(0,\) and \(1,\) both map to \(0,\)"):
        Layout((6,), lambda i: i // 2).inverse()
    with pytest.raises(ValueError, match=r"maps \(0, 3\) to -3, but physical indices start at 0"):
        Layout((4, 4), lambda i, j: i - j)
    with pytest.raises(ValueError, match=r"holds 0, but every number in it must be at least 1"):
        Layout((4, 0), lambda i, j: i)
    with pytest.raises(TypeError, match=r"holds 2.5 of type float"):
        Layout((4, 2.5), lambda i, j: i)
    with pytest.raises(TypeError, match=r"needs an index function, but 3 was found"):
        Layout((4,), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="returned no index"):
        Layout((4,), lambda i: ())
    with pytest.raises(ValueError, match=r"called with 1 indices; give 2"):
        Layout((4, 4), lambda i, j: i)(1)
    with pytest.raises(ValueError, match=r"produces indices of shape \(8,\), but the outer one takes \(4,\)"):
        make_linear_layout((4,)).compose(make_linear_layout((8,)))
    with pytest.raises(ValueError, match=r"inner layout has holes"):
        make_linear_layout((3, 5)).compose(Layout((3, 5), lambda i, j: i * 8 + j).inverse())
    with pytest.raises(ValueError, match=r"12 elements are not 10"):
        make_linear_layout((3, 4)).reshape((10,))
    with pytest.raises(ValueError, match=r"repeats \(2,\) do not fit a layout of shape \(3, 4\)"):
        make_linear_layout((3, 4)).repeat((2,))
    with pytest.raises(ValueError, match=r"not one-to-one.*Use shift=2 or more"):
        Swizzle(2, 0, 1)
    stored: list[Any] = [{}, [], None, {"kind": "layout", "shape": [4]}, {"kind": "fragment"}]
    for broken in stored:
        with pytest.raises(ValueError, match="Expected a stored layout"):
            Layout.from_json(broken)
