"""Swizzled addresses: what a thread computes once, what is constant; the same places as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.lower_operators import ORIGIN
from tile_compiler.simt.split_addresses import Swizzled, split_addresses
from tilelang.interpreter.lanes import Lanes
from tilelang.interpreter.machine import Machine
from tilelang.ir import tile_ir

THREADS = 64


def accesses(place: Any, extents: dict[Any, int], tx: Any, swizzle: tuple[int, int], scope: str = "unrolled") -> Any:
    """A kernel that stores to a shared buffer at the swizzled `place` in a nest of loops, and its buffer."""
    shift, mask = swizzle
    s = tir.decl_buffer((1 << 16,), "float16", name="s", scope="shared.dyn", layout=None)
    index = place ^ ((place >> shift) & mask)
    body: Any = tir.BufferStore(s, tir.const(1, "float16"), [index])
    kind = tir.ForKind.UNROLLED if scope == "unrolled" else tir.ForKind.SERIAL
    for var, extent in reversed(extents.items()):
        body = tir.For(var, 0, extent, kind, body)
    marked = tir.AttrStmt(ir.StringImm("T.gemm"), ORIGIN, ir.StringImm("T.gemm"), body)
    grid = ((tir.Var("bx", "int32"), tir.const(1, "int32")),)
    threads = ((tx, tir.const(THREADS, "int32")),)
    whole = tile_ir.sequence([tir.AllocBuffer(s), marked])
    return tir.PrimFunc([], tile_ir.Kernel(0, grid, threads, whole, None).to_stmt()), index


def places(func: Any, extents: dict[Any, int], tx: Any) -> list[Any]:
    """The index of the store in every iteration, by thread; Binds are executed."""
    (kernel,) = tile_ir.kernels(func)
    nodes = list(tile_ir.walk(kernel.body))
    (store,) = [n for n in nodes if isinstance(n, tir.BufferStore)]
    found = []
    for point in np.ndindex(*extents.values()):
        lanes = Machine(Lanes("thread", (THREADS,), x_first=True), None, None, print)
        lanes.bind(tx, np.arange(THREADS, dtype=np.int32))
        for var, value in zip(extents, point):
            lanes.bind(var, np.full(1, value, np.int32))
        for bind in (n for n in nodes if isinstance(n, tir.Bind)):
            lanes.bind(bind.var, lanes.value(bind.value))
        found.append(np.broadcast_to(lanes.value(store.indices[0]), THREADS))
    return found


def loops(*names: str) -> list[Any]:
    return [tir.Var(n, "int32") for n in names]


def test_places_stay_the_same_whatever_the_sum() -> None:
    """Random sums of thread and loop terms; some can be taken apart, some cannot."""
    rng = np.random.default_rng(5)
    split = 0
    for _ in range(60):
        tx, i, j, k = loops("tx", "i", "j", "k")
        bits, shift = int(rng.integers(1, 4)), 3
        extents = {i: int(rng.integers(2, 5)), j: int(rng.integers(2, 9)), k: 3}
        steps = [int(2 ** rng.integers(0, 12)) for _ in range(4)]
        terms = [tir.floormod(tx, 16) * steps[0], tir.floordiv(tx, 16) * steps[1], i * steps[2], j * steps[3], k * 4096]
        order = rng.permutation(len(terms))
        place = terms[order[0]]
        for n in order[1:]:
            place = place + terms[n]
        if rng.integers(2):
            place = place + int(rng.integers(0, 1024))
        func, _ = accesses(place, extents, tx, (shift, (2**bits - 1) << 3))
        after = split_addresses(func, SimtContext())
        split += not after.same_as(func) and any(isinstance(n, tir.Bind) for n in tile_ir.walk(after.body))
        for got, want in zip(places(after, extents, tx), places(func, extents, tx)):
            np.testing.assert_array_equal(got, want)
    assert 8 < split < 60


def test_a_constant_that_carries_into_the_threads_bits_stays() -> None:
    """p + 8 is not p ^ 8 where a thread's place has bit 3."""
    tx, j = loops("tx", "j")
    func, index = accesses(tx * 8 + j * 8, {j: 2}, tx, (3, 56))
    after = split_addresses(func, SimtContext())
    (store,) = [n for n in tile_ir.walk(after.body) if isinstance(n, tir.BufferStore)]
    assert store.indices[0].same_as(index)


