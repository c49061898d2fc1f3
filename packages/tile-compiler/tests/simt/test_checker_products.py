"""The checker on products of warpgroups, bulk stores and the fences of the proxies: programs by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from mutants import mutants
from thread_programs import Program, at, call, load, loop, producer, store, when
from tvm import tirx as tir

from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.checker.descriptors import Product, offsets, swizzled
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import BarrierMismatch, ProductUnderWay, SharedMemoryRace
from tilelang.layout import make_wgmma_swizzled_layout

ERRORS = (BarrierMismatch, ProductUnderWay, SharedMemoryRace)
ROWS, DEPTH = 64, 64  # of a tile of float16
TILE = ROWS * DEPTH


def assumed(func: Any) -> list[str]:
    ctx = SimtContext()
    check_synchronization(func, ctx)
    return ctx.report.assumed


def refutation(func: Any) -> str:
    """What the checker says; it must name two lines of the program and a repair."""
    with pytest.raises(ERRORS) as caught:
        check_synchronization(func, SimtContext())
    text = str(caught.value)
    found = re.search(r"found: .*", text)
    assert found is not None
    assert found[0].count("program.py:") >= 2 or "nothing" in found[0] or "beginning" in found[0], text
    assert "try: " in text
    return text


def every_part_is_needed(func: Any, but: Sequence[str] = ()) -> int:
    """Every mutant is refuted; how many there are."""
    count = 0
    for mutant, change in mutants(func):
        if change.was not in but:
            assert refutation(mutant), change
            count += 1
    return count


class Products(Program):
    """One warpgroup multiplies tiles of `versions` slots, each of `a` and `b`, into `acc`."""

    def __init__(self, versions: int = 1, threads: int = 128) -> None:
        super().__init__(threads)
        self.versions = versions
        self.source, self.out = self.tensor(1 << 20, "A"), self.tensor(1 << 20, "C", "float32")
        self.a, self.b = self.shared(versions * TILE, "a"), self.shared(versions * TILE, "b")
        self.acc = self.private(32, "acc")

    def slot(self, number: Any) -> Any:
        return tir.floormod(number, self.versions)

    def fill(self, number: Any) -> list[Any]:
        """Ordinary stores of both tiles, by all threads."""
        place = self.slot(number) * TILE + self.tx * 8
        value = load(self.source, number * TILE + self.tx)
        return [
            tir.BufferStore(tile, tir.Broadcast(value, 8), [tir.Ramp(place + turn * 1024, 1, 8)])
            for tile in (self.a, self.b)
            for turn in range(TILE // 1024)
        ]

    def multiply(self, number: Any) -> list[Any]:
        def matrix(tile: Any, step: int) -> Any:
            start = at(tile, self.slot(number) * TILE)
            return tir.call_extern("uint64", "tl::wgmma_descriptor<128>", start, 16, 1024, 32 * step)

        name = "wgmma_m64k16_f32_f16<64, tl::k_major, tl::k_major>"
        steps = [call(name, at(self.acc, 0), matrix(self.a, k), matrix(self.b, k), True) for k in range(DEPTH // 16)]
        return [call("wgmma_hold<32>", at(self.acc, 0)), call("wgmma_fence"), *steps, call("wgmma_commit")]

    def result(self) -> Any:
        return store(self.out, self.tx, load(self.acc, 0))


FENCE = call("fence_proxy_async_shared")
SYNC = call("sync_threads")


def straight() -> Any:
    program = Products()
    parts = [*program.fill(0), FENCE, SYNC, *program.multiply(0), call("wgmma_wait<0>"), program.result()]
    return program.function(parts)


def test_a_product_of_stored_tiles() -> None:
    assert not assumed(straight())
    assert every_part_is_needed(straight()) == 6


def test_what_is_missing_is_named() -> None:
    said = {change.was: refutation(mutant) for mutant, change in mutants(straight()) if not change.now}
    assert "ordinary stores, which asynchronous reads need not see" in said["tl::fence_proxy_async_shared"]
    assert "T.fence_proxy_async() after the stores" in said["tl::fence_proxy_async_shared"]
    assert "a race on a[0]" in said["tl::sync_threads"]
    assert "a product may miss what was done to acc" in said["tl::wgmma_fence"]
    for name in ("tl::wgmma_commit", "tl::wgmma_wait<0>"):
        assert "acc is in use by a product that may still be under way" in said[name]


def test_the_fence_comes_after_the_stores_and_before_the_barrier() -> None:
    program = Products()
    head, tail = program.fill(0), [*program.multiply(0), call("wgmma_wait<0>"), program.result()]
    assert not assumed(program.function([*head, SYNC, FENCE, SYNC, *tail]))
    assert not assumed(program.function([*head, SYNC, FENCE, *tail]))  # each reader's own fence does it too
    assert "need not see" in refutation(program.function([FENCE, *head, SYNC, *tail]))
    some = when(program.tx < 64, FENCE)
    assert "need not see" in refutation(program.function([*head, some, SYNC, *tail]))


@pytest.mark.parametrize("versions", [1, 2, 3])
@pytest.mark.parametrize("extent", [0, 1, 2, 300])
def test_a_product_stays_under_way_into_the_next_iteration(versions: int, extent: int) -> None:
    """The wait leaves the newest product under way, where there is another slot for the next tiles."""

    def made(pending: int) -> Any:
        program = Products(versions)
        wait = call(f"wgmma_wait<{pending}>")
        turn = lambda k: [wait, SYNC, *program.fill(k), FENCE, SYNC, *program.multiply(k)]  # noqa: E731
        return program.function([loop("k", extent, turn), call("wgmma_wait<0>"), program.result()])

    assert not assumed(made(versions - 1))
    if extent == 300:
        assert "while a product may still read it" in refutation(made(versions))


@pytest.mark.parametrize("waits", [True, False])
def test_a_warp_waits_for_the_product_of_all_warps(waits: bool) -> None:
    """Groups of products are the warpgroup's (PTX ISA, wgmma.commit_group): no barrier is needed after the wait."""
    program = Products()
    wait = [call("wgmma_wait<0>")] if waits else []
    turn = lambda k: [*wait, *program.fill(k), FENCE, SYNC, *program.multiply(k)]  # noqa: E731
    func = program.function([loop("k", 5, turn), call("wgmma_wait<0>"), program.result()])
    if waits:
        assert not assumed(func)
    else:
        assert "while a product may still read it" in refutation(func)


