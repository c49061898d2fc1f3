"""Kernels whose tiles a producer warp brings, in the emulator: trip counts, versions, conditions, repeated loops.

The emulator reports what the protocol could get wrong: a use before its copy has landed, a slot refilled while it is
read, a wait that never ends.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T

TARGET = "cuda -arch=sm_90a"


def emulated(function: Any, **options: Any) -> Any:
    return tilelang.compile(function, target=TARGET, execution="emulate", **options)


def random(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float32).to(dtype)


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 2e-3) -> None:
    error = (found.double() - expected).abs().max() / expected.abs().max().clamp(min=1)
    assert error < tolerance, f"relative error {error}"


def gemm(m: int, n: int, k: int, stages: int, threads: int = 256, block: tuple[int, int, int] = (128, 128, 64)) -> Any:
    bm, bn, bk = block

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (bx, by):
            A_s = T.alloc_shared((bm, bk), "float16")
            B_s = T.alloc_shared((bk, bn), "float16")
            acc = T.alloc_fragment((bm, bn), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                T.copy(A[by * bm, ko * bk], A_s)
                T.copy(B[ko * bk, bx * bn], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C[by * bm, bx * bn])

    return main


@pytest.mark.parametrize(("stages", "k"), [(1, 136), (2, 64), (3, 136), (4, 320)])
def test_gemm_of_any_depth(stages: int, k: int) -> None:
    a, b, c = random(200, k), random(k, 136), torch.zeros(200, 136)
    kernel = emulated(gemm(200, 136, k, stages))
    kernel(a, b, c)
    close(c, a.double() @ b.double())
    assert "tl::mbarrier_wait" in kernel.get_kernel_source()


@pytest.mark.parametrize("threads", [128, 256, 384])
def test_blocks_of_one_to_three_warpgroups(threads: int) -> None:
    rows = threads // 2
    a, b, c = random(rows, 200), random(200, 64), torch.zeros(rows, 64)
    emulated(gemm(rows, 64, 200, 2, threads, (rows, 64, 64)))(a, b, c)
    close(c, a.double() @ b.double())


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_dynamic_trip_count(trips: int) -> None:
    k = T.dynamic("k")

    @T.prim_func
    def main(A: T.Tensor((64, k), "float16"), B: T.Tensor((k, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            A_s = T.alloc_shared((64, 64), "float16")
            B_s = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(k, 64), num_stages=3):
                T.copy(A[0, ko * 64], A_s)
                T.copy(B[ko * 64, 0], B_s)
                T.gemm(A_s, B_s, acc)
            T.copy(acc, C)

    a, b, c = random(64, 64 * trips), random(64 * trips, 64), torch.ones(64, 64)
    emulated(main)(a, b, c)
    close(c, a.double() @ b.double())


def test_copies_under_a_condition() -> None:
    """Uses without bytes keep both sides' counts equal."""

    @T.prim_func
    def main(A: T.Tensor((64, 512), "float16"), B: T.Tensor((512, 64), "float16"), C: T.Tensor((2, 64, 64), "float32")):
        with T.Kernel(2, threads=128) as bx:
            A_s = T.alloc_shared((64, 64), "float16")
            B_s = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for ko in T.Pipelined(8, num_stages=2):
                if ko % 3 != bx:
                    T.copy(A[0, ko * 64], A_s)
                    T.copy(B[ko * 64, 0], B_s)
                    T.gemm(A_s, B_s, acc)
            T.copy(acc, C[bx, :, :])

    a, b, c = random(64, 512), random(512, 64), torch.zeros(2, 64, 64)
    kernel = emulated(main)
    assert "mbarrier_arrive(" in kernel.get_kernel_source()
    kernel(a, b, c)
    for block in range(2):
        keep = [k for k in range(512) if k // 64 % 3 != block]
        close(c[block], a[:, keep].double() @ b[keep].double())


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_loop_that_is_repeated(blocks: int) -> None:
    """Uses are counted over all tiles of a block, each of which has a depth of its own."""

    @T.prim_func
    def main(A: T.Tensor((256, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((256, 64), "float32")):
        with T.Kernel(blocks, threads=128) as bx:
            A_s = T.alloc_shared((64, 64), "float16")
            B_s = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            for tile in T.serial(4 // blocks):
                row = tile * blocks + bx
                T.clear(acc)
                for ko in T.Pipelined(row + 1, num_stages=3):
                    T.copy(A[row * 64, ko * 64], A_s)
                    T.copy(B[ko * 64, 0], B_s)
                    T.gemm(A_s, B_s, acc)
                T.copy(acc, C[row * 64, 0])

    a, b, c = random(256, 256), random(256, 64), torch.zeros(256, 64)
    kernel = emulated(main)
    assert "mbarrier_wait" in kernel.get_kernel_source()
    kernel(a, b, c)
    expected = torch.cat([a[r : r + 64, : r + 64].double() @ b[: r + 64].double() for r in range(0, 256, 64)])
    close(c, expected)


@pytest.mark.parametrize(("stages", "causal"), [(1, False), (2, True), (3, False)])
def test_attention(stages: int, causal: bool) -> None:
    """Two products of which one needs the other's result; the tile of queries is brought once."""
    tokens, dim, rows, keys = 256, 64, 128, 64

    @T.prim_func
    def main(
        Q: T.Tensor((tokens, dim), "float16"),
        K: T.Tensor((tokens, dim), "float16"),
        V: T.Tensor((tokens, dim), "float16"),
        O: T.Tensor((tokens, dim), "float32"),
    ):
        with T.Kernel(tokens // rows, threads=256) as bx:
            Q_s = T.alloc_shared((rows, dim), "float16")
            K_s = T.alloc_shared((keys, dim), "float16")
            V_s = T.alloc_shared((keys, dim), "float16")
            scores = T.alloc_fragment((rows, keys), "float32")
            weights = T.alloc_fragment((rows, keys), "float16")
            out = T.alloc_fragment((rows, dim), "float32")
            largest = T.alloc_fragment((rows,), "float32")
            before = T.alloc_fragment((rows,), "float32")
            part = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(Q[bx * rows, 0], Q_s)
            T.clear(out)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))
            steps = (bx + 1) * rows // keys if causal else tokens // keys
            for k in T.Pipelined(steps, num_stages=stages):
                T.copy(K[k * keys, 0], K_s)
                T.clear(scores)
                T.gemm(Q_s, K_s, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                if causal:
                    for i, j in T.Parallel(rows, keys):
                        keep = bx * rows + i >= k * keys + j
                        scores[i, j] = T.if_then_else(keep, scores[i, j], -T.infinity("float32"))
                T.copy(largest, before)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i, j in T.Parallel(rows, keys):
                    scores[i, j] = T.exp2(scores[i, j] - largest[i])
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * T.exp2(before[i] - largest[i]) + part[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(rows, dim):
                    out[i, j] *= T.exp2(before[i] - largest[i])
                T.copy(V[k * keys, 0], V_s)
                T.gemm(weights, V_s, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(rows, dim):
                out[i, j] /= total[i]
            T.copy(out, O[bx * rows, 0])

    q, k, v, o = random(tokens, dim) / 4, random(tokens, dim), random(tokens, dim), torch.zeros(tokens, dim)
    kernel = emulated(main)
    assert "tl::arrive_barrier" in kernel.get_kernel_source()  # the warpgroups take turns
    kernel(q, k, v, o)
    weights = q.double() @ k.double().T
    if causal:
        weights = weights.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), -torch.inf)
    close(o, torch.softmax(weights * torch.log(torch.tensor(2.0, dtype=torch.float64)), 1) @ v.double())


def test_two_products_with_a_gate() -> None:
    """A kernel that nobody has a rule for: C = (A @ B) * sigmoid(A @ G)."""

    @T.prim_func
    def main(
        A: T.Tensor((128, 200), "float16"),
        B: T.Tensor((200, 64), "float16"),
        G: T.Tensor((200, 64), "float16"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=256):
            A_s = T.alloc_shared((128, 64), "float16")
            B_s = T.alloc_shared((64, 64), "float16")
            G_s = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((128, 64), "float32")
            gate = T.alloc_fragment((128, 64), "float32")
            T.clear(acc)
            T.clear(gate)
            for k in T.Pipelined(T.ceildiv(200, 64), num_stages=2):
                T.copy(A[0, k * 64], A_s)
                T.copy(B[k * 64, 0], B_s)
                T.gemm(A_s, B_s, acc)
                T.copy(G[k * 64, 0], G_s)
                T.gemm(A_s, G_s, gate)
            for i, j in T.Parallel(128, 64):
                acc[i, j] = acc[i, j] * T.sigmoid(gate[i, j])
            T.copy(acc, C)

    a, b, g, c = random(128, 200), random(200, 64), random(200, 64), torch.zeros(128, 64)
    emulated(main)(a, b, g, c)
    close(c, (a.double() @ b.double()) * torch.sigmoid(a.double() @ g.double()))


def test_a_tile_that_both_products_read() -> None:
    """The keys are the values: an iteration's tile is let go of by the second product."""

    @T.prim_func
    def main(Q: T.Tensor((64, 64), "float16"), K: T.Tensor((320, 64), "float16"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            Q_s = T.alloc_shared((64, 64), "float16")
            K_s = T.alloc_shared((64, 64), "float16")
            scores = T.alloc_fragment((64, 64), "float32")
            weights = T.alloc_fragment((64, 64), "float16")
            out = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, Q_s)
            T.clear(out)
            for k in T.Pipelined(5, num_stages=2):
                T.copy(K[k * 64, 0], K_s)
                T.gemm(Q_s, K_s, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    weights[i, j] = T.max(scores[i, j], 0.0)
                T.gemm(weights, K_s, out)
            T.copy(out, O)

    q, k, o = random(64, 64) / 8, random(320, 64), torch.zeros(64, 64)
    emulated(main)(q, k, o)
    weights = (q.double() @ k.double().T).clamp(min=0)
    close(o, weights @ k.double())


@pytest.mark.parametrize("option", ["tl.disable_warp_specialized", "tl.disable_tma_lower"])
def test_switched_off(option: str) -> None:
    kernel = emulated(gemm(64, 64, 128, 2, 128, (64, 64, 64)), pass_configs={option: True})
    assert "mbarrier" not in kernel.get_kernel_source()
    a, b, c = random(64, 128), random(128, 64), torch.zeros(64, 64)
    kernel(a, b, c)
    close(c, a.double() @ b.double())
