"""Pipelined loops give the answer of plain loops: in numpy after every pass, and in the emulator's checked memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx as tir

import tilelang
import tilelang.language as T
from tile_compiler.errors import PipelineOrderError
from tile_compiler.rewrite import is_call
from tilelang.ir import tile_ir

n = T.dynamic("n")

ARCHES = ["sm_80", "sm_75"]  # with and without cp.async
ONE_OR_BOTH = ["sm_80", pytest.param("sm_75", marks=pytest.mark.full)]


def halves(rng: Any, *shapes: tuple[int, ...]) -> list[Any]:
    return [rng.standard_normal(s).astype("float16") for s in shapes]


def scaled(stages: int, length: Any, loop: Any = None) -> Any:
    """Sums scaled rows: each row of A passes through a tile, which two operators read."""

    @T.prim_func
    def main(A: T.Tensor((length, 64), "float16"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float16")
            total = T.alloc_fragment((64,), "float32")
            twice = T.alloc_fragment((64,), "float32")
            T.clear(total)
            T.clear(twice)
            for k in T.Pipelined(length, num_stages=stages):
                T.copy(A[k, :], s)
                for i in T.Parallel(64):
                    total[i] = total[i] + s[63 - i]
                for i in T.Parallel(64):
                    twice[i] = twice[i] + 2 * s[i]
            T.copy(total, B)
            T.copy(twice, C)

    return main


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_tile_that_two_operators_read(rng: Any, proved: Any, arch: str, stages: int, length: int) -> None:
    out = np.zeros(64, "float32")
    always = {"every": True} if (length, stages) == (7, 3) else {}
    proved(scaled(stages, n), [*halves(rng, (length, 64)), out, out.copy()], arch=arch, passes=length == 7, **always)


@pytest.mark.parametrize("arch", ["sm_80"])
@pytest.mark.parametrize("dim", [0, 1])
def test_dimensions_of_a_tile_with_versions(rng: Any, proved: Any, arch: str, dim: int) -> None:
    """Reductions and scans of it take the user's dimension, not the one that is there with the versions."""
    kept = (64, 32)[dim]

    @T.prim_func
    def main(A: T.Tensor((96, 64), "float32"), B: T.Tensor((kept,), "float32"), C: T.Tensor((96, 64), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((32, 64), "float32")
            total = T.alloc_fragment((kept,), "float32")
            T.clear(total)
            for k in T.Pipelined(3, num_stages=2):
                T.copy(A[k * 32, 0], s)
                T.reduce_sum(s, total, dim=dim, clear=False)
                T.cumsum(s, dim=dim)
                T.copy(s, C[k * 32, 0])
            T.copy(total, B)

    a = rng.standard_normal((96, 64)).astype("float32")
    proved(main, [a, np.zeros(kept, "float32"), np.zeros_like(a)], arch=arch)


@pytest.mark.parametrize("arch", ONE_OR_BOTH)
@pytest.mark.parametrize("length", [1, 4])
def test_static_trip_counts(rng: Any, proved: Any, arch: str, length: int) -> None:
    out = np.zeros(64, "float32")
    proved(scaled(3, length), [*halves(rng, (length, 64)), out, out.copy()], arch=arch)


@pytest.mark.parametrize("arch", ONE_OR_BOTH)
@pytest.mark.parametrize("stages", [1, 3])
def test_copies_under_a_condition(rng: Any, proved: Any, arch: str, stages: int) -> None:
    @T.prim_func
    def sparse(
        A: T.Tensor((6, 32, 32), "float16"),
        B: T.Tensor((6, 32, 32), "float16"),
        M: T.Tensor((6,), "int32"),
        C: T.Tensor((32, 32), "float32"),
    ):
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for k in T.Pipelined(6, num_stages=stages):
                if M[k] > 0:
                    T.copy(A[k, 0, 0], a)
                    T.copy(B[k, 0, 0], b)
                    T.gemm(a, b, c)
            T.copy(c, C)

    for mask in ([1, 0, 0, 1, 1, 0], [0] * 6, [0, 1, 0, 1, 0, 1]):
        args = [*halves(rng, (6, 32, 32), (6, 32, 32)), np.array(mask, "int32"), np.zeros((32, 32), "float32")]
        _, ctx = proved(sparse, args, 1e-3, 1e-3, arch=arch, passes=mask[0] == 1)
    if stages == 3:
        assert any("3 version(s) of a, b" in text for _, text in ctx.report.notes)


@pytest.mark.parametrize("arch", ARCHES)
def test_condition_with_two_sides(rng: Any, proved: Any, arch: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((5, 64), "float16"), B: T.Tensor((5, 64), "float16"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float16")
            t = T.alloc_shared((64,), "float16")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for k in T.Pipelined(5, num_stages=2):
                if k % 3 == 1:
                    T.copy(A[k, :], s)
                    for i in T.Parallel(64):
                        total[i] = total[i] + s[63 - i]
                else:
                    T.copy(B[k, :], t)
                    for i in T.Parallel(64):
                        total[i] = total[i] - t[63 - i]
            T.copy(total, C)

    proved(main, [*halves(rng, (5, 64), (5, 64)), np.zeros(64, "float32")], arch=arch)


@pytest.mark.parametrize("arch", ONE_OR_BOTH)
def test_bound_that_depends_on_the_block(rng: Any, proved: Any, arch: str) -> None:
    @T.prim_func
    def triangle(A: T.Tensor((5, 64), "float16"), C: T.Tensor((5, 64), "float32")):
        with T.Kernel(5, threads=64) as bx:
            s = T.alloc_shared((64,), "float16")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for k in T.Pipelined(bx, num_stages=3):
                T.copy(A[k, :], s)
                for i in T.Parallel(64):
                    total[i] = total[i] + s[63 - i]
            T.copy(total, C[bx, :])

    proved(triangle, [*halves(rng, (5, 64)), np.zeros((5, 64), "float32")], arch=arch)


def test_a_bound_of_the_block_is_no_question_of_each_copy(lower: Any) -> None:
    """Causal: the copy ahead happens where k + 1 < 2 * bx + 2 <= 8, which says that its rows exist; and there is always a
    first tile."""

    @T.prim_func
    def triangle(A: T.Tensor((4, 256, 64), "float16"), C: T.Tensor((4, 32, 64), "float32")):
        with T.Kernel(4, 4, threads=64) as (bx, by):
            s = T.alloc_shared((32, 64), "float16")
            total = T.alloc_fragment((32, 64), "float32")
            T.clear(total)
            for k in T.Pipelined(2 * bx + 2, num_stages=2):
                T.copy(A[by, k * 32, 0], s)
                for i, j in T.Parallel(32, 64):
                    total[i, j] += s[31 - i, j]
            T.copy(total, C[by, 0, 0])

    trace, _ = lower(triangle)
    found = [n.condition for n in tile_ir.walk(trace.steps[-1].after.body) if isinstance(n, tir.IfThenElse)]
    assert len(found) == 1, found
    asynchronous = [n for n in tile_ir.walk(trace.steps[-1].after.body) if is_call(n, "tirx.call_extern")]
    copies = [n for n in asynchronous if str(n.args[0].value) == "tl::cp_async<16>"]
    assert [tile_ir.static(n.args[-1]) for n in copies] == [1, 1]  # the predicate is true


@pytest.mark.parametrize("arch", ["sm_80", *(pytest.param(a, marks=pytest.mark.full) for a in ARCHES if a != "sm_80")])
@pytest.mark.parametrize("least", [1, 0])
def test_nothing_is_waited_for_behind_a_loop_whose_copies_have_ended(
    rng: Any, proved: Any, arch: str, least: int
) -> None:
    """The last iteration starts no copy, so the tile that takes the place of the loop's needs a barrier only; but for a loop
    that may have no iteration, as nothing says that it has not started the first one's copy."""

    @T.prim_func
    def main(A: T.Tensor((5, 1024), "float32"), X: T.Tensor((4, 1024), "float32"), B: T.Tensor((4, 1024), "float32")):
        with T.Kernel(4, threads=64) as bx:
            s = T.alloc_shared((1024,), "float32")
            last = T.alloc_shared((1024,), "float32")
            total = T.alloc_fragment((1024,), "float32")
            T.clear(total)
            for k in T.Pipelined(bx + least, num_stages=2):
                T.copy(A[k, 0], s)
                for i in T.Parallel(1024):
                    total[i] += s[1023 - i]
            T.copy(X[bx, 0], last)
            for i in T.Parallel(1024):
                B[bx, i] = total[i] + last[1023 - i]

    args = [rng.standard_normal(shape).astype("float32") for shape in ((5, 1024), (4, 1024))]
    trace, _ = proved(main, [*args, np.zeros((4, 1024), "float32")], arch=arch)
    final = trace.steps[-1].after.body
    names = [str(n.args[0].value) for n in tile_ir.walk(final) if is_call(n, "tirx.call_extern")]
    waits = [n for n in names if n.startswith(("tl::cp_async_wait", "tl::wait_loads"))]
    assert len(waits) == (0 if arch == "sm_75" else 1 if least else 2)


@pytest.mark.parametrize("arch", ONE_OR_BOTH)
def test_two_pipelines_in_sequence(rng: Any, proved: Any, arch: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((4, 64), "float16"), B: T.Tensor((3, 64), "float16"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float16")
            t = T.alloc_shared((64,), "float16")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[k, :], s)
                for i in T.Parallel(64):
                    total[i] = total[i] + s[63 - i]
            for k in T.Pipelined(1, 3, num_stages=2):
                T.copy(B[k, :], t)
                for i in T.Parallel(64):
                    total[i] = total[i] * t[63 - i]
            T.copy(total, C)

    proved(main, [*halves(rng, (4, 64), (3, 64)), np.zeros(64, "float32")], arch=arch)


@pytest.mark.parametrize("arch", ONE_OR_BOTH)
@pytest.mark.parametrize("outer", [1, 2, 3])
def test_pipeline_in_a_pipeline(rng: Any, proved: Any, arch: str, outer: int) -> None:
    @T.prim_func
    def main(A: T.Tensor((3, 64), "float16"), B: T.Tensor((3, 4, 64), "float16"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float16")
            t = T.alloc_shared((64,), "float16")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for k in T.Pipelined(3, num_stages=outer):
                T.copy(A[k, :], s)
                for m in T.Pipelined(4, num_stages=3):
                    T.copy(B[k, m, :], t)
                    for i in T.Parallel(64):
                        total[i] = total[i] + s[63 - i] * t[63 - i]
            T.copy(total, C)

    proved(main, [*halves(rng, (3, 64), (3, 4, 64)), np.zeros(64, "float32")], 1e-3, 1e-3, arch=arch)


def attention(order: Any, stage: Any, stages: int = 0) -> Any:
    """Two products and a softmax, as in FlashAttention, over 4 blocks of keys."""

    @T.prim_func
    def main(
        Q: T.Tensor((32, 32), "float16"),
        K: T.Tensor((128, 32), "float16"),
        V: T.Tensor((128, 32), "float16"),
        O: T.Tensor((32, 32), "float32"),
    ):
        with T.Kernel(1, threads=64) as bx:
            q = T.alloc_shared((32, 32), "float16")
            kk = T.alloc_shared((32, 32), "float16")
            v = T.alloc_shared((32, 32), "float16")
            scores = T.alloc_fragment((32, 32), "float32")
            weights = T.alloc_fragment((32, 32), "float16")
            o = T.alloc_fragment((32, 32), "float32")
            T.copy(Q, q)
            T.clear(o)
            for k in T.Pipelined(4, num_stages=stages, order=order, stage=stage):
                T.copy(K[k * 32, 0], kk)
                T.gemm(q, kk, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(32, 32):
                    weights[i, j] = T.exp(scores[i, j] * 0.1)
                T.copy(V[k * 32, 0], v)
                T.gemm(weights, v, o)
            T.copy(o, O)

    return main


SCHEDULES = [
    ([0, 1, 2, 3, 4], [0, 1, 1, 0, 1]),  # copies one step ahead
    ([0, 1, 2, 3, 4], [0, 2, 2, 1, 2]),  # K two steps ahead, V one
    ([0, 1, 4, 2, 3], [0, 1, 1, 1, 2]),  # the first product before the second one of the iteration before
    ([-1, 0, 2, -1, 1], [-1, 0, 0, -1, 1]),  # the same, copies left to the compiler
    ([4, 0, 1, 3, 2], [0, 1, 1, 0, 1]),  # copies last: one version serves
    ([0, 1, 2, 3, 4], [0, 0, 0, 0, 0]),  # nothing overlaps
    ([0, 1, 2, 3, 4], [0, 3, 3, 1, 3]),  # distances of their own: 3 for K, 2 for V
]


@pytest.mark.parametrize("arch", ONE_OR_BOTH)
@pytest.mark.parametrize(
    ("order", "stage"), [*SCHEDULES[:4], *(pytest.param(*s, marks=pytest.mark.full) for s in SCHEDULES[4:])]
)
def test_explicit_schedule(rng: Any, proved: Any, arch: str, order: list[int], stage: list[int]) -> None:
    args = [*halves(rng, (32, 32), (128, 32), (128, 32)), np.zeros((32, 32), "float32")]
    proved(attention(order, stage), args, 2e-2, 2e-2, arch=arch)


def test_schedule_is_the_users(lower: Any) -> None:
    _, ctx = lower(attention(*SCHEDULES[6]))
    notes = [text for _, text in ctx.report.notes]
    assert "pipelined loop: 4 version(s) of kk" in notes
    assert "pipelined loop: 3 version(s) of v" in notes
    _, ctx = lower(attention(*SCHEDULES[4]))
    assert not any("version" in text and "pipelined" in text for _, text in ctx.report.notes)


@pytest.mark.parametrize(
    ("order", "stage", "text"),
    [
        ([0, 1, 2, 3, 4], [1, 0, 0, 0, 0], "run a use of kk before the statement it depends on"),
        ([1, 0, 2, 3, 4], [0, 0, 0, 0, 0], "run a use of kk before the statement it depends on"),
        ([0, 1, 2, 3, 4], [0, 0, 0, 0, 1], "overwrite weights before its last use"),
        ([0, -1, 2, 3, 4], [0, -1, 0, 0, 0], "leave a statement out"),
    ],
)
def test_impossible_schedule(lower: Any, order: list[int], stage: list[int], text: str) -> None:
    with pytest.raises(PipelineOrderError, match=text) as caught:
        lower(attention(order, stage))
    assert "test_pipelines.py:" in str(caught.value)


@pytest.mark.parametrize("arch", ONE_OR_BOTH)
@pytest.mark.parametrize("stages", [1, pytest.param(2, marks=pytest.mark.full), 3])
def test_copies_that_no_cp_async_can_make(rng: Any, proved: Any, arch: str, stages: int) -> None:
    """Elements are converted, rows are odd: the tiles go through registers."""

    @T.prim_func
    def main(A: T.Tensor((70, 33), "float32"), B: T.Tensor((70, 33), "float16"), C: T.Tensor((33,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_shared((16, 33), "float16")
            b = T.alloc_shared((16, 33), "float16")
            total = T.alloc_fragment((33,), "float32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(70, 16), num_stages=stages):
                T.copy(A[k * 16, 0], a)
                T.copy(B[k * 16, 0], b)
                for i in T.Parallel(33):
                    for j in T.serial(16):
                        total[i] = total[i] + a[j, 32 - i] * b[j, 32 - i]
            T.copy(total, C)

    args = [rng.standard_normal((70, 33)).astype("float32"), *halves(rng, (70, 33)), np.zeros(33, "float32")]
    _, ctx = proved(main, args, 1e-2, 1e-2, arch=arch)
    through = [text for _, text in ctx.report.notes if "through registers" in text]
    assert len(through) == (0 if stages == 1 else 2)


@pytest.mark.parametrize(("rows", "held"), [(159, "through registers, 2 ahead"), (160, None)])
def test_tiles_that_registers_do_not_hold_are_loaded_in_place(
    rng: Any, proved: Any, rows: int, held: str | None
) -> None:
    """159 of 255 registers are the sums', 48 are for the loop's addresses: one of two tiles of 16 elements a thread fits beside
    them, with its own addresses. With one sum more none does."""

    @T.prim_func
    def main(A: T.Tensor((70, 33), "float16"), B: T.Tensor((70, 33), "float16"), C: T.Tensor((rows, 32), "float32")):
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_shared((16, 33), "float16")
            b = T.alloc_shared((16, 33), "float16")
            total = T.alloc_fragment((rows, 32), "float32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(70, 16), num_stages=3):
                T.copy(A[k * 16, 0], a)
                T.copy(B[k * 16, 0], b)
                for i, j in T.Parallel(rows, 32):
                    total[i, j] += a[i % 16, 32 - j] * b[i // 10, j]
            T.copy(total, C)

    args = [*halves(rng, (70, 33), (70, 33)), np.zeros((rows, 32), "float32")]
    _, ctx = proved(main, args, 1e-2, 1e-2, arch="sm_80", passes=False)
    notes = [text for _, text in ctx.report.notes if "through registers" in text]
    waited = "not through registers, 48 of which it needs"
    assert notes == [f"T.copy: a {held or waited}", f"T.copy: b {waited}"]


def test_own_double_buffer_stays_in_order(rng: Any, proved: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((6, 64), "float32"), B: T.Tensor((6, 64), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((2, 64), "float32")
            T.fill(s, 0)
            for k in T.Pipelined(6, num_stages=3):
                T.copy(A[k, :], s[k % 2, :])
                for i in T.Parallel(64):
                    B[k, i] = s[k % 2, 63 - i] + s[(k + 1) % 2, i]

    proved(main, [rng.standard_normal((6, 64)).astype("float32"), np.zeros((6, 64), "float32")])


def test_copy_that_nobody_reads(rng: Any, proved: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((6, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            t = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(6, num_stages=3):
                T.copy(A[k, :], s)
            T.copy(A[0, :], t)
            for i in T.Parallel(64):
                B[i] = t[63 - i]

    proved(main, [rng.standard_normal((6, 64)).astype("float32"), np.zeros(64, "float32")])


def test_names_bound_in_the_loop(rng: Any, proved: Any) -> None:
    @T.prim_func
    def gather(P: T.Tensor((5,), "int32"), A: T.Tensor((80, 64), "float16"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((16, 64), "float16")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for k in T.Pipelined(5, num_stages=3):
                page = P[k]
                base = page * 16
                T.copy(A[base, 0], s)
                for i in T.Parallel(64):
                    total[i] = total[i] + s[base % 16 + 3, 63 - i]
            T.copy(total, C)

    pages = np.array([3, 0, 4, 4, 1], "int32")
    _, ctx = proved(gather, [pages, *halves(rng, (80, 64)), np.zeros(64, "float32")])
    assert any("3 version(s) of s" in text for _, text in ctx.report.notes)


def test_loop_left_early_stays_in_order(rng: Any, proved: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((6, 64), "float32"), B: T.Tensor((6, 64), "float32"), last: T.int32):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(6, num_stages=3):
                T.copy(A[k, :], s)
                for i in T.Parallel(64):
                    B[k, i] = s[63 - i]
                if k == last:
                    break

    args = [rng.standard_normal((6, 64)).astype("float32"), np.zeros((6, 64), "float32"), 3]
    _, ctx = proved(main, args, passes=False)
    assert any("no copy in it can run ahead" in text for _, text in ctx.report.notes)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("length", [8, 64, 128, 256])
def test_long_loop_waits_for_the_oldest_copies_only(stages: int, length: int) -> None:
    """What is followed of a long loop must meet its versions in step, or copies in flight seem to meet new ones."""
    block = 32

    @T.prim_func
    def gemm(
        A: T.Tensor((128, length * block), "float16"),
        B: T.Tensor((length * block, 128), "float16"),
        C: T.Tensor((128, 128), "float16"),
    ):
        with T.Kernel(1, threads=128) as bx:
            A_tile = T.alloc_shared((128, block), "float16")
            B_tile = T.alloc_shared((block, 128), "float16")
            acc = T.alloc_fragment((128, 128), "float32")
            T.clear(acc)
            for k in T.Pipelined(length, num_stages=stages):
                T.copy(A[0, k * block], A_tile)
                T.copy(B[k * block, 0], B_tile)
                T.gemm(A_tile, B_tile, acc)
            T.copy(acc, C)

    source = tilelang.compile(gemm, target="cuda -arch=sm_80").get_kernel_source()
    waits = [line.strip() for line in source.splitlines() if "cp_async_wait" in line]
    assert waits == [f"tl::cp_async_wait<{stages - 2}>();"]
    assert source.count("sync_threads") == 1
