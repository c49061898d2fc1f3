"""Calls that come again: which are known, what they run, and what is left after an error."""

from __future__ import annotations

import gc
import sys
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tile_runtime.again import Known, KnownCalls, known_calls
from tile_runtime.native import length_word

COUNT = array("q", [0])


def table() -> KnownCalls:
    made = known_calls()
    assert made is not None
    return made


def known(
    shapes: Sequence[Sequence[int]], steps: Sequence[tuple[Callable[..., Any], Sequence[int]]], **more: Any
) -> Known:
    """A call on operands of these shapes that makes one result."""
    fields: dict[str, Any] = {
        "others": (), "same": (), "check": lambda *_: True, "guarded": range(len(shapes)), "conditions": (),
        "entries": (), "words": (), "made": [(torch.empty, (shapes[0],))], "results": 1, "held": (), "alignment": 16, **more,
    }  # fmt: skip
    counter = COUNT.buffer_info()[0]
    return Known(shapes=shapes, steps=[(run, counter, places) for run, places in steps], **fields)


def add(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.add(a.detach(), b.detach(), out=c)


A, B = torch.randn(3, 8), torch.randn(3, 8)
ADD = [(add, (0, 1, 2))]


def test_a_known_call_runs_its_steps_on_new_operands() -> None:
    calls = table()
    assert calls.call(A, B) is None
    calls.keep(known([A.shape, B.shape], ADD))
    before = COUNT[0]
    for a, b in ((A, B), (B, A), (A + 1, torch.nn.Parameter(B)), (A, A)):
        assert torch.equal(calls.call(a, b), a + b)
    assert COUNT[0] == before + 4
    calls.clear()
    assert calls.call(A, B) is None


def test_a_call_that_writes_an_operand_is_not_taken_for_one_where_it_overlaps() -> None:
    calls, shape = table(), (3, 8)
    bytes_of = 96
    apart = [(2, bytes_of, place, bytes_of) for place in (0, 1)]
    calls.keep(known([shape, shape, shape], ADD, made=(), results=0, apart=apart))
    room = torch.zeros(2, 32, 8)  # 1 KB each, rows of 32 bytes
    for b, c in ((0, 3), (3, 0), (0, 28), (0, 1), (0, 2), (2, 0), (0, 0)):
        room.normal_()
        operands = room[0, b : b + 3], room[0, c : c + 3]
        wanted = A + operands[0]
        if abs(b - c) >= 3:
            assert calls.call(A, *operands) == ()  # it has no result
            assert torch.equal(operands[1], wanted)
        else:
            before = room.clone()
            assert calls.call(A, *operands) is None
            assert calls.call(operands[0], A, operands[1]) is None
            assert torch.equal(room, before)
    assert calls.call(A, room[0, :3], room[1, :3]) == ()


@pytest.mark.parametrize(
    "arguments",
    [
        (A,),
        (A, B, B),
        (A, B[:2]),
        (A, B[:, 0]),
        (A, None),
        (A, 1.0),
        (),
        (A, torch.zeros(25)[1:].view(3, 8)),
        (A, B, None),
    ],
    ids=["fewer", "more", "shape", "rank", "None", "number", "none", "address", "another"],
)
def test_another_call_is_unknown(arguments: tuple[Any, ...]) -> None:
    calls = table()
    calls.keep(known([A.shape, B.shape], ADD))
    assert calls.call(*arguments) is None


def test_other_arguments_are_equal_and_of_one_type() -> None:
    calls = table()
    calls.keep(known([A.shape, B.shape], ADD, others=(1.5, "gelu", None, True, torch.float32)))
    assert torch.equal(calls.call(A, B, 3.0 / 2, "ge" + "lu"[:], None, True, torch.float32), A + B)
    for others in (
        (1.25, "gelu", None, True),
        (1.5, "relu", None, True),
        (1.5, "gelu", 0, True),
        (1.5, "gelu", None, 1),
    ):
        assert calls.call(A, B, *others, torch.float32) is None

    class Odd(float):
        def __eq__(self, other: object) -> bool:
            raise ValueError

        __hash__ = None  # type: ignore[assignment]

    calls.keep(known([A.shape, B.shape], ADD, others=(Odd(1.0),)))
    assert calls.call(A, B, Odd(1.0)) is None


def test_operands_that_were_one_object_must_be_one() -> None:
    calls = table()
    calls.keep(known([A.shape, A.shape], [(add, (0, 0, 2))], same=[(1, 0)], guarded=[0]))
    assert torch.equal(calls.call(B, B), B + B)
    assert calls.call(A, B) is None


def test_the_check_sees_the_operands() -> None:
    calls, seen = table(), []
    calls.keep(known([A.shape, B.shape], ADD, check=lambda *x: seen.append(x) or len(seen) > 1, guarded=[1]))
    assert calls.call(A, B) is None
    assert calls.call(A, B) is not None
    assert all(x[0] is B and len(x) == 1 for x in seen)
    calls.keep(known([A.shape, B.shape], ADD, check=lambda *_: 1 / 0))
    assert calls.call(A, B) is None


def test_conditions_hold_at_each_call() -> None:
    calls, value = table(), ["a"]
    calls.keep(known([A.shape, B.shape], ADD, conditions=[(lambda: True, True), (lambda: value[0], "a")]))
    assert calls.call(A, B) is not None
    value[0] = "b"
    assert calls.call(A, B) is None
    value.clear()
    assert calls.call(A, B) is None  # an error of a condition: the caller finds out by itself


def test_entries_and_words_hold_at_each_call() -> None:
    calls, level, places, things = table(), -1, {"level": -1, b"mode": "x"}, [1, 2]
    entries = [(places, "level", level), (places, b"mode", places[b"mode"]), (places, "absent", None)]
    calls.keep(known([A.shape, B.shape], ADD, entries=entries, words=[(length_word(things), 2)]))
    for key, value in (("level", 0), (b"mode", "y"), ("absent", None)):
        assert calls.call(A, B) is not None
        before = dict(places)
        places[key] = value
        assert calls.call(A, B) is None
        places.clear()
        assert calls.call(A, B) is None
        places.update(before)
    things.append(3)
    assert calls.call(A, B) is None
    things.pop()
    assert torch.equal(calls.call(A, B), A + B)


def test_several_results_and_what_is_held_or_temporary() -> None:
    held = torch.full((3, 8), 2.0)

    def parts(
        a: torch.Tensor, b: torch.Tensor, total: torch.Tensor, product: torch.Tensor, spare: torch.Tensor, two: Any
    ) -> None:
        spare.copy_(a)
        torch.add(spare, two, out=total)
        torch.mul(a, b, out=product)

    made = [(torch.empty, ((3, 8),)) for _ in range(3)]
    calls = table()
    calls.keep(known([A.shape, B.shape], [(parts, (0, 1, 2, 3, 4, 5))], made=made, results=2, held=[held]))
    total, product = calls.call(A, B)
    assert torch.equal(total, A + 2)
    assert torch.equal(product, A * B)


def test_an_error_of_a_step_is_the_caller_s_and_nothing_leaks() -> None:
    made: list[weakref.ref[torch.Tensor]] = []

    def new() -> torch.Tensor:
        fresh = torch.empty(3, 8)
        made.append(weakref.ref(fresh))
        return fresh

    def fail(*_: Any) -> None:
        raise ValueError("the step")

    calls = table()
    calls.keep(known([A.shape, B.shape], [*ADD, (fail, (2,))], made=[(new, ()), (new, ())]))
    for _ in range(3):
        with pytest.raises(ValueError, match="the step"):
            calls.call(A, B)
    calls.keep(known([A.shape, B.shape], ADD, made=[(new, ()), (lambda: 1 / 0, ())]))
    with pytest.raises(ZeroDivisionError):
        calls.call(A, B)
    gc.collect()
    assert len(made) == 7
    assert all(ref() is None for ref in made)


def test_references_are_given_back() -> None:
    calls, x, rest = table(), torch.randn(3, 8), "a text that is long enough"
    calls.keep(known([A.shape, B.shape], ADD, others=(rest,), conditions=[(lambda: rest, rest)]))
    calls.call(x, B, rest), calls.call(x, B, "another")
    before = sys.getrefcount(x), sys.getrefcount(rest), sys.getrefcount(None), sys.getrefcount(True)
    for _ in range(500):
        calls.call(x, B, rest)
        calls.call(x, B, "another")
    after = sys.getrefcount(x), sys.getrefcount(rest), sys.getrefcount(None), sys.getrefcount(True)
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True))
    result = calls.call(x, B, rest)
    assert sys.getrefcount(result) == 2


def test_a_record_lives_while_it_runs() -> None:
    calls = table()

    def forget(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        calls.clear()
        calls.keep(known([A.shape, B.shape], [(torch.Tensor.zero_, (2,))]))
        gc.collect()

    calls.keep(known([A.shape, B.shape], [(forget, (0, 1, 2)), (add, (0, 1, 2))]))
    assert torch.equal(calls.call(A, B), A + B)
    assert not calls.call(A, B).any()


def test_of_shapes_that_share_a_slot_the_last_is_known() -> None:
    """`check` tells shapes apart, as torch's guards do."""

    def of(n: int) -> Known:
        shape = (n, 8)
        return known([shape, shape], ADD, check=lambda a, b: tuple(a.shape) == tuple(b.shape) == shape)

    n = next(n for n in range(4, 1 << 16) if of(n).slot() == of(3).slot())
    calls, x = table(), torch.randn(n, 8)
    calls.keep(of(3))
    assert calls.call(x, x) is None
    calls.keep(of(n))
    assert torch.equal(calls.call(x, x), x + x)
    assert calls.call(A, B) is None
