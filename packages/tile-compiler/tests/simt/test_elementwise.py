"""Parallel nests and copies: any extents, vectors, predicates, replication."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang.language as T
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.simt import infer_layouts
from tile_compiler.simt.errors import LayoutConflict
from tile_compiler.simt.operators.parallel import NestRule

n, m = T.dynamic("n"), T.dynamic("m")


@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("float32", "float16"), ("int8", "int32")])
def test_copies_through_all_scopes(rng: Any, check_each_pass: Any, dtypes: tuple[str, str]) -> None:
    source, result = dtypes

    @T.prim_func
    def copies(A: T.Tensor((m, n), source), B: T.Tensor((m, n), result)):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 16), threads=64) as (bx, by):
            s = T.alloc_shared((16, 64), source)
            f = T.alloc_fragment((16, 64), result)
            T.copy(A[by * 16, bx * 64], s)
            T.copy(s, f)
            T.copy(f, B[by * 16, bx * 64])

    a = (10 * rng.standard_normal((21, 75))).astype(source)
    check_each_pass(copies, [a, np.zeros((21, 75), result)])


@pytest.mark.parametrize("threads", [32, 48, 128, 256])
@pytest.mark.parametrize("shape", [(13, 45), (8, 8), (64, 100)])
def test_any_extents_and_thread_counts(rng: Any, check_each_pass: Any, threads: int, shape: tuple[int, int]) -> None:
    @T.prim_func
    def scale(A: T.Tensor(shape, "float32"), B: T.Tensor(shape, "float32")):
        with T.Kernel(1, threads=threads) as bx:
            f = T.alloc_fragment(shape, "float32")
            T.copy(A, f)
            for i, j in T.Parallel(*shape):
                f[i, j] = f[i, j] * 2 + i - j
            T.copy(f, B)

    check_each_pass(scale, [rng.standard_normal(shape).astype("float32"), np.zeros(shape, "float32")], passes=False)


def test_static_copy_moves_16_bytes_without_predicates(check_each_pass: Any, lower: Any) -> None:
    @T.prim_func
    def copies(A: T.Tensor((512, 512), "float16"), B: T.Tensor((512, 512), "float16")):
        with T.Kernel(8, 8, threads=128) as (bx, by):
            s = T.alloc_shared((64, 64), "float16")
            T.copy(A[by * 64, bx * 64], s)
            T.copy(s, B[by * 64, bx * 64])

    trace, ctx = lower(copies)
    text = trace.steps[-1].after.script()
    assert "1, 8)]" in text or "+ 8]" in text
    assert "if_then_else" not in text
    assert "T.if" not in text.lower()
    assert ctx.alignments == {"A": 16, "B": 16}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "gfx942"])
def test_what_is_cleared_first_lies_where_vectors_are_loaded(check_each_pass: Any, lower: Any, arch: str) -> None:
    """T.clear touches no memory: it follows the loops that do, and rows' statistics follow both."""

    @T.prim_func
    def dots(A: T.Tensor((64, 512), "float16"), B: T.Tensor((64, 512), "float16"), C: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128):
            acc = T.alloc_fragment((16, 512), "float32")
            total = T.alloc_fragment((16,), "float32")
            T.clear(acc)
            T.clear(total)
            for k in T.serial(4):
                for i, j in T.Parallel(16, 512):
                    acc[i, j] += T.cast(A[k * 16 + i, j], "float32") * T.cast(B[k * 16 + i, j], "float32")
            T.reduce_sum(acc, total, dim=1)
            for i in T.Parallel(16):
                C[i] = total[i]

    text = lower(dots, arch)[0].steps[-1].after.script()
    loads = [line for line in text.splitlines() if "= A[" in line or "= B[" in line]
    assert len(loads) >= 2
    assert all("1, 8)]" in line or "+ 8]" in line for line in loads), loads
    if arch == "sm_80":
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal((64, 512)).astype("float16") for _ in "ab")
        check_each_pass(dots, [a, b, np.zeros(16, "float32")], passes=False)