def test_registers_between_products() -> None:
    """A result that is scaled between two products: waited for before, fenced after."""

    def made(wait: bool, fence: bool) -> Any:
        program = Products()
        scaled = loop("i", 32, lambda i: [store(program.acc, i, load(program.acc, i) * tir.const(2.0, "float32"))])
        again = [s for s in program.multiply(0) if fence or "wgmma_fence" not in str(s)]
        parts = [
            *program.fill(0),
            FENCE,
            SYNC,
            *program.multiply(0),
            *([call("wgmma_wait<0>")] if wait else []),
            scaled,
        ]
        return program.function([*parts, *again, call("wgmma_wait<0>"), program.result()])

    assert not assumed(made(True, True))
    assert "acc is in use by a product" in refutation(made(False, True))
    assert "a product may miss what was done to acc" in refutation(made(True, False))


def test_an_operand_in_registers_is_left_alone() -> None:
    def made(wait: bool) -> Any:
        program = Products()
        held = program.private(8, "p", "uint32")
        b = tir.call_extern("uint64", "tl::wgmma_descriptor<128>", at(program.b, 0), 16, 1024, 0)
        product = call("wgmma_m64k16_f32_f16_rs<64, tl::k_major>", at(program.acc, 0), at(held, 0), b, True)
        fill = store(held, 0, tir.const(1, "uint32"))
        parts = [*program.fill(0), FENCE, SYNC, fill, call("wgmma_fence"), product, call("wgmma_commit")]
        parts += [call("wgmma_wait<0>")] if wait else []
        return program.function([*parts, fill, call("wgmma_wait<0>"), program.result()])

    assert not assumed(made(True))
    assert "p is in use by a product" in refutation(made(False))


