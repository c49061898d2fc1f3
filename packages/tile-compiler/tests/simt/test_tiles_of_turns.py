"""Blocks that stay: what a turn brings before its pipelined loop comes by the producer too, beside the turn before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_texts import lowered
from mutants import mutants, refuted

import tilelang
import tilelang.language as T
from tile_compiler.simt.held_state import Left
from tile_compiler.simt.recall import Recall

TURN = "T.copy: q by TMA from a producer warp, 4096 bytes, once in each iteration of the loop around"
TWO = "T.copy: q by TMA from a producer warp, 40960 bytes in each of 2 versions, once in each iteration of the loop around"
WIDE = 320  # columns of tiles of which a multiprocessor holds one block's, and one more


def sums(tiles: Any, blocks: int, use: str = "", groups: int = 1, width: int = 32) -> Any:
    """C[t] = sum of Q[t] B[k]^T over k <= t, by blocks that take every `blocks`-th t; `groups` times, adding the number."""

    @T.prim_func
    def main(
        Q: T.Tensor((tiles * 64, width), "float16"),
        B: T.Tensor((tiles * 64, width), "float16"),
        C: T.Tensor((tiles * 64, 64), "float32"),
    ):
        with T.Kernel(blocks, threads=128) as block:
            q = T.alloc_shared((64, width), "float16")
            b = T.alloc_shared((64, width), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for group in T.serial(groups):
                for turn in T.serial(T.ceildiv(tiles - block, blocks)):
                    t = turn * blocks + block
                    if use == "left":
                        if t == 1:
                            continue
                    T.copy(Q[t * 64, 0], q)
                    if use == "changed":
                        for i, j in T.Parallel(64, 32):
                            q[i, j] = q[i, j] * T.float16(2)
                    T.clear(c)
                    for k in T.Pipelined(t + 1, num_stages=2):
                        T.copy(B[k * 64, 0], b)
                        T.gemm(q, b, c, transpose_B=True)
                    for i, j in T.Parallel(64, 64):
                        C[t * 64 + i, j] = c[i, j] + group
            if use == "after":
                for i, j in T.Parallel(64, 32):
                    C[i, j] = q[i, j]

    return main


def expected(q: Any, b: Any, groups: int = 1) -> Any:
    tiles = len(q) // 64
    of = lambda x, t: x[t * 64 : t * 64 + 64].astype(np.float64)  # noqa: E731
    return np.concatenate([sum(of(q, t) @ of(b, k).T for k in range(t + 1)) for t in range(tiles)]) + groups - 1


@pytest.mark.parametrize(("groups", "width", "note"), [(1, 32, TURN), (2, 32, TURN), (2, WIDE, TWO)])
def test_a_turn_brings_its_tile_by_the_producer(
    groups: int, width: int, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tilelang.compile(sums(3, 2, groups=groups, width=width), target="cuda -arch=sm_90a", execution="emulate")
    assert note in [n["text"] for n in kernel.report()["notes"]]
    assert not kernel.report()["assumed"]
    rng = np.random.default_rng(0)
    q, b = (rng.standard_normal((192, width)).astype(np.float16) for _ in range(2))
    for mode in ("early", "late"):
        monkeypatch.setenv("TILELANG_EMULATE_MODE", mode)
        c = np.full((192, 64), np.nan, np.float32)
        kernel(q, b, c)
        np.testing.assert_allclose(c, expected(q, b, groups), rtol=1e-3, atol=1e-2)


def test_a_tile_has_a_second_version_only_where_there_is_room() -> None:
    for width, versions in ((64, 1), (WIDE, 2), (512, 1)):  # more blocks fit; one; one, without another tile
        _, ctx = lowered(sums(3, 2, width=width), "sm_90a")
        (note,) = (text for _, text in ctx.report.notes if text.startswith("T.copy: q"))
        assert ("2 versions" in note) == (versions == 2)


@pytest.mark.parametrize("use", ["changed", "after", "left"])
def test_a_tile_that_is_used_otherwise_stays_with_the_block(use: str) -> None:
    _, ctx = lowered(sums(3, 2, use), "sm_90a")
    assert TURN not in [text for _, text in ctx.report.notes]


def checked(tiles: int, width: int = 32) -> tuple[Any, Any]:
    """The function as the checker sees it, one block for all tiles; the context."""
    trace, ctx = lowered(sums(tiles, 1, width=width), "sm_90a")
    return next(s.after for s in trace.steps if s.name == "check_synchronization"), ctx


def test_walks_from_states_that_were_there_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    func, ctx = checked(16)
    repeated: list[Any] = []
    repeat = Recall._repeat

    def counted(self: Recall, walk: Any) -> None:
        repeated.append(walk)
        repeat(self, walk)

    monkeypatch.setattr(Recall, "_repeat", counted)
    assert not refuted(func, ctx)
    assert len(repeated) > 40  # of 16 times some 8, as a loop repeats after 4 iterations


def test_states_between_parts_of_turns_that_were_walked_before_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    func, ctx = checked(16)
    made: list[Any] = []
    repeated: list[Any] = []
    state, repeat = Left.state, Recall._repeat
    monkeypatch.setattr(Left, "state", lambda self: made.append(self) or state(self))
    monkeypatch.setattr(Recall, "_repeat", lambda self, walk: repeated.append(walk) or repeat(self, walk))
    assert not refuted(func, ctx)
    assert len(repeated) > 3 * len(made)


# Of two versions the producer's wait for q is implied: the last b of a turn waits for the end of the turn before.
@pytest.mark.parametrize(("width", "implied"), [(32, 0), (WIDE, 1)])
def test_the_checker_needs_what_a_turn_waits_for(width: int, implied: int) -> None:
    func, ctx = checked(3, width)
    found = [refuted(mutant, ctx) for mutant, change in mutants(func) if "mbarrier" in change.was]
    assert len(found) > 10
    assert found.count(False) == implied


@pytest.mark.full
def test_what_was_walked_before_changes_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    func, ctx = checked(16)
    found = [refuted(mutant, ctx) for mutant, _ in mutants(func)]
    monkeypatch.setattr(Recall, "walk", lambda self, node, go: go())
    assert [refuted(mutant, ctx) for mutant, _ in mutants(func)] == found
    assert sum(found) > 20
