"""The checker on mbarriers and bulk copies: programs by hand, correct ones and all that they become with a fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mutants import Change, mutants
from thread_programs import Program, at, call, load, loop, producer, store, when
from tvm import tirx as tir

from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import BarrierMismatch, SharedMemoryRace

TILE = 1024  # elements of float16
ERRORS = (BarrierMismatch, SharedMemoryRace)


def assumed(func: Any) -> list[str]:
    """Proved; what had to be assumed."""
    ctx = SimtContext()
    check_synchronization(func, ctx)
    return ctx.report.assumed


def refutation(func: Any, lines: int = 2) -> str:
    """What the checker says; it must name two lines of the program, or so many, and a repair."""
    with pytest.raises(ERRORS) as caught:
        check_synchronization(func, SimtContext())
    text = str(caught.value)
    found = re.search(r"found: .*", text)
    assert found is not None
    assert found[0].count("program.py:") >= lines or "nothing" in found[0], text
    assert "try: " in text
    return text


class Ring(Program):
    """A producer brings tiles in `versions` slots, the other threads read them."""

    def __init__(self, versions: int, threads: int = 64) -> None:
        super().__init__(threads)
        self.versions = versions
        self.source, self.out = self.tensor(1 << 16, "A"), self.tensor(1 << 16, "B")
        self.tile = self.shared(versions * TILE)
        self.full = self.mbarrier([1] * versions, "full")
        self.empty = self.mbarrier([threads // 32] * versions, "empty")
        self.map = self.tensor_map(self.source, (TILE,))

    def slot(self, number: Any) -> Any:
        return tir.floormod(number, self.versions)

    def parity(self, number: Any) -> Any:
        return tir.floormod(tir.floordiv(number, self.versions), 2)

    def wait_empty(self, number: Any) -> Any:
        return call("mbarrier_wait", at(self.empty, self.slot(number)), tir.bitwise_xor(self.parity(number), 1))

    def copy(self, number: Any) -> list[Any]:
        slot = self.slot(number)
        return [
            call("mbarrier_arrive_expect_tx", at(self.full, slot), 2 * TILE),
            call("tma_load", at(self.tile, slot * TILE), self.map, at(self.full, slot), number * TILE),
        ]

    def bring(self, number: Any) -> Any:
        return producer(self.wait_empty(number), *self.copy(number))

    def wait(self, number: Any) -> Any:
        return call("mbarrier_wait", at(self.full, self.slot(number)), self.parity(number))

    def use(self, number: Any) -> Any:
        place = self.slot(number) * TILE + self.tx * 8
        return store(self.out, self.tx, load(self.tile, place))

    def release(self, number: Any) -> list[Any]:
        arrive = call("mbarrier_arrive", at(self.empty, self.slot(number)))
        return [call("fence_proxy_async_shared"), call("sync_warp"), when(tir.floormod(self.tx, 32) == 0, arrive)]

    def turn(self, number: Any) -> list[Any]:
        return [self.bring(number), self.wait(number), self.use(number), *self.release(number)]

    def of(self, extent: Any, turn: Callable[[Any], list[Any]] | None = None) -> Any:
        return self.function([*self.setup(), loop("k", extent, turn or self.turn)])


def ring(versions: int, extent: int, threads: int = 64) -> Any:
    return Ring(versions, threads).of(tir.const(extent, "int32"))


@pytest.mark.parametrize("versions", [1, 2, 3, 4])
@pytest.mark.parametrize("extent", [0, 1, 2, 3, 9, 10_000])
def test_a_ring_is_proved(versions: int, extent: int) -> None:
    assert not assumed(ring(versions, extent))


@pytest.mark.parametrize("versions", [1, 2, 3])
def test_every_part_of_a_ring_is_needed(versions: int) -> None:
    for mutant, change in mutants(ring(versions, 2 * versions + 1)):
        assert refutation(mutant), change


@pytest.mark.parametrize("extent", [1, 2, 3])
def test_what_a_short_ring_does_not_need_is_proved_redundant(extent: int) -> None:
    """With three slots and no second round nobody waits for an empty slot, and nobody has to say that one is."""
    proved = []
    for mutant, change in mutants(ring(3, extent)):
        try:
            check_synchronization(mutant, SimtContext())
        except ERRORS:
            continue
        proved.append(change)
    harmless = {"tl::mbarrier_init", "tl::mbarrier_arrive", "tl::mbarrier_wait", "tl::fence_proxy_async_shared"}
    assert {c.was for c in proved} <= harmless
    assert Change(8, "tl::mbarrier_wait", "") in proved  # the producer's
    assert sum(c.was == "tl::mbarrier_init" for c in proved) == 2 * (3 - extent)


def test_dynamic_trip_count() -> None:
    program = Ring(2)
    count = tir.Var("n", "int32")
    program.params.append(count)
    func = program.of(count)
    assert not assumed(func)
    for mutant, change in mutants(func):
        assert refutation(mutant), change


def test_a_stage_released_before_its_last_use() -> None:
    program = Ring(2)
    func = program.of(8, lambda k: [program.bring(k), program.wait(k), *program.release(k), program.use(k)])
    text = refutation(func)
    assert "s[0] is copied to while it may still be in use" in text
    assert "T.mbarrier_arrive(empty) after the last use" in text


def test_loads_that_may_still_be_on_their_way_when_the_next_copy_lands() -> None:
    program = Ring(2)
    func = program.of(8, lambda k: [program.bring(k), program.wait(k), program.use(k), *program.release(k)[1:]])
    text = refutation(func)
    assert "s[0] is copied to while ordinary accesses may still be on their way" in text
    assert "T.fence_proxy_async() after the last use, before T.mbarrier_arrive(empty)" in text


def test_lanes_that_do_not_meet_before_one_arrives_for_all() -> None:
    program = Ring(2)
    func = program.of(
        8, lambda k: [program.bring(k), program.wait(k), program.use(k), program.release(k)[0], program.release(k)[2]]
    )
    assert "s[8] is copied to while it may still be in use" in refutation(func)


def test_a_use_of_the_next_slot() -> None:
    program = Ring(3)
    func = program.of(8, lambda k: [program.bring(k), program.wait(k), program.use(k + 1), *program.release(k)])
    assert refutation(func)


def test_a_write_into_a_tile_that_was_brought_is_released_like_a_read() -> None:
    program = Ring(2)
    scale = lambda k: store(program.tile, program.slot(k) * TILE + program.tx, tir.const(1.0, "float16"))  # noqa: E731
    right = program.of(8, lambda k: [program.bring(k), program.wait(k), scale(k), *program.release(k)])
    assert not assumed(right)
    wrong = program.of(8, lambda k: [program.bring(k), scale(k), program.wait(k), *program.release(k)])
    assert "is still being copied to" in refutation(wrong)


def test_one_consumer_too_few_or_too_many() -> None:
    for arrivals in (1, 3):
        program = Ring(2)
        program.barriers[1] = (program.empty, [arrivals] * 2)
        program.allocated[-1] = tir.AllocBuffer(program.empty, {"tl.arrivals": [arrivals] * 2, "tl.offset": 8192})
        text = refutation(program.of(8))
        assert ("more threads arrive at empty[0] than it expects" if arrivals == 1 else "never ends") in text


def test_initialization_and_annotation_must_agree() -> None:
    program = Ring(2)
    program.barriers[0] = (program.full, [1, 2])
    with pytest.raises(BarrierMismatch, match="more threads arrive at full"):
        check_synchronization(program.of(8), SimtContext())


@pytest.mark.parametrize("extent", [0, 1, 2, 7])
def test_copies_under_a_condition_still_end_their_phase(extent: int) -> None:
    """Where nothing is to be brought, the producer arrives without bytes."""

    def made(alone: bool) -> Any:
        program = Ring(2)

        def turn(k: Any) -> list[Any]:
            bare = call("mbarrier_arrive", at(program.full, program.slot(k)))
            case = tir.IfThenElse(tir.floormod(k, 3) != 1, tir.SeqStmt(program.copy(k)), bare if alone else None)
            used = when(tir.floormod(k, 3) != 1, program.use(k))
            return [producer(program.wait_empty(k), case), program.wait(k), used, *program.release(k)]

        return program.of(extent, turn)

    assert not assumed(made(True))
    if extent > 1:
        assert "the wait for full[1] never ends" in refutation(made(False))


def test_copies_under_a_condition_that_memory_decides() -> None:
    def made(everywhere: bool) -> Any:
        program = Ring(2)
        flags = program.tensor(64, "F", "int32")

        def turn(k: Any) -> list[Any]:
            bare = call("mbarrier_arrive", at(program.full, program.slot(k)))
            case = tir.IfThenElse(load(flags, k) > 0, tir.SeqStmt(program.copy(k)), bare)
            used = when(load(flags, k) > 0, program.use(k))
            released = program.release(k) if everywhere else [when(load(flags, k) > 0, *program.release(k))]
            return [producer(program.wait_empty(k), case), program.wait(k), used, *released]

        return program.of(64, turn)

    assert not assumed(made(True))
    assert assumed(made(False))  # which phase it is depends on memory


@pytest.mark.parametrize("versions", [1, 2, 3])
@pytest.mark.parametrize("inner", [1, 4, 5])
def test_a_ring_in_a_loop_counts_its_uses_on(versions: int, inner: int) -> None:
    """Tiles of a persistent block: the phases go on where the tile before left them."""

    def made(step: int) -> Any:
        program = Ring(versions)
        uses = program.private(1, "uses", "int32")

        def tile(_: Any) -> list[Any]:
            body = loop("k", inner, lambda k: program.turn(load(uses, 0) + k))
            return [body, store(uses, 0, load(uses, 0) + step)]

        return program.function([*program.setup(), store(uses, 0, tir.const(0, "int32")), loop("t", 3000, tile)])

    assert not assumed(made(inner))
    assert refutation(made(inner + versions))


def test_a_tile_that_is_brought_once() -> None:
    def made(*order: str) -> Any:
        program = Program(64)
        source, out = program.tensor(TILE, "A"), program.tensor(TILE, "B")
        tile, full = program.shared(TILE), program.mbarrier([1], "full")
        box = program.tensor_map(source, (TILE,))
        parts = {
            "bring": producer(
                call("mbarrier_arrive_expect_tx", at(full, 0), 2 * TILE),
                call("tma_load", at(tile, 0), box, at(full, 0), 0),
            ),
            "wait": call("mbarrier_wait", at(full, 0), 0),
            "use": loop("k", 300, lambda k: [store(out, program.tx, load(tile, program.tx))]),
        }
        return program.function([*program.setup(), *(parts[o] for o in order)])

    assert not assumed(made("bring", "wait", "use"))
    assert "is still being copied to" in refutation(made("bring", "use", "wait"))
    assert "the block ends while a bulk copy is under way" in refutation(made("bring"))


def test_two_copies_may_not_meet() -> None:
    program = Ring(1)
    func = program.function([*program.setup(), producer(*program.copy(0), *program.copy(0)[1:]), program.wait(0)])
    assert refutation(func)


# -- barriers that the kernel manages itself ----------------------------------------------------------------------------


def by_one_of_the_threads(extent: int) -> Any:
    """Thread 0 brings the tiles, all threads use them and arrive."""
    program = Ring(2)
    program.barriers[1] = (program.empty, [64, 64])
    program.allocated[-1] = tir.AllocBuffer(program.empty, {"tl.arrivals": [64, 64], "tl.offset": 8192})

    def turn(k: Any) -> list[Any]:
        arrive = call("mbarrier_arrive", at(program.empty, program.slot(k)))
        return [
            program.wait_empty(k),
            when(program.tx == 0, *program.copy(k)),
            program.wait(k),
            program.use(k),
            call("fence_proxy_async_shared"),
            arrive,
        ]

    return program.of(extent, turn)


@pytest.mark.parametrize("extent", [1, 2, 300])
def test_barriers_of_the_kernel_itself_are_proved_too(extent: int) -> None:
    assert not assumed(by_one_of_the_threads(extent))


def test_faults_of_a_kernel_with_its_own_barriers_are_found() -> None:
    for mutant, change in mutants(by_one_of_the_threads(9)):
        assert refutation(mutant), change


def test_threads_order_ordinary_accesses_by_an_mbarrier() -> None:
    def made(waits: bool) -> Any:
        program = Program(64)
        out, tile, met = program.tensor(64, "B"), program.shared(64), program.mbarrier([64], "met")
        tx = program.tx
        parts = [store(tile, tx, tir.const(1.0, "float16")), call("mbarrier_arrive", at(met, 0))]
        if waits:
            parts.append(call("mbarrier_wait", at(met, 0), 0))
        return program.function([*program.setup(), *parts, store(out, tx, load(tile, 63 - tx))])

    assert not assumed(made(True))
    assert "a race on s[63]" in refutation(made(False))


def test_programs_of_their_own_are_assumed_to_be_right() -> None:
    """Warps that wait for each other do not run in the order of the text."""
    program = Ring(2)
    tx = program.tx
    program.barriers[1] = (program.empty, [1, 1])
    program.allocated[-1] = tir.AllocBuffer(program.empty, {"tl.arrivals": [1, 1], "tl.offset": 8192})
    bring = loop("k", 9, lambda k: [program.wait_empty(k), *program.copy(k)])
    use = loop("j", 9, lambda j: [program.wait(j), program.use(j), *program.release(j)])
    func = program.function([*program.setup(), tir.IfThenElse(tx < 32, when(tx == 0, bring), use)])
    assert any("barriers that the kernel manages itself" in text for text in assumed(func))


def test_the_skip_of_iterations_sees_the_phase() -> None:
    """The fault is in one late iteration, and only the parity has it."""
    program = Ring(2)

    def turn(k: Any) -> list[Any]:
        other = call("mbarrier_wait", at(program.full, program.slot(k)), 1 - program.parity(k))
        return [
            program.bring(k),
            tir.IfThenElse(k == 997, other, program.wait(k)),
            program.use(k),
            *program.release(k),
        ]

    assert "never ends" in refutation(program.of(1000, turn))


def test_random_rings() -> None:
    """Slots, trip counts and the number of uses before a release, drawn at random: proved, and refuted with one edit."""
    rng = np.random.default_rng(0)
    for _ in range(6):
        versions, extent = int(rng.integers(1, 5)), int(rng.integers(1, 40))
        func = ring(versions, extent, 32 * int(rng.integers(1, 4)))
        assert not assumed(func)
        found = list(mutants(func))
        mutant, change = found[int(rng.integers(len(found)))]
        if extent > versions:
            assert refutation(mutant), (versions, extent, change)


# -- warps that take turns ------------------------------------------------------------------------------------------------


def turns(extent: int, first: bool = True) -> Any:
    """Two warpgroups of which one goes on while the other waits, by barriers of the hardware."""
    program = Program(256)
    tx = program.tx
    group = tir.floordiv(tx, 128)
    begin = when(tir.And(tx >= 128, tir.const(extent, "int32") > 0), call("arrive_barrier", 2, 256))

    def turn(k: Any) -> list[Any]:
        take = call("sync_barrier", 2 + group, 256)
        again = when(tir.Or(tx < 128, k + 1 < extent), call("arrive_barrier", 3 - group, 256))
        return [take, call("fence_proxy_async_shared"), again]

    return program.function([*([begin] if first else []), loop("k", extent, turn), call("sync_threads")])


@pytest.mark.parametrize("extent", [0, 1, 2, 900])
def test_turns_come_to_an_end(extent: int) -> None:
    assert not assumed(turns(extent))


def test_turns_that_nobody_passes_on() -> None:
    assert "warps wait for each other and never go on" in refutation(turns(3, first=False), lines=1)
    needed = [change.was for mutant, change in mutants(turns(3)) if "barrier" in change.was and refutation(mutant, 1)]
    assert needed == ["tl::arrive_barrier", "tl::sync_barrier", "tl::arrive_barrier"]
