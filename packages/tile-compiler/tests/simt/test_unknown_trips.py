"""Loops whose trip counts memory decides: the checker walks them until their states repeat."""

from __future__ import annotations

from typing import Any

import pytest
from device_texts import lowered
from mutants import mutants, refuted

import tilelang.language as T
from tile_compiler.simt.enumeration import Block
from tile_compiler.simt.loop_walks import LONGEST


@T.prim_func
def products(
    Count: T.Tensor((1,), "int32"),
    A: T.Tensor((64 * 64, 32), "float16"),
    B: T.Tensor((64 * 64, 32), "float16"),
    C: T.Tensor((64, 64), "float32"),
):
    with T.Kernel(1, threads=128):
        a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((64, 32), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.clear(c)
        for k in T.Pipelined(Count[0], num_stages=2):
            T.copy(A[k * 64, 0], a)
            T.copy(B[k * 64, 0], b)
            T.gemm(a, b, c, transpose_B=True)
        T.copy(c, C)


def kept(size: int) -> Any:
    """Element k of a tile is kept in iteration k."""

    @T.prim_func
    def main(Count: T.Tensor((1,), "int32"), A: T.Tensor((64,), "float32"), C: T.Tensor((size,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((size,), "float32")
            for k in T.serial(Count[0]):
                tile[k] = A[k % 64]
            T.copy(tile, C)

    return main


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The iterations that the checker walks."""
    found: list[Any] = []
    whole = Block._iteration

    def iteration(self: Block, node: Any, value: Any) -> None:
        found.append((node.loop_var.name, int(value[0])))
        whole(self, node, value)

    monkeypatch.setattr(Block, "_iteration", iteration)
    return found


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_products_of_unknown_number_are_walked_until_they_repeat(walked: list[Any], target: str) -> None:
    lowered(products, target)
    numbers = [number for name, number in walked if name == "k"]
    assert 4 <= len(numbers) < 20
    assert (63 in numbers) == (target == "sm_80")  # where tiles begin to lie behind A, which TMA does not have to ask


def test_the_checker_needs_what_such_a_loop_waits_for() -> None:
    trace, ctx = lowered(products, "sm_90a")
    func = next(s.after for s in trace.steps if s.name == "check_synchronization")
    inside = [(m, c) for m, c in mutants(func) if "mbarrier_wait" in c.was]
    assert len(inside) >= 4
    assert all(refuted(mutant, ctx) for mutant, _ in inside)


def test_a_loop_that_does_not_repeat_is_said_to_go_on_as_it_began() -> None:
    said = f"a loop does as in its first {LONGEST} iterations"
    assert not any(said in text for text in lowered(kept(64), "sm_90a")[1].report.assumed)
    assert any(said in text for text in lowered(kept(2048), "sm_90a")[1].report.assumed)
