"""The states of the checker's walk: how fine they are, and when two are the same to all that follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_texts import lowered
from mutants import mutants, refuted

import tilelang.language as T
from tile_compiler.simt import block_memory
from tile_compiler.simt.checker.engines import Engines
from tile_compiler.simt.checker.granularity import piece
from tile_compiler.simt.checker.knowledge import Agents, Knowledge
from tile_compiler.simt.checker.mbarriers import Mbarrier
from tile_compiler.simt.checker.state_key import state_key
from tilelang.ir import tile_ir

THREADS = 64


def doubled(dtype: str) -> Any:
    """A tile written in vectors of 16 bytes, and read element by element, turned around."""

    @T.prim_func
    def main(A: T.Tensor((512,), dtype), B: T.Tensor((512,), dtype)):
        with T.Kernel(1, threads=THREADS):
            tile = T.alloc_shared((512,), dtype)
            T.copy(A, tile)
            for i in T.Parallel(512):
                B[i] = tile[511 - i] + tile[511 - i]

    return main


def whole(dtype: str) -> Any:
    """As `doubled`, read in the order in which it was written."""

    @T.prim_func
    def main(A: T.Tensor((512,), dtype), B: T.Tensor((512,), dtype)):
        with T.Kernel(1, threads=THREADS):
            tile = T.alloc_shared((512,), dtype)
            T.copy(A, tile)
            T.sync_threads()
            T.copy(tile, B)

    return main


def checked(func: Any) -> tuple[Any, Any]:
    trace, ctx = lowered(func)
    return next(s.after for s in trace.steps if s.name == "check_synchronization"), ctx


@pytest.mark.parametrize(("func", "size"), [(doubled("float16"), 2), (doubled("float32"), 4), (whole("float16"), 16)])
def test_places_are_as_large_as_all_accesses(func: Any, size: int) -> None:
    (kernel,) = tile_ir.kernels(checked(func)[0])
    shared = {n.buffer for n in tile_ir.walk(kernel.body) if type(n).__name__ == "AllocBuffer"}
    tiles = {b for b in shared if str(b.scope()) in tile_ir.SHARED}
    assert piece(kernel.body, tiles) == size


def test_an_access_of_less_than_a_place_makes_them_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    func, ctx = checked(doubled("float16"))
    monkeypatch.setattr(block_memory, "piece", lambda body, shared: 16)
    assert not refuted(func, ctx)  # neighbours' elements are not the same place
    assert [refuted(mutant, ctx) for mutant, _ in mutants(func)] == [True]


def engines() -> Engines:
    agents = Agents(np.arange(THREADS), THREADS, 1)
    made = Engines(4, agents, [Mbarrier.fresh("b", 1, 0, Knowledge.none(agents))])
    made.record("read", np.arange(4), np.zeros(4, int), 1, 0)
    made.knowledge.join(np.ones(THREADS, bool), 2)
    return made


def after(kind: str, place: int, time: int, joined: int, threads: int) -> int:
    """The key of the state after an access by thread 0 that the first `threads` know of, as they met later."""
    state = engines()
    state.record(kind, np.asarray([place]), np.asarray([0]), time, 0)
    state.knowledge.join(np.arange(THREADS) < threads, joined)
    return state_key(state)


def test_what_all_know_of_is_forgotten_but_for_writes() -> None:
    assert after("read", 0, 3, 4, THREADS) == after("read", 1, 5, 9, THREADS)
    assert after("write", 0, 3, 4, THREADS) != after("write", 1, 3, 4, THREADS)


def test_times_count_by_their_order_among_what_is_known() -> None:
    assert after("read", 0, 3, 4, 32) == after("read", 0, 7, 20, 32)
    assert after("read", 0, 3, 4, 32) != after("read", 1, 3, 4, 32)
    assert after("read", 0, 3, 4, 32) != after("read", 0, 3, 4, 33)
    assert after("read", 0, 5, 4, 32) != after("read", 0, 3, 4, 32)