def test_bits_that_no_thread_has_are_added() -> None:
    """Instructions add constants to an address: only what the swizzle can meet is XOR."""
    for extent, xor in ((4, 0), (16, 48)):
        tx, j = loops("tx", "j")
        func, _ = accesses(tx * 64 + j * 4, {j: extent}, tx, (3, 48))
        after = split_addresses(func, SimtContext())
        (store,) = [n for n in tile_ir.walk(after.body) if isinstance(n, tir.BufferStore)]
        masks = [
            tile_ir.static(n.b.b)
            for n in tile_ir.walk(store)
            if isinstance(n, ir.prim.BitwiseXor) and isinstance(n.b, ir.prim.BitwiseAnd)
        ]
        assert masks == [xor] * bool(xor)
        for got, want in zip(places(after, {j: extent}, tx), places(func, {j: extent}, tx)):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("scope", ["unrolled", "serial"])
def test_multiples_of_the_period_are_added(scope: str) -> None:
    """Also with a loop variable whose range nobody knows."""
    tx, k = loops("tx", "k")
    func, _ = accesses(tir.floormod(k, 3) * 4096 + tx * 8, {k: 7}, tx, (3, 56), scope)
    after = split_addresses(func, SimtContext())
    (store,) = [n for n in tile_ir.walk(after.body) if isinstance(n, tir.BufferStore)]
    assert not any(isinstance(n, ir.prim.BitwiseXor) for n in tile_ir.walk(store))
    for got, want in zip(places(after, {k: 7}, tx), places(func, {k: 7}, tx)):
        np.testing.assert_array_equal(got, want)


def test_a_loop_that_goes_beyond_the_period_is_taken_apart() -> None:
    """The 288 places of a tile of 72 columns were computed before the loop around them, and spilled."""
    for many in (True, False):
        tx, j, g = loops("tx", "j", "g")
        extents = {j: 32, g: 9 if many else 2}
        func, _ = accesses(tir.floormod(tx, 8) + j * 32 + g * 256, extents, tx, (3, 4))
        after = split_addresses(func, SimtContext())
        (store,) = [n for n in tile_ir.walk(after.body) if isinstance(n, tir.BufferStore)]
        assert (tx not in set(tile_ir.walk(store, ir.Var))) == many
        for got, want in zip(places(after, extents, tx), places(func, extents, tx)):
            np.testing.assert_array_equal(got, want)


def test_the_swizzle_is_recognized_in_either_order() -> None:
    (tx,) = loops("tx")
    change = (tx >> 3) & 56
    for index in (ir.prim.BitwiseXor(tx, change), ir.prim.BitwiseXor(change, tx)):
        found = Swizzled.match(index)
        assert found is not None
        assert (found.shift, found.mask, found.period) == (3, 56, 512)
    assert Swizzled.match(ir.prim.BitwiseXor(tx, (tx + 1 >> 3) & 56)) is None


def test_a_gemm_computes_each_operands_place_once(lower: Any) -> None:
    @T.prim_func
    def product(A: T.Tensor((128, 256), "float16"), B: T.Tensor((256, 128), "float16"), C: T.Tensor((128, 128))):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    trace, _ = lower(product)
    final = trace.steps[-1].after
    swizzles = [n for n in tile_ir.walk(final.body) if isinstance(n, tir.Bind) and Swizzled.match(n.value)]
    shared = [
        n.args[0].indices[0]
        for n in tile_ir.walk(final.body)
        if isinstance(n, ir.Call) and str(n.op.name) == "tirx.address_of" and "shared" in str(n.args[0].source.scope())
    ]
    assert len(swizzles) == len(shared)  # of each copy and of each operand, whatever the loops around it
    assert not any(Swizzled.match(i) for i in shared)