def test_the_kernel_may_not_end_before_its_products() -> None:
    program = Products()
    assert "the block ends while a product is under way" in refutation(
        program.function([*program.fill(0), FENCE, SYNC, *program.multiply(0)])
    )


# -- with a producer ------------------------------------------------------------------------------------------------------


class Pipeline(Products):
    """A producer brings both tiles; the wait of an iteration is for the product of the one before."""

    def __init__(self, versions: int, threads: int = 128) -> None:
        super().__init__(versions, threads)
        self.full = self.mbarrier([1] * versions, "full")
        self.empty = self.mbarrier([threads // 32] * versions, "empty")
        self.map = self.tensor_map(self.source, (64, 64))

    def bring(self, k: Any) -> Any:
        slot = self.slot(k)
        parity = tir.floormod(tir.floordiv(k, self.versions), 2)
        full = at(self.full, slot)
        return producer(
            call("mbarrier_wait", at(self.empty, slot), tir.bitwise_xor(parity, 1)),
            call("mbarrier_arrive_expect_tx", full, 4 * TILE),
            call("tma_load", at(self.a, slot * TILE), self.map, full, k * 64, 0),
            call("tma_load", at(self.b, slot * TILE), self.map, full, k * 64, 64),
        )

    def wait(self, k: Any) -> Any:
        return call("mbarrier_wait", at(self.full, self.slot(k)), tir.floormod(tir.floordiv(k, self.versions), 2))

    def release(self, k: Any) -> list[Any]:
        arrive = call("mbarrier_arrive", at(self.empty, self.slot(k)))
        return [call("sync_warp"), when(tir.floormod(self.tx, 32) == 0, arrive)]

    def late(self, extent: int, pending: int = 1) -> Any:
        """Tiles are let go of one iteration later."""

        def turn(k: Any) -> list[Any]:
            before = when(k > 0, call(f"wgmma_wait<{pending}>"), *self.release(k - 1))
            return [self.bring(k), self.wait(k), *self.multiply(k), before]

        rest = when(tir.const(extent, "int32") > 0, call("wgmma_wait<0>"), *self.release(extent - 1))
        return self.function([*self.setup(), loop("k", extent, turn), rest, self.result()])


@pytest.mark.parametrize("versions", [2, 3, 4])
@pytest.mark.parametrize("extent", [1, 2, 3, 1000])
def test_a_pipeline_of_products_is_proved(versions: int, extent: int) -> None:
    assert not assumed(Pipeline(versions).late(extent))


@pytest.mark.parametrize("threads", [128, 256])
def test_every_part_of_a_pipeline_is_needed(threads: int) -> None:
    func = Pipeline(2, threads).late(7)
    found = [(mutant, change) for mutant, change in mutants(func)]
    last = max(n for n, (_, c) in enumerate(found) if c.was == "tl::mbarrier_arrive" and not c.now)
    for number, (mutant, change) in enumerate(found):
        if number == last:  # nothing follows the last release
            check_synchronization(mutant, SimtContext())
        else:
            assert refutation(mutant), change


def test_a_stage_released_while_its_product_is_under_way() -> None:
    text = refutation(Pipeline(2).late(7, pending=2))
    assert "is copied to while it may still be in use" in text
    assert "wait for the product" in text


def test_one_slot_cannot_wait_for_the_iteration_after() -> None:
    assert "the wait for empty[0] never ends" in refutation(Pipeline(1).late(7))


# -- bulk stores ----------------------------------------------------------------------------------------------------------


class Stored(Program):
    """Tiles are written by all threads and stored by one."""

    def __init__(self) -> None:
        super().__init__(128)
        self.tile = self.shared(TILE)
        self.map = self.tensor_map(self.tensor(1 << 20, "C"), (64, 64))

    def turn(self, k: Any, wait: str = "bulk_wait_read<0>") -> list[Any]:
        place = self.tx * 32
        values = [tir.BufferStore(self.tile, tir.Broadcast(tir.const(1.0, "float16"), 32), [tir.Ramp(place, 1, 32)])]
        issue = [call("tma_store", self.map, at(self.tile, 0), k * 64, 0), call("bulk_commit"), call(wait)]
        return [*values, FENCE, SYNC, when(self.tx == 0, *issue), SYNC]


@pytest.mark.parametrize("extent", [1, 2, 500])
def test_bulk_stores_are_proved(extent: int) -> None:
    program = Stored()
    func = program.function([loop("k", extent, program.turn)])
    assert not assumed(func)


def test_every_part_of_a_bulk_store_is_needed() -> None:
    program = Stored()
    func = program.function([loop("k", 4, program.turn)])
    assert every_part_is_needed(func) == 6
    said = {change.was: refutation(mutant) for mutant, change in mutants(func) if not change.now}
    assert "while a bulk store may still read it" in said["tl::bulk_commit"]
    assert "T.tma_store_wait() by that thread" in said["tl::bulk_wait_read<0>"]


def test_a_store_must_be_read_before_the_block_ends() -> None:
    program = Stored()
    parts = program.turn(0)
    func = program.function(
        [*parts[:3], when(program.tx == 0, call("tma_store", program.map, at(program.tile, 0), 0, 0))]
    )
    assert "the block ends while a bulk store is under way" in refutation(func)


def test_a_tensor_that_is_stored_in_bulk_and_read_is_assumed_to_be_apart() -> None:
    program = Stored()
    tensor, other = program.params[0], program.tensor(128, "D")
    read = store(other, program.tx, load(tensor, program.tx))
    ahead = tir.Evaluate(tir.call_extern("int32", "tl::prefetch_tensor_map", program.map))
    assert not assumed(program.function([ahead, *program.turn(0), store(other, program.tx, load(other, program.tx))]))
    (text,) = assumed(program.function([*program.turn(0), read]))
    assert "what bulk stores write of C is not what the block reads or writes otherwise" in text


# -- descriptors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [16, 32, 64, 128])
@pytest.mark.parametrize("rows", [64, 128])
def test_bytes_of_a_descriptor_are_those_of_the_layout(rows: int, columns: int) -> None:
    """K-major and MN-major: what the hardware's rule says is where the layout puts the elements."""
    layout = make_wgmma_swizzled_layout((rows, columns), "float16")
    places = 2 * np.asarray(layout.offsets, np.int64).reshape(rows, columns)
    swizzle = min(128, columns * 2)
    panel = swizzle // 2
    for k in range(0, columns, 16):
        start = k // panel * panel * rows * 2 + k % panel * 2
        got = swizzled(start + offsets(64, 16, True, swizzle, 16, 8 * swizzle), swizzle)
        want = places[:64, k : k + 16].ravel()
        assert set(got) == {int(p) + b for p in want for b in (0, 1)}
    for k in range(0, rows, 16):
        got = swizzled(k * swizzle + offsets(columns, 16, False, swizzle, swizzle * rows, 8 * swizzle), swizzle)
        assert set(got) == {int(p) + b for p in places[k : k + 16].ravel() for b in (0, 1)}


def test_names_of_products() -> None:
    assert Product.of("tl::wgmma_m64k16_f32_f16<128>") == Product(128, 16, False, (True, True))
    turned = "tl::wgmma_m64k16_f32_bf16_rs<64, tl::mn_major>"
    assert Product.of(turned) == Product(64, 16, True, (True, False))
    assert Product.of("tl::wgmma_m64k32_s32_s8_u8<256>") == Product(256, 32, False, (True, True))
    both = "tl::wgmma_m64k16_f16_f16<8, tl::mn_major, tl::k_major>"
    assert Product.of(both) == Product(8, 16, False, (False, True))