@pytest.mark.parametrize("hindered", ["not written", "a conflict"])
def test_nests_choose_in_their_order_where_that_of_memory_leads_nowhere(
    lower: Any, monkeypatch: pytest.MonkeyPatch, hindered: str
) -> None:
    """A part of a fragment that lies across vectors cannot be written; and whatever two operators would differ about."""
    corner = (1, 2) if hindered == "not written" else (0, 0)

    @T.prim_func
    def filled(B: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_fragment((4, 8), "float32")
            T.clear(tile)
            T.fill(tile[corner[0] : corner[0] + 2, corner[1] : corner[1] + 4], 3.5)
            T.copy(tile, B)

    solve, orders = infer_layouts.solve, []

    def watched(rules: Any, known: Any) -> Any:
        orders.append([rule.leads for rule in rules if isinstance(rule, NestRule)])
        if hindered == "a conflict" and len(orders) == 1:
            conflict = LayoutConflict("of the first order")
            conflict.annotated = True
            raise conflict
        return solve(rules, known)

    monkeypatch.setattr(infer_layouts, "solve", watched)
    assert "B[" in lower(filled)[0].steps[-1].after.script()
    assert [any(order) for order in orders[:2]] == [False, True]
    assert all(all(order) for order in orders[1:])


def test_row_vector_is_replicated(rng: Any, check_each_pass: Any) -> None:
    @T.prim_func
    def bias(A: T.Tensor((64, 64), "float32"), b: T.Tensor((64,), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_fragment((64, 64), "float32")
            v = T.alloc_fragment((64,), "float32")
            T.copy(A, a)
            T.copy(b, v)
            for i, j in T.Parallel(64, 64):
                a[i, j] += v[i]
            for i in T.Parallel(64):
                v[i] = v[i] * 2
            for i, j in T.Parallel(64, 64):
                C[i, j] = a[i, j] + v[i]

    args = [rng.standard_normal(s).astype("float32") for s in ((64, 64), (64,))]
    check_each_pass(bias, [*args, np.zeros((64, 64), "float32")])


def test_transposing_loops(rng: Any, check_each_pass: Any) -> None:
    @T.prim_func
    def transpose(A: T.Tensor((m, n), "float32"), B: T.Tensor((n, m), "float32")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 16), threads=64) as (bx, by):
            s = T.alloc_shared((16, 32), "float32")
            T.copy(A[by * 16, bx * 32], s)
            for i, j in T.Parallel(32, 16):
                B[bx * 32 + i, by * 16 + j] = s[j, i]

    check_each_pass(transpose, [rng.standard_normal((19, 37)).astype("float32"), np.zeros((37, 19), "float32")])


def test_rows_of_a_shared_tile_that_shared_memory_names(rng: Any, check_each_pass: Any) -> None:
    @T.prim_func
    def gather(P: T.Tensor((8,), "int32"), A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=64):
            rows = T.alloc_shared((8,), "int32")
            s = T.alloc_shared((8, 64), "float32")
            T.copy(P, rows)
            T.copy(A, s)
            for k in T.serial(8):
                for j in T.Parallel(64):
                    B[k, j] = s[rows[k], 63 - j]

    order = rng.permutation(8).astype("int32")
    check_each_pass(gather, [order, rng.standard_normal((8, 64)).astype("float32"), np.zeros((8, 64), "float32")])


def test_conditions_and_inner_loops_inside_a_nest(rng: Any, check_each_pass: Any) -> None:
    @T.prim_func
    def rows(A: T.Tensor((32, 16), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            s = T.alloc_shared((32, 16), "float32")
            T.copy(A, s)
            for i in T.Parallel(32):
                total = T.alloc_var("float32", init=0)
                for k in T.serial(16):
                    if s[i, k] > 0:
                        total += s[i, k]
                B[i] = total

    check_each_pass(rows, [rng.standard_normal((32, 16)).astype("float32"), np.zeros(32, "float32")])


def test_fill_and_dynamic_extent(rng: Any, check_each_pass: Any) -> None:
    @T.prim_func
    def fill(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            for i in T.Parallel(n):
                B[i] = A[i] + 1

    check_each_pass(fill, [rng.standard_normal(150).astype("float32"), np.zeros(150, "float32")])


def test_thread_level_code(rng: Any, check_each_pass: Any) -> None:
    @T.prim_func
    def shift(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            s[tx] = A[bx * 64 + tx]
            B[bx * 64 + tx] = s[63 - tx]

    check_each_pass(shift, [rng.standard_normal(100).astype("float32"), np.zeros(100, "float32")])


def test_two_thread_axes(rng: Any, check_each_pass: Any) -> None:
    @T.prim_func
    def copies(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=(16, 4)) as bx:
            f = T.alloc_fragment((32, 32), "float32")
            T.copy(A, f)
            T.copy(f, B)

    check_each_pass(copies, [rng.standard_normal((32, 32)).astype("float32"), np.zeros((32, 32), "float32")])


def test_repeated_iterations_update_shared_memory_once(rng: Any, check_each_pass: Any) -> None:
    @T.prim_func
    def sums(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_fragment((64, 64), "float32")
            row = T.alloc_fragment((64,), "float32")
            s = T.alloc_shared((64,), "float32")
            T.fill(s, 1)
            T.copy(A, a)
            T.reduce_sum(a, row, dim=1)
            for i in T.Parallel(64):
                s[i] += row[i]
            T.copy(s, B)

    check_each_pass(sums, [rng.standard_normal((64, 64)).astype("float32"), np.zeros(64, "float32")])


def test_views_of_shared_memory(rng: Any, check_each_pass: Any) -> None:
    @T.prim_func
    def views(A: T.Tensor((8, 32), "float32"), B: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((8, 32), "float32")
            T.copy(A, s)
            t = T.reshape(s, (16, 16))
            for i, j in T.Parallel(16, 16):
                B[i, j] = t[i, 15 - j]

    check_each_pass(views, [rng.standard_normal((8, 32)).astype("float32"), np.zeros((16, 16), "float32")])


def test_annotated_layout(rng: Any, check_each_pass: Any) -> None:
    from tilelang.layout import make_padded_layout

    @T.prim_func
    def padded(A: T.Tensor((32, 64), "float16"), B: T.Tensor((64, 32), "float16")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((32, 64), "float16")
            T.annotate_layout({s: make_padded_layout(s)})
            T.copy(A, s)
            for i, j in T.Parallel(64, 32):
                B[i, j] = s[j, i]

    _, ctx = check_each_pass(padded, [rng.standard_normal((32, 64)).astype("float16"), np.zeros((64, 32), "float16")])
    assert ctx.shared_bytes == {0: 32 * 72 * 2 - 16}


def test_what_is_not_supported_names_the_line(lower: Any) -> None:
    @T.prim_func
    def scalar(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            f = T.alloc_fragment((64,), "float32")
            T.copy(A, f)
            f[T.get_thread_binding()] = 1

    with pytest.raises(UnsupportedOnTarget, match="test_elementwise.py"):
        lower(scalar)


@pytest.mark.parametrize("shape", [(3, 30, 16), (1, 16, 33), (8, 7, 4)])
def test_permuted_fragments(rng: Any, check_each_pass: Any, shape: tuple[int, int, int]) -> None:
    B, M, N = shape

    @T.prim_func
    def permute(A: T.Tensor((B, M, N), "float16"), C: T.Tensor((N, M, B), "float32")):
        with T.Kernel(1, threads=96) as bx:
            f = T.alloc_fragment((B, M, N), "float16")
            g = T.alloc_fragment((N, M, B), "float32")
            T.copy(A, f)
            for i, j, l in T.Parallel(N, M, B):
                g[i, j, l] = f[l, j, i] * 2
            T.copy(g, C)

    check_each_pass(permute, [rng.standard_normal(shape).astype("float16"), np.zeros((N, M, B), "float32")])


def test_a_loop_leaves_registers_out_between_those_that_it_counts(rng: Any, check_each_pass: Any) -> None:
    """Registers 0, 1, 8 and 9 of a thread are four steps of a loop, whose body reaches those between them."""

    @T.prim_func
    def pairs(A: T.Tensor((32, 16), "float32"), B: T.Tensor((32, 16), "float32")):
        with T.Kernel(1, threads=32) as bx:
            f = T.alloc_fragment((32, 16), "float32")
            T.annotate_layout({f: T.Fragment((32, 16), forward_fn=lambda i, j: (i, j))})
            for i, a, b in T.Parallel(32, 2, 2):
                for q in T.unroll(4):
                    f[i, 8 * a + 2 * q + b] = A[i, 8 * a + 2 * q + b] * 2
            T.copy(f, B)

    check_each_pass(pairs, [rng.standard_normal((32, 16)).astype("float32"), np.zeros((32, 16), "float32")])


def test_a_tile_is_stored_times_a_variable_of_the_thread(rng: Any, check_each_pass: Any) -> None:
    @T.prim_func
    def scaled(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            f = T.alloc_fragment((64,), "float32")
            factor = T.alloc_var("float32", init=0)
            for i in T.serial(3):
                factor += A[i]
            T.copy(A, f)
            for i in T.Parallel(64):
                B[i] = f[i] * factor

    check_each_pass(scaled, [rng.standard_normal(64).astype("float32"), np.zeros(64, "float32")])


@pytest.mark.parametrize("fills", [True, False])
def test_a_part_that_lies_across_vectors_says_how_to_ask_for_it(lower: Any, rng: Any, check: Any, fills: bool) -> None:
    """As loops over it have no thread for each step; what the error proposes runs."""

    def part(asks: bool) -> Any:
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float32")):
            with T.Kernel(1, threads=128):
                f = T.alloc_fragment((64, 64), "float32")
                T.copy(A, f)
                if asks:
                    for i, j in T.Parallel(64, 64):
                        if 5 <= j and j < 12:
                            f[i, j] = 3.0
                elif fills:
                    T.fill(f[:, 5:12], 3.0)
                else:
                    for i, j in T.Parallel(64, 7):
                        f[i, j + 5] = 3.0
                T.copy(f, B)

        return main

    with pytest.raises(
        UnsupportedOnTarget, match=r"irregular distribution(.|\n)*try:      loop over all of the tile, and ask"
    ):
        lower(part(False))
    args = [rng.standard_normal((64, 64)).astype("float16"), np.zeros((64, 64), "float32")]
    check(part(True), args, passes=False)
