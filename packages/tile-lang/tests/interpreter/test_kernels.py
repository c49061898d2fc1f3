"""Whole kernels, and the tools around a run: hook, blocks."""

import numpy as np

import tilelang.language as T
from tilelang.interpreter import run
from tilelang.interpreter.machine import Machine

RNG = np.random.default_rng(1)


def gemm_kernel(m, n, k, bm, bn, bk):
    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128) as (bx, by):
            a = T.alloc_shared((bm, bk), "float16")
            b = T.alloc_shared((bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=2):
                T.copy(A[by * bm, ko * bk], a)
                T.copy(B[ko * bk, bx * bn], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(bm, bn):
                c[i, j] = T.max(c[i, j], 0)
            T.copy(c, C[by * bm, bx * bn])

    return main


def test_gemm_with_tails():
    a, b = RNG.standard_normal((70, 45)).astype(np.float16), RNG.standard_normal((45, 33)).astype(np.float16)
    c = np.full((70, 33), np.nan, np.float16)
    run(gemm_kernel(70, 33, 45, 32, 16, 16), [a, b, c])
    np.testing.assert_allclose(c, np.maximum(a.astype(np.float64) @ b, 0), rtol=2e-3, atol=2e-3)


def test_blocks_restrict_and_hook_sees_live_buffers():
    a, b = np.ones((32, 16), np.float16), np.ones((16, 32), np.float16)
    c = np.zeros((32, 32), np.float16)
    seen = []

    def hook(operator, block, buffers):
        name = getattr(operator, "NAME", "parallel")
        seen.append((name, block))
        if name == "parallel":
            buffers["c"][0, 0] = -5  # what a debugger may do: the tile itself, not a copy
            buffers["c"][0, 1] = 7

    run(gemm_kernel(32, 32, 16, 16, 16, 16), [a, b, c], hook=hook, blocks=[(1, 0)])
    assert [name for name, _ in seen] == ["tl.fill", "tl.copy", "tl.copy", "tl.gemm", "parallel", "tl.copy"]
    assert {block for _, block in seen} == {(1, 0)}
    expected = np.zeros((32, 32))
    expected[:16, 16:] = 16
    expected[0, 16:18] = [0, 7]
    np.testing.assert_array_equal(c, expected)


def test_online_softmax_attention():
    length, dim, bm, bn = 48, 16, 16, 16
    scale = 1.0 / dim**0.5 * 1.44269504

    @T.prim_func
    def main(
        Q: T.Tensor((length, dim), "float16"),
        K: T.Tensor((length, dim), "float16"),
        V: T.Tensor((length, dim), "float16"),
        O: T.Tensor((length, dim), "float16"),
    ):
        with T.Kernel(T.ceildiv(length, bm), threads=64) as bx:
            q = T.alloc_shared((bm, dim), "float16")
            k = T.alloc_shared((bn, dim), "float16")
            v = T.alloc_shared((bn, dim), "float16")
            s = T.alloc_fragment((bm, bn), "float32")
            p = T.alloc_fragment((bm, bn), "float16")
            o = T.alloc_fragment((bm, dim), "float32")
            m_prev = T.alloc_fragment((bm,), "float32")
            m = T.alloc_fragment((bm,), "float32")
            row = T.alloc_fragment((bm,), "float32")
            total = T.alloc_fragment((bm,), "float32")
            T.copy(Q[bx * bm, 0], q)
            T.clear(o)
            T.clear(total)
            T.fill(m, -T.infinity("float32"))
            for step in T.Pipelined(bx + 1, num_stages=2):
                T.copy(K[step * bn, 0], k)
                for i, j in T.Parallel(bm, bn):
                    s[i, j] = T.if_then_else(bx * bm + i >= step * bn + j, 0, -T.infinity("float32"))
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(m, m_prev)
                T.reduce_max(s, m, dim=1, clear=False)
                for i, j in T.Parallel(bm, bn):
                    s[i, j] = T.exp2(s[i, j] * scale - m[i] * scale)
                T.reduce_sum(s, row, dim=1)
                for i in T.Parallel(bm):
                    total[i] = total[i] * T.exp2((m_prev[i] - m[i]) * scale) + row[i]
                for i, j in T.Parallel(bm, dim):
                    o[i, j] *= T.exp2((m_prev[i] - m[i]) * scale)
                T.copy(s, p)
                T.copy(V[step * bn, 0], v)
                T.gemm(p, v, o)
            for i, j in T.Parallel(bm, dim):
                o[i, j] /= total[i]
            T.copy(o, O[bx * bm, 0])

    q, k, v = (RNG.standard_normal((length, dim)).astype(np.float16) for _ in range(3))
    out = np.zeros((length, dim), np.float16)
    run(main, [q, k, v, out])
    scores = q.astype(np.float64) @ k.T / dim**0.5
    scores[np.triu_indices(length, 1)] = -np.inf
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    np.testing.assert_allclose(out, weights @ v, rtol=5e-3, atol=5e-3)


def test_thread_level_gemv_with_shared_reduction():
    n, k, threads = 6, 64, 8

    @T.prim_func
    def main(A: T.Tensor((n, k), "float32"), X: T.Tensor((k,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(n, threads=threads) as row:
            tx = T.get_thread_binding()
            partial = T.alloc_shared((threads,), "float32")
            total = T.alloc_var("float32", init=0.0)
            for step in T.serial(k // threads):
                total = total + A[row, step * threads + tx] * X[step * threads + tx]
            partial[tx] = total
            T.sync_threads()
            if tx == 0:
                for i in T.serial(1, threads):
                    total = total + partial[i]
                Y[row] = total

    a, x = RNG.integers(-4, 5, (n, k)).astype(np.float32), RNG.integers(-4, 5, k).astype(np.float32)
    y = np.zeros(n, np.float32)
    run(main, [a, x, y])
    np.testing.assert_array_equal(y, a @ x)


def test_two_kernels_share_scratch_of_dynamic_size():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 8), "float32"), B: T.Tensor((n,), "float32")):
        halves = T.alloc_global((n, 2), "float32")
        with T.Kernel(n, 2, threads=4) as (bx, half):
            x = T.alloc_fragment((1, 4), "float32")
            y = T.alloc_fragment((1,), "float32")
            T.copy(A[bx, half * 4 : half * 4 + 4], x)
            T.reduce_sum(x, y, dim=1)
            T.copy(y, halves[bx, half : half + 1])
        with T.Kernel(T.ceildiv(n, 4), threads=4) as bx:
            for i in T.Parallel(4):
                B[bx * 4 + i] = halves[bx * 4 + i, 0] + halves[bx * 4 + i, 1]

    a, b = RNG.standard_normal((7, 8)).astype(np.float32), np.zeros(7, np.float32)
    run(main, [a, b])
    np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)


def test_a_loop_is_read_once(monkeypatch):
    """However often it runs: what is asked of TVM does not grow with the rounds."""
    read = []

    def meaning(machine, node, right=Machine.meaning):
        read.append(node)
        return right(machine, node)

    monkeypatch.setattr(Machine, "meaning", meaning)

    @T.prim_func
    def count(A: T.Tensor((4,), "int32"), rounds: T.int32):
        with T.Kernel(2, threads=4) as bx:
            for _ in T.serial(rounds):
                A[T.get_thread_binding()] += 1

    counts = []
    for rounds in (2, 50):
        read.clear()
        a = np.zeros(4, np.int32)
        run(count, [a, rounds])
        assert (a == 2 * rounds).all()
        counts.append(len(read))
    assert counts[0] == counts[1] > 0
