"""Products without a matrix instruction: which elements a thread has, what it reads for them, what belongs to their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.simt.distribution import Distribution
from tile_compiler.simt.operators.gemm import rectangles
from tile_compiler.simt.operators.lower_gemm_alone import _Rectangle
from tilelang.ops import Gemm

TURNS = [(False, False), (False, True), (True, False), (True, True)]


def held(ctx: Any, name: str) -> Distribution:
    """How the threads hold a fragment."""
    (layouts,) = ctx.layouts.values()
    (found,) = (layouts.of(buffer) for buffer in layouts.buffers if str(buffer.name) == name)
    return found


def product(
    shape: tuple[int, int, int], trans: tuple[bool, bool], dtype: str, out: str, threads: int, stages: int
) -> Any:
    """C (m, n) = A @ B by steps of 32."""
    m, n, k = shape
    shape_a, shape_b = ((k, m) if trans[0] else (m, k)), ((n, k) if trans[1] else (k, n))

    def step(turned: bool, size: int) -> tuple[int, int]:
        return (size, 32) if turned else (32, size)

    @T.prim_func
    def product(A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor((m, n), out)):
        with T.Kernel(1, threads=threads):
            a, b = T.alloc_shared(step(not trans[0], m), dtype), T.alloc_shared(step(trans[1], n), dtype)
            c = T.alloc_fragment((m, n), out)
            T.clear(c)
            for s in T.Pipelined(k // 32, num_stages=stages):
                T.copy(A[s * 32, 0] if trans[0] else A[0, s * 32], a)
                T.copy(B[0, s * 32] if trans[1] else B[s * 32, 0], b)
                T.gemm(a, b, c, transpose_A=trans[0], transpose_B=trans[1])
            T.copy(c, C)

    return product


def operands(rng: Any, shape: tuple[int, int, int], trans: tuple[bool, bool], dtype: str, out: str) -> list[Any]:
    m, n, k = shape
    sizes = ((k, m) if trans[0] else (m, k)), ((n, k) if trans[1] else (k, n))
    if dtype == "int8":
        return [*(rng.integers(-9, 9, s).astype(dtype) for s in sizes), np.zeros((m, n), out)]
    return [*(rng.standard_normal(s).astype(dtype) for s in sizes), np.zeros((m, n), out)]


@pytest.mark.parametrize("trans", TURNS, ids=["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    ("shape", "dtype", "out", "arch", "threads"),
    [
        ((64, 64, 64), "float32", "float32", "sm_80", 128),
        pytest.param((32, 128, 64), "float32", "float32", "sm_86", 64, marks=pytest.mark.full),
        ((36, 40, 32), "float32", "float32", "sm_80", 64),  # no rectangles: coalesced
        ((32, 64, 64), "float16", "float32", "sm_75", 64),
        pytest.param((32, 64, 32), "int8", "int32", "sm_75", 64, marks=pytest.mark.full),
        pytest.param((32, 32, 32), "float64", "float64", "sm_75", 32, marks=pytest.mark.full),
    ],
    ids=lambda value: "x".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_agrees(
    rng: Any, proved: Any, shape: Any, dtype: str, out: str, arch: str, threads: int, trans: tuple[bool, bool]
) -> None:
    func = product(shape, trans, dtype, out, threads, stages=2)
    _, ctx = proved(func, operands(rng, shape, trans, dtype, out), rtol=1e-4, atol=1e-4, arch=arch)
    assert (_Rectangle.of(held(ctx, "c")) is None) == (shape == (36, 40, 32))


@pytest.mark.parametrize("trans", TURNS, ids=["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_reads_are_vectors_that_meet_no_other(arch: str, trans: tuple[bool, bool]) -> None:
    """Four bytes at once and banks that other lanes ask for, too, took 2.3 to 3.2 times as long (docs/performance/cuda.md)."""
    func = product((64, 64, 128), trans, "float32", "float32", 128, stages=2)
    kernel = tilelang.compile(func, target=f"cuda -arch={arch}", execution="emulate")
    report, source = str(kernel.report()), kernel.get_kernel_source()
    assert "bank conflicts" in report
    assert "bank conflicts:" not in report
    loop = source[source.index("a_part[") : source.index("c[", source.index("a_part["))]
    assert loop.count("*(const tl::vec<float, 4> *)") == 2  # one for each operand, and no other load
    assert "= a[" not in loop
    assert "= b[" not in loop


@pytest.mark.parametrize("trans", TURNS, ids=["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("threads", [32, 64, 96, 128, 256])
def test_rectangles_hold_each_element_once(threads: int, trans: tuple[bool, bool]) -> None:
    m, n = 4 * threads, 64
    op = _shaped(m, n, trans)
    dist = rectangles(op, threads)
    found = _Rectangle.of(dist)
    assert found is not None
    assert found.shape[0] * found.shape[1] * threads == m * n
    assert sorted(dist.held.ravel()) == list(range(m * n))
    assert found.together == (4 if trans[0] else 1, 1 if trans[1] else 4)


def _shaped(m: int, n: int, trans: tuple[bool, bool]) -> Gemm:
    class Shaped:
        transpose_a, transpose_b = trans

    Shaped.m, Shaped.n, Shaped.k = m, n, 32  # type: ignore[attr-defined]
    return Shaped()  # type: ignore[return-value]


@pytest.mark.parametrize(("keys", "values", "across"), [(32, 128, 16), (64, 40, 8), (64, 80, 16)])
def test_two_products_have_rows_in_the_same_threads(rng: Any, proved: Any, keys: int, values: int, across: int) -> None:
    """Scores of 64 x 32 alone would have four rows for a thread, their product with values of 128 columns eight; those of
    64 x 64 would have 16 threads to a row, and 40 columns are no multiple of that."""
    rows, dim = 64, 32

    @T.prim_func
    def attention(
        Q: T.Tensor((rows, dim)),
        K: T.Tensor((2 * keys, dim)),
        V: T.Tensor((2 * keys, values)),
        O: T.Tensor((rows, values)),
    ):
        with T.Kernel(1, threads=128):
            q, k = T.alloc_shared((rows, dim), "float32"), T.alloc_shared((keys, dim), "float32")
            v, weights = T.alloc_shared((keys, values), "float32"), T.alloc_shared((rows, keys), "float32")
            scores = T.alloc_fragment((rows, keys), "float32")
            out = T.alloc_fragment((rows, values), "float32")
            largest, before, total, part = (T.alloc_fragment((rows,), "float32") for _ in range(4))
            T.copy(Q, q)
            T.clear(out)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))
            for s in T.Pipelined(2, num_stages=2):
                T.copy(K[s * keys, 0], k)
                T.copy(V[s * keys, 0], v)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                T.copy(largest, before)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i, j in T.Parallel(rows, keys):
                    scores[i, j] = T.exp2(scores[i, j] - largest[i])
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * T.exp2(before[i] - largest[i]) + part[i]
                for i, j in T.Parallel(rows, values):
                    out[i, j] *= T.exp2(before[i] - largest[i])
                T.copy(scores, weights)
                T.gemm(weights, v, out)
            for i, j in T.Parallel(rows, values):
                out[i, j] /= total[i]
            T.copy(out, O)

    shapes = ((rows, dim), (2 * keys, dim), (2 * keys, values))
    args = [*(rng.standard_normal(s).astype("float32") for s in shapes), np.zeros((rows, values), "float32")]
    _, ctx = proved(attention, args, rtol=1e-4, atol=1e-4)
    assert not [text for _, text in ctx.report.notes if "every thread holds it" in text]
    for one, other in zip(held(ctx, "scores").thread_of[0], held(ctx, "out").thread_of[0]):
        assert set(one) == set(other)
    assert held(ctx, "largest").steps == held(ctx, "scores").steps // (keys // across) == rows * across // 128


def test_a_large_loop_is_not_repeated_by_every_thread(rng: Any, proved: Any) -> None:
    """Rows of 48 columns, coalesced over 128 threads, lie across all of them: what belongs to a row is then held by every thread.
    A tile that is computed from it must not be."""

    @T.prim_func
    def scaled(
        A: T.Tensor((64, 48)), S: T.Tensor((64,)), B: T.Tensor((64, 64)), C: T.Tensor((64, 48)), D: T.Tensor((64, 64))
    ):
        with T.Kernel(1, threads=128):
            a, weights = T.alloc_fragment((64, 48), "float32"), T.alloc_fragment((64, 64), "float32")
            rows, tile = T.alloc_fragment((64,), "float32"), T.alloc_shared((64, 64), "float32")
            T.copy(B, tile)
            T.copy(A, a)
            T.copy(S, rows)
            for i, j in T.Parallel(64, 48):
                a[i, j] *= rows[i]
            for i, j in T.Parallel(64, 64):
                weights[i, j] = rows[i] * tile[i, j]
            T.copy(a, C)
            T.copy(weights, D)

    args = [rng.standard_normal(s).astype("float32") for s in ((64, 48), (64,), (64, 64))]
    _, ctx = proved(scaled, [*args, np.zeros((64, 48), "float32"), np.zeros((64, 64), "float32")])
    assert held(ctx, "rows").replicas == 128
    assert held(ctx, "weights").steps == 64 * 64 // 128
