"""Fragments: who holds which element, and the primitives that build a block's fragment from an instruction's."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilelang.layout import Fragment, make_fully_replicated_layout_fragment


def mma_8x8() -> Fragment:
    """The 8 x 8 piece of mma.sync operands of 16 bits and accumulators (PTX ISA, "Matrix Fragments for mma")."""
    return Fragment((8, 8), forward_thread_fn=lambda i, j: i * 4 + j // 2, forward_index_fn=lambda i, j: j % 2)


@st.composite
def fragments(draw: Any) -> Fragment:
    """Row-major numbers cut into registers and threads in either order, replicated on new threads."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple))
    cut = draw(st.integers(1, 5))
    swap, copies = draw(st.booleans()), draw(st.integers(1, 3))
    groups = -(-math.prod(shape) // cut)

    def forward(*arguments: Any) -> Any:
        indices, rep = (arguments[:-1], arguments[-1]) if copies > 1 else (arguments, 0)
        number: Any = 0
        for index, extent in zip(indices, shape, strict=True):
            number = number * extent + index
        thread, register = (number % cut, number // cut) if swap else (number // cut, number % cut)
        return thread + rep * (cut if swap else groups), register

    return Fragment(shape, forward, replicate=copies, threads=draw(st.sampled_from([None, 1024])))


def counted_owners(fragment: Fragment) -> dict[tuple[int, int], set[tuple[int, ...]]]:
    """What each (thread, register) holds, by visiting every copy of every element."""
    slots: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    for point in np.ndindex(fragment.shape):
        for rep in range(fragment.replicate_size):
            slots.setdefault(fragment(*point, rep=rep), set()).add(point)
    return slots


@given(fragments())
def test_covers_agrees_with_counting(fragment: Fragment) -> None:
    slots = counted_owners(fragment)
    one_each = all(len(held) == 1 for held in slots.values())
    assert fragment.covers() == (one_each and len(slots) == math.prod(fragment.shape) * fragment.replicate_size)
    assert fragment.covers()


@given(fragments(), st.data())
@settings(max_examples=60)
def test_every_primitive_keeps_the_cover(fragment: Fragment, data: Any) -> None:
    repeats = data.draw(st.tuples(*(st.integers(1, 3) for _ in fragment.shape)))
    times, low = math.prod(repeats), data.draw(st.booleans())
    wide = fragment.repeat(repeats, lower_dim_first=low)
    assert wide.covers()
    assert (wide.num_threads, wide.registers) == (fragment.num_threads, fragment.registers * times)
    tall = fragment.repeat_on_thread(repeats, lower_dim_first=low)
    assert tall.covers()
    assert (tall.num_threads, tall.registers) == (fragment.num_threads * times, fragment.registers)
    copied = fragment.replicate(2)
    assert copied.covers()
    assert copied.replicate_size == 2 * fragment.replicate_size
    point = tuple(n - 1 for n in fragment.shape)
    assert len(copied.owners(*point)) == 2 * len(fragment.owners(*point))


@given(fragments())
def test_inverse_finds_the_element_and_marks_empty_registers(fragment: Fragment) -> None:
    back = fragment.inverse()
    slots = counted_owners(fragment)
    assert back.shape == (fragment.num_threads, fragment.registers)
    for slot, held in slots.items():
        assert {back(*slot)} == held
    assert np.count_nonzero(back(*np.indices(back.shape))[0] + np.zeros(back.shape) >= 0) == len(slots)


@given(fragments())
def test_json_and_reshape_round_trip(fragment: Fragment) -> None:
    again = Fragment.from_json(json.loads(json.dumps(fragment.to_json())))
    assert again == fragment
    assert hash(again) == hash(fragment)
    assert again.num_threads == fragment.num_threads
    assert fragment.reshape((math.prod(fragment.shape),)).reshape(fragment.shape) == fragment


def test_accumulator_of_mma_m16n8k16_matches_the_ptx_manual() -> None:
    acc = mma_8x8().repeat((2, 1))
    for lane in range(32):
        for register in range(4):
            row = lane // 4 + (8 if register >= 2 else 0)
            column = lane % 4 * 2 + (register & 1)
            assert acc(row, column) == (lane, register)
            assert acc.inverse()(lane, register) == (row, column)
    assert (acc.num_threads, acc.registers, acc.replicate_size) == (32, 4, 1)


def test_operand_a_of_mma_m16n8k16_matches_the_ptx_manual() -> None:
    operand = mma_8x8().repeat((2, 2), lower_dim_first=False)
    for lane in range(32):
        for register in range(8):
            row = lane // 4 + (0 if register < 2 or 4 <= register < 6 else 8)
            column = lane % 4 * 2 + (register & 1) + (8 if register >= 4 else 0)
            assert operand(row, column) == (lane, register)


def test_papers_chain_from_instruction_to_four_warps() -> None:
    """Figure 6: m16k16 for a warp -> m32k16 for a warp -> m128k16 for four warps, then held by two groups."""
    base = mma_8x8().repeat((2, 2), lower_dim_first=False)
    warp = base.repeat((2, 1))
    block = warp.repeat_on_thread((4, 1))
    assert (warp.shape, warp.num_threads, warp.registers) == ((32, 16), 32, 16)
    assert (block.shape, block.num_threads, block.registers) == ((128, 16), 128, 16)
    assert base.covers()
    assert warp.covers()
    assert block.covers()
    assert len(counted_owners(block)) == 128 * 16 == block.num_threads * block.registers
    assert {t // 32 for row in range(32, 64) for t in block.owners(row, 3)} == {1}
    both = block.replicate(2)
    assert both.covers()
    assert both.num_threads == 256
    assert both.owners(40, 0) == (32, 160)
    assert all(len(held) == 1 for held in counted_owners(both).values())


def test_waves_of_64_threads() -> None:
    """The 16 x 16 accumulator of v_mfma_f32_16x16x16_f16 (AMD CDNA3 ISA, matrix instructions)."""
    acc = Fragment((16, 16), lambda i, j: (i // 4 * 16 + j, i % 4))
    block = acc.repeat((2, 2)).repeat_on_thread((2, 2))
    assert (acc.num_threads, acc.registers, block.num_threads, block.registers) == (64, 4, 256, 16)
    assert acc.covers()
    assert block.covers()


def test_missing_index_function_numbers_each_threads_elements() -> None:
    inferred = Fragment((8, 8), forward_thread_fn=lambda i, j: i * 4 + j // 2)
    assert inferred == mma_8x8()
    assert "lookup" not in repr(inferred)
    odd = Fragment((3, 7), forward_thread_fn=lambda i, j: (i * 7 + j) * 5 % 4)
    assert odd.covers()


def test_condense_drops_replicas_in_the_same_thread() -> None:
    loose = Fragment((8,), forward_thread_fn=lambda i, rep: i + 8 * (rep // 2), replicate=4)
    assert not loose.covers()
    tight = loose.condense_rep_var()
    assert tight.covers()
    assert tight.replicate_size == 2
    assert tight == loose.condense()
    assert tight.owners(3) == loose.owners(3) == (3, 11)
    assert tight.condense() is tight
    assert loose.inverse() == tight.inverse()


def test_fully_replicated() -> None:
    full = make_fully_replicated_layout_fragment((3, 5), 6)
    assert full.covers()
    assert full.owners(2, 4) == tuple(range(6))
    assert full.index(2, 4) == 14
    assert make_fully_replicated_layout_fragment((3, 5), 1).covers()


def test_vector_width_stays_inside_a_thread() -> None:
    assert mma_8x8().vector_width() == 2
    rows = Fragment((4, 8), lambda i, j: (i, j))
    assert rows.vector_width() == 8
    assert rows.vector_width(limit=4) == 4
    assert rows.vector_width(axis=0) == 1
    assert Fragment((8,), lambda i: (i, 0)).vector_width() == 1
    assert make_fully_replicated_layout_fragment((4, 4), 3).vector_width() == 4


def test_equality_is_by_place_whatever_the_replicas_order() -> None:
    up = Fragment((4,), lambda i, rep: (i + 4 * rep, 0), replicate=2)
    down = Fragment((4,), lambda i, rep: (i + 4 * (1 - rep), 0), replicate=2)
    assert up == down
    assert hash(up) == hash(down)
    assert up != Fragment((4,), lambda i, rep: (i * 2 + rep, 0), replicate=2)
    assert up != Fragment((4,), lambda i, rep: (i + 4 * rep, 0), replicate=2, threads=32)
    assert up != 3


def test_arrays_and_upstream_spellings() -> None:
    frag = Fragment([4, 4], lambda i, j: (i, [j]), replicate=1)
    assert frag.thread(np.arange(4), 2).tolist() == [0, 1, 2, 3]
    assert frag.map_forward_thread([3, 1]) == 3
    assert frag.map_forward_index([3, 1]) == (1,)
    assert frag.input_shape == (4, 4)
    assert frag.thread_extent == 4
    assert frag.local_size == 4
    extra = Fragment((4,), lambda i, rep: (i + rep, 0))
    assert extra.owners(2) == (2,)


def test_errors_name_the_fault_and_a_repair() -> None:
    with pytest.raises(ValueError, match=r"\(0, 0\) and \(0, 2\) are both in register 0 of thread 0"):
        Fragment((2, 4), lambda i, j: (i, j % 2)).inverse()
    twice = Fragment((4,), lambda i, rep: (i, 0), replicate=2)
    assert "Replicas 0 and 1 of element (0,) are both in thread 0" in (twice.cover_fault() or "")
    with pytest.raises(TypeError, match="neither forward_fn nor forward_thread_fn was given"):
        Fragment((4,))
    with pytest.raises(TypeError, match="which say the same"):
        Fragment((4,), lambda i: (i, 0), lambda i: i)
    with pytest.raises(TypeError, match=r"must return \(thread, local index\)"):
        Fragment((4,), lambda i: i)
    with pytest.raises(TypeError, match=r"must be one number, but 2 were returned"):
        Fragment((4, 4), lambda i, j: (0, (i, j)))
    with pytest.raises(TypeError, match=r"replicate=2 must take \(i, j, rep\)"):
        Fragment((4, 4), lambda i, j: (i, j), replicate=2)
    with pytest.raises(ValueError, match=r"puts element \(0, 3\) at thread -3"):
        Fragment((2, 4), lambda i, j: (i - j, j))
    with pytest.raises(ValueError, match=r"puts element \(1,\) at local index -1"):
        Fragment((2,), lambda i: (0, 0 - i))
    with pytest.raises(ValueError, match=r"uses thread 7, but threads=4 was given.*at least 8"):
        Fragment((8,), lambda i: (i, 0), threads=4)
    with pytest.raises(ValueError, match=r"has no forward_index_fn.*Pass forward_index_fn"):
        Fragment((4,), forward_thread_fn=lambda i, rep: (i + rep) % 4, replicate=2)
    with pytest.raises(ValueError, match=r"called with 1 indices; give 2"):
        mma_8x8().thread(1)
    with pytest.raises(ValueError, match=r"repeats \(2,\) do not fit"):
        mma_8x8().repeat((2,))
    for broken in ({}, None, {"kind": "fragment"}, {"kind": "layout"}):
        with pytest.raises(ValueError, match="Expected a stored fragment"):
            Fragment.from_json(broken)
