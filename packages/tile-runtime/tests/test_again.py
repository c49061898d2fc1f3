"""Calls that come again: which are known, what they run, and what is left after an error."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from array import array
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import pytest
import torch

from tile_runtime.again import Known, KnownCalls, _image, known_calls
from tile_runtime.native import length_word

COUNT = array("q", [0])


def table() -> KnownCalls:
    made = known_calls()
    assert made is not None
    return made


def known(
    shapes: Sequence[Sequence[int] | None], steps: Sequence[tuple[Callable[..., Any], Sequence[int]]], **more: Any
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


def test_operands_that_are_not_there() -> None:
    """None before and after operands: of each call the same ones."""
    calls = table()
    calls.keep(known([A.shape, None, B.shape, None], [(add, (0, 2, 4))], guarded=[0, 2], others=(2,)))
    assert torch.equal(calls.call(A, None, B, None, 2), A + B)
    for others in (
        (A, B, None, None, 2),
        (A, B, B, None, 2),
        (A, None, B, B, 2),
        (A, None, B, 2),
        (A, None, B, None, 3),
    ):
        assert calls.call(*others) is None
    # What is not there is asked, not only told by the shapes' hash.
    slot = known([A.shape, None], ADD).slot()
    n = next(n for n in range(1 << 16) if known([A.shape, (n,)], ADD).slot() == slot)
    calls = table()
    calls.keep(known([A.shape, None], [(add, (0, 0, 2))], guarded=[0]))
    assert torch.equal(calls.call(A, None), A + A)
    assert calls.call(A, torch.zeros(n)) is None
    assert calls.call(None, A) is None


def test_a_kernel_is_given_none_for_an_operand_that_is_not_there() -> None:
    calls, seen = table(), []

    def step(*operands: object) -> None:
        seen.append(operands[:2])

    calls.keep(known([A.shape, None], [(step, (0, 1, 2))], guarded=[0]))
    assert calls.call(A, None) is not None
    assert seen == [(A, None)]


def test_the_check_sees_the_operands() -> None:
    calls, seen = table(), []
    calls.keep(known([A.shape, B.shape], ADD, check=lambda *x: seen.append(x) or len(seen) > 1, guarded=[1]))
    assert calls.call(A, B) is None
    assert calls.call(A, B) is not None
    assert all(x[0] is B and len(x) == 1 for x in seen)
    calls = table()
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


def test_shapes_that_share_a_slot_are_known() -> None:
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
    assert torch.equal(calls.call(A, B), A + B)


def test_calls_that_differ_in_other_arguments_are_known() -> None:
    """As many as there is room for; the next one begins anew."""
    calls, most = table(), KnownCalls.MOST

    def scaled(by: int) -> Known:
        step = lambda a, b, c: torch.add(a, b, alpha=by, out=c)  # noqa: E731
        return known([A.shape, B.shape], [(step, (0, 1, 2))], others=(by,))

    for by in range(most):
        calls.keep(scaled(by))
        assert calls.call(A, B, by + 1) is None
    for by in (0, most - 1, 3, 0):
        torch.testing.assert_close(calls.call(A, B, by), A + by * B)
    assert calls.call(A, B) is None
    calls.keep(scaled(most))
    torch.testing.assert_close(calls.call(A, B, most), A + most * B)
    assert all(calls.call(A, B, by) is None for by in range(most))


def test_records_that_follow_live_while_one_before_them_is_asked() -> None:
    calls, gone = table(), []

    def forgets() -> bool:
        if not gone:
            calls.clear()
            gc.collect()
            gone.append(True)
        return False

    calls.keep(known([A.shape, B.shape], ADD))
    calls.keep(known([A.shape, B.shape], ADD, conditions=[(forgets, True)]))
    assert torch.equal(calls.call(A, B), A + B)
    assert gone
    assert calls.call(A, B) is None


def test_numbers_hold_at_each_call() -> None:
    depth = [0]
    tell = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: depth[0])
    address = ctypes.cast(tell, ctypes.c_void_p).value
    assert address is not None
    calls = table()
    calls.keep(known([A.shape, B.shape], ADD, numbers=[(address, 0), (address, 0)]))
    for number in (0, 1, -1, 1 << 40, 0):
        depth[0] = number
        assert (calls.call(A, B) is None) == (number != 0)


RAN: list[tuple[Any, ...]] = []


def public(
    a: Any, b: Any = B, *, mode: str = "plain", size: float = 1.5, out: Any = None, last: tuple[int, ...] = ()
) -> Any:
    """Of a known call the arguments are a, b and mode."""
    RAN.append((a, b, mode, size, out, last))
    return RAN[-1]


def entered(
    function: Any, parameters: Sequence[str], calls: KnownCalls
) -> Callable[[Sequence[Any], dict[str, Any], int], Any]:
    """Calls `function` as Python does from 3.12 on, by what answers for it (PEP 590)."""
    vectorcall = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.py_object, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
    )(calls.entry(function, parameters))

    def run(arguments: Sequence[Any], named: dict[str, Any], flag: int = 0) -> Any:
        values = (ctypes.py_object * max(1, len(arguments) + len(named)))(*arguments, *named.values())
        names = tuple(map(sys.intern, named))
        return vectorcall(function, ctypes.addressof(values), len(arguments) | flag, id(names) if names else None)

    return run


@pytest.mark.parametrize("flag", [0, 1 << 63], ids=["plain", "offset"])
def test_what_answers_for_a_function_knows_its_calls(flag: int) -> None:
    calls = table()
    run = entered(public, ("a", "b", "mode"), calls)
    RAN.clear()
    assert run((A,), {}, flag) is RAN[-1]  # before a call is known
    calls.keep(known([A.shape, B.shape], ADD, others=("plain",)))
    RAN.clear()
    no = None
    for arguments, named in (
        ((A, B), {}),
        ((A,), {}),
        ((A,), {"b": B}),
        ((), {"b": B, "a": A}),
        ((B,), {"mode": "plain", "b": A}),
        ((A, B), {"out": no, "size": 1.5, "last": ()}),
    ):
        a, b = named.get("a", *arguments[:1]), (*arguments, B)[1] if len(arguments) > 1 else named.get("b", B)
        assert torch.equal(run(arguments, named, flag), a + b), (arguments, named)
    assert not RAN


@pytest.mark.parametrize("flag", [0, 1 << 63], ids=["plain", "offset"])
def test_python_runs_the_function_for_other_calls(flag: int) -> None:
    calls = table()
    run = entered(public, ("a", "b", "mode"), calls)
    calls.keep(known([A.shape, B.shape], ADD, others=("plain",)))
    for arguments, named, wanted in (
        ((A, B), {"mode": "other"}, (A, B, "other", 1.5, None, ())),
        ((A, B), {"out": A}, (A, B, "plain", 1.5, A, ())),
        ((A,), {"size": 2.5, "b": 1}, (A, 1, "plain", 2.5, None, ())),
        ((A[:2],), {"last": (1,)}, (A[:2], B, "plain", 1.5, None, (1,))),
        ((1, 2), {}, (1, 2, "plain", 1.5, None, ())),
    ):
        found = run(arguments, named, flag)
        assert found is RAN[-1]
        assert all(x is y or bool(torch.equal(x, y) if torch.is_tensor(x) else x == y) for x, y in zip(found, wanted))
    for arguments, named, what in (
        ((), {}, "missing 1 required positional argument: 'a'"),
        ((), {"b": B}, "missing 1 required positional argument: 'a'"),
        ((A, B, "plain"), {}, "takes from 1 to 2 positional arguments but 3"),
        ((A, B), {"b": B}, "multiple values for argument 'b'"),
        ((A, B), {"another": B}, "unexpected keyword argument 'another'"),
    ):
        with pytest.raises(TypeError, match=what):
            run(arguments, named, flag)


def test_what_answers_for_several_functions_tells_them_apart() -> None:
    image = _image.__wrapped__()  # with room of its own
    assert image is not None
    functions = [FunctionType(public.__code__, globals(), f"copy{i}", (B,)) for i in range(300)]
    for function in functions:
        function.__kwdefaults__ = dict(public.__kwdefaults__)
    last = KnownCalls(image), KnownCalls(image)
    last[1].keep(known([A.shape, B.shape], ADD, others=("plain",)))
    runs = [entered(f, ("a", "b", "mode"), last[i % 2]) for i, f in enumerate(functions[:20])]
    RAN.clear()
    for i, run in enumerate(runs):
        assert (run((A, B), {}) is RAN[-1]) if i % 2 == 0 else torch.equal(run((A, B), {}), A + B)
    assert len(RAN) == 10
    for function in functions[20:]:  # more than native code has room for: of the last ones each call is Python's
        entered(function, ("a", "b", "mode"), last[1])
    RAN.clear()
    assert torch.equal(runs[1]((A, B), {}), A + B)
    assert not RAN
    assert entered(functions[-1], ("a", "b", "mode"), last[1])((A, B), {}) is RAN[-1]


def test_a_function_that_does_not_begin_with_the_arguments_is_refused() -> None:
    calls = table()
    for parameters in (("b",), ("a", "mode"), ("a", "b", "mode", "size", "out", "last", "more")):
        with pytest.raises(ValueError, match="public does not begin with"):
            calls.entry(public, parameters)

    def needs(a: Any, b: Any) -> None: ...
    def several(a: Any, *rest: Any) -> None: ...

    def without_names(a: Any, /, b: Any = None) -> None: ...

    for function in (needs, several, without_names):
        with pytest.raises(ValueError, match="does not begin with a and go on with defaults"):
            calls.entry(function, ("a",))


def test_python_enters_by_it_where_it_can() -> None:
    """From CPython 3.12 on each call of the function goes there first."""

    def add_up(a: Any, b: Any, *, mode: str = "plain") -> Any:
        return add_up

    calls = table()
    can = hasattr(ctypes.pythonapi, "PyFunction_SetVectorcall")
    assert can == (sys.version_info >= (3, 12))
    assert calls.enter(add_up, ("a", "b", "mode")) == can
    for _ in range(50):
        assert add_up(A, B) is add_up
    calls.keep(known([A.shape, B.shape], ADD, others=("plain",)))
    for _ in range(50):
        assert torch.equal(add_up(A, B, mode="plain"), A + B) if can else add_up(A, B) is add_up
    assert add_up(A, B, mode="other") is add_up
