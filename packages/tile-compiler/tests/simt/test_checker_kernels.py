"""The checker on what the compiler makes of kernels for Hopper: proved with nothing assumed, refuted with any fault."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import lowered
from mutants import Change, mutants, refuted
from test_attention import attention
from test_synchronization import product
from tvm import ir

import tilelang.language as T
from tilelang.ir import tile_ir


def one_program(func: Any) -> Any:
    """The program before it is split into roles, which the checker has proved with nothing assumed."""
    trace, ctx = lowered(func, "sm_90a")
    assert not ctx.report.assumed
    return next(s.after for s in trace.steps if s.name == "check_synchronization")


def calls(func: Any) -> set[str]:
    found = [n for n in tile_ir.walk(func.body) if isinstance(n, ir.Call) and str(n.op.name) == "tirx.call_extern"]
    return {str(n.args[0].value).split("<")[0] for n in found}


def redundant(func: Any, step: int = 1) -> list[Change]:
    """Of every `step`-th mutant those that the checker proves."""
    return [change for mutant, change in list(mutants(func))[::step] if not refuted(mutant)]


def test_every_part_of_a_product_is_needed_but_its_last_release() -> None:
    func = one_program(product(128, 128, 448, 2, (128, 128, 64), 256))
    assert {"tl::tma_load", "tl::mbarrier_wait", "tl::wgmma_wait", "tl::mbarrier_arrive_expect_tx"} <= calls(func)
    assert [c.was for c in redundant(func)] == ["tl::mbarrier_arrive"]


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("K", [64, 128, 8192])
def test_products_are_proved(stages: int, K: int) -> None:
    assert "tl::tma_load" in calls(one_program(product(128, 128, K, stages, (128, 128, 64), 128)))


def test_attention_is_proved_and_its_faults_found() -> None:
    func = one_program(attention(256, 256, 64, 128, 64, False, 2))
    assert "tl::tma_load" in calls(func)
    assert {c.was for c in redundant(func, 5)} <= {"tl::mbarrier_arrive", "tl::mbarrier_wait", "tl::wgmma_fence"}


def persistent(blocks: int) -> Any:
    """Tiles of a block, each of a depth of its own."""

    @T.prim_func
    def main(A: T.Tensor((256, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((256, 64), "float32")):
        with T.Kernel(blocks, threads=128) as bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for tile in T.serial(4 // blocks):
                row = tile * blocks + bx
                T.clear(c)
                for k in T.Pipelined(row + 1, num_stages=3):
                    T.copy(A[row * 64, k * 64], a)
                    T.copy(B[k * 64, 0], b)
                    T.gemm(a, b, c)
                T.copy(c, C[row * 64, 0])

    return main


@pytest.mark.parametrize("blocks", [1, 2])
def test_blocks_that_go_on_with_the_next_tile(blocks: int) -> None:
    """With two blocks only the second has a tile deep enough to need every wait for a product in the loop.

    There the wait after the loop stands under a condition that always holds, so that the one before the result is read
    is not needed.
    """
    found = redundant(one_program(persistent(blocks)))
    assert {(c.which, c.was) for c in found} <= {(17, "tl::wgmma_wait<0>")}


def test_of_products_issued_together_one_fence_is_needed_and_every_commit_and_wait() -> None:
    """The first fence comes after all that touched registers. Each product is waited for by itself."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((320, 64), "float16"),
        V: T.Tensor((320, 64), "float16"),
        O: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 64), "float16")
            k = T.alloc_shared((64, 64), "float16")
            v = T.alloc_shared((64, 64), "float16")
            gate = T.alloc_fragment((64, 64), "float32")
            value = T.alloc_fragment((64, 64), "float32")
            out = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, q)
            T.clear(out)
            for step in T.Pipelined(5, num_stages=2):
                T.copy(K[step * 64, 0], k)
                T.copy(V[step * 64, 0], v)
                T.gemm(q, k, gate, transpose_B=True, clear_accum=True)
                T.gemm(q, v, value, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    out[i, j] += T.max(gate[i, j], 0.0) * value[i, j]
            T.copy(out, O)

    spared = [c.was for m, c in mutants(one_program(main)) if c.was.startswith("tl::wgmma") and not refuted(m)]
    assert set(spared) == {"tl::wgmma_fence"}
