"""What the checker walks once for many: iterations of loops over registers, and parts of turns that do as others did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mutants import refuted
from thread_programs import Program, at, call, load, loop, store, unrolled, when
from tvm import tirx as tir

from tile_compiler.simt.checker.asynchronous import Asynchronous
from tile_compiler.simt.checker.engines import Batch, Engines, Queue
from tile_compiler.simt.checker.knowledge import Agents, Knowledge
from tile_compiler.simt.checker.mbarriers import Mbarrier
from tile_compiler.simt.checker.state_key import state_key
from tile_compiler.simt.enumeration import Block

THREADS = 64


def over_registers(body: Callable[[Any, Any, Any], list[Any]]) -> Any:
    """Two iterations of `body(shared memory, thread, number)`, and nothing that orders them."""
    program = Program(THREADS)
    s = program.shared(4 * THREADS)
    return program.function([unrolled("i", 2, lambda i: body(s, program.tx, i))])


def half(value: Any) -> Any:
    return tir.Cast("float16", value)


@pytest.mark.parametrize(
    ("body", "races"),
    [
        (lambda s, tx, i: [store(s, tx + THREADS * i, half(tx))], False),
        (lambda s, tx, i: [store(s, tx + i, half(tx))], True),  # thread 0's second element is thread 1's first
        (lambda s, tx, i: [store(s, i, half(i))], False),  # all threads write one value
        (lambda s, tx, i: [store(s, i, half(tx))], True),
        (lambda s, tx, i: [store(s, tx + 2 * THREADS, load(s, (tx + 1) % THREADS + THREADS * i))], False),
        # What a thread reads in the second iteration its neighbour has written in the first, and the other way around.
        (lambda s, tx, i: [store(s, tx + THREADS * (1 - i), load(s, (tx + 1) % THREADS + THREADS * i))], True),
        (lambda s, tx, i: [when(i > tx, store(s, tx, half(tx))), store(s, 1 - i, half(i))], True),
    ],
)
def test_iterations_meet_whom_they_would_meet_one_by_one(
    monkeypatch: pytest.MonkeyPatch, body: Callable[[Any, Any, Any], list[Any]], races: bool
) -> None:
    func = over_registers(body)
    with monkeypatch.context() as one_by_one:
        one_by_one.setattr(Block, "_in_any_order", lambda self, node: False)
        one_by_one.setattr(Block, "_only_reads", lambda self, node: False)
        assert refuted(func) == races
    monkeypatch.setattr(Block, "_unrolled", None)  # is not called
    assert refuted(func) == races


def test_arrays_of_a_thread_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    part = tir.decl_buffer((2,), "float16", name="part", scope="local", layout=None)
    func = over_registers(lambda s, tx, i: [tir.AllocBuffer(part), store(part, 0, half(tx)), store(part, 1, half(i))])
    monkeypatch.setattr(Block, "_loop", None)  # is not called
    assert not refuted(func)


def turns(count: int, parity: Any) -> Any:
    """In each turn all threads arrive, and wait in a loop for the phase that ends; `parity` of what a variable was before."""
    program = Program(THREADS)
    b, u = program.mbarrier([THREADS], "b"), program.private(1, "u", "int32")
    x = tir.Var("x", "int32")

    def turn(number: Any) -> list[Any]:
        inside = [tir.Bind(x, load(u, 0)), call("mbarrier_arrive", at(b, 0))]
        inside += [loop("j", tir.const(1, "int32"), lambda j: [call("mbarrier_wait", at(b, 0), parity(x))])]
        inside += [store(u, 0, 1 - load(u, 0))]
        return [when(number * number < 10_000, *inside)]  # of which nothing says when it repeats

    begin = [*program.setup(), store(u, 0, tir.const(0, "int32"))]
    return program.function([*begin, loop("turn", tir.const(count, "int32"), turn)])


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of mbarriers that the checker walks."""
    found: list[str] = []
    whole = Asynchronous._at_barrier

    def at_barrier(self: Any, name: str, *args: Any) -> None:
        found.append(name)
        whole(self, name, *args)

    monkeypatch.setattr(Asynchronous, "_at_barrier", at_barrier)
    return found


def test_parts_of_a_turn_do_as_those_of_earlier_ones(walked: list[str]) -> None:
    """They are not walked again, and leave their values behind nevertheless."""
    assert not refuted(turns(40, lambda x: x))
    assert 1 < walked.count("tl::mbarrier_arrive") < 10
    assert 1 < walked.count("tl::mbarrier_wait") < 10
    assert refuted(turns(40, lambda x: 0 * x))


def test_what_grows_in_a_loop_of_known_length_repeats(walked: list[str]) -> None:
    """As a count of uses in a loop inside that of the tiles of a block that stays."""
    program = Program(THREADS)
    b, uses = program.mbarrier([THREADS], "b"), program.private(1, "uses", "int32")

    def step(_: Any) -> list[Any]:
        wait = call("mbarrier_wait", at(b, 0), load(uses, 0) % 2)
        return [call("mbarrier_arrive", at(b, 0)), wait, store(uses, 0, load(uses, 0) + 1)]

    begin = [*program.setup(), store(uses, 0, tir.const(0, "int32"))]
    tiles = loop("tile", tir.const(100, "int32"), lambda tile: [loop("j", tir.const(3, "int32"), step)])
    assert not refuted(program.function([*begin, tiles]))
    assert 1 < walked.count("tl::mbarrier_wait") < 40


def test_stores_that_are_over_are_as_good_as_none() -> None:
    agents = Agents(np.arange(THREADS), THREADS, 1)

    def key(queue: Queue | None) -> int:
        made = Engines(4, agents, [Mbarrier.fresh("b", 1, 0, Knowledge.none(agents))])
        made.stores = {} if queue is None else {0: queue}
        return state_key(made)

    one = Batch(3)
    assert key(None) == key(Queue()) == key(Queue([Batch(), Batch()]))
    assert key(Queue([one])) == key(Queue([Batch(), one])) != key(None)
    assert key(Queue([one, Batch()])) != key(Queue([one]))  # a wait for all but one ends it, or does not
