"""One fragment, needed in two layouts: the compiler's repair by copies, and the error where no copy helps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from test_emulated import agree
from tvm import ir

import tilelang.language as T
from tile_compiler.simt.distribution import Distribution, linear
from tile_compiler.simt.errors import LayoutConflict, SharedMemoryRace
from tile_compiler.simt.layout.equations import Level, Rule, Unknown
from tile_compiler.simt.layout.solve import solve
from tilelang.layout import Fragment


def notes(lower: Any, func: Any) -> list[str]:
    _, ctx = lower(func)
    return [text for _, text in ctx.report.notes]


def values(rng: Any, *shapes: tuple[int, ...], dtype: str = "float32") -> list[Any]:
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


@pytest.mark.parametrize(("rows", "cols", "threads"), [(64, 64, 128), (30, 20, 96), (7, 100, 48), (5, 3, 128)])
def test_a_transposed_read(rng: Any, rows: int, cols: int, threads: int) -> None:
    @T.prim_func
    def transposed(A: T.Tensor((rows, cols), "float32"), B: T.Tensor((cols, rows), "float32")):
        with T.Kernel(1, threads=threads):
            a = T.alloc_fragment((rows, cols), "float32")
            b = T.alloc_fragment((cols, rows), "float32")
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.Parallel(cols, rows):
                b[i, j] += a[j, i]
            T.copy(b, B)

    agree(transposed, "sm_80", values(rng, (rows, cols), (cols, rows)), 0)


@pytest.mark.parametrize(("n", "threads"), [(512, 128), (300, 96), (1000, 48)])
def test_rotated_reversed_and_gathered_reads(rng: Any, lower: Any, n: int, threads: int) -> None:
    @T.prim_func
    def moved(A: T.Tensor((n,), "float32"), P: T.Tensor((n,), "int32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=threads):
            a = T.alloc_fragment((n,), "float32")
            b = T.alloc_fragment((n,), "float32")
            T.copy(A, a)
            for i in T.Parallel(n):
                b[i] = a[(i + 1) % n] - a[n - 1 - i] + 2 * a[P[i]]
            for i in T.Parallel(n // 2):
                b[i] = b[n - 1 - i] + b[i]
            T.copy(b, B)

    args = [*values(rng, (n,)), rng.permutation(n).astype("int32"), np.zeros(n, "float32")]
    agree(moved, "sm_80", args, 1e-6)
    assert any("a goes through shared memory, as T.copy at" in note for note in notes(lower, moved))


@pytest.mark.parametrize("shape", [(16, 64), (10, 33)])
def test_writes_elsewhere_keep_what_they_do_not_touch(rng: Any, shape: tuple[int, int]) -> None:
    rows, cols = shape

    @T.prim_func
    def scattered(A: T.Tensor(shape, "float32"), B: T.Tensor(shape, "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment(shape, "float32")
            b = T.alloc_fragment(shape, "float32")
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.Parallel(rows, cols):
                if j % 2 == 0:
                    b[i, (j + 5) % cols] = a[i, j]
            T.copy(b, B)

    agree(scattered, "sm_80", values(rng, shape, shape), 0)


@pytest.mark.parametrize("policies", [("Square", "FullRow"), ("FullCol", "FullRow")])
@pytest.mark.parametrize("k", [32, 48])
def test_two_products_that_want_one_result_differently(rng: Any, lower: Any, policies: tuple[str, str], k: int) -> None:
    first, second = (T.GemmWarpPolicy[name] for name in policies)

    @T.prim_func
    def product(A: T.Tensor((64, k), "float16"), B: T.Tensor((k, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, k), "float16")
            b = T.alloc_shared((k, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, policy=first, clear_accum=True)
            T.gemm(a, b, c, policy=second)
            T.copy(c, C)

    args = [*values(rng, (64, k), (k, 64), dtype="float16"), np.zeros((64, 64), "float32")]
    agree(product, "sm_80", args, 1e-4)
    found = notes(lower, product)
    assert any("c is copied to a fragment of its own, as T.gemm at" in note for note in found)
    assert any("goes through shared memory" in note for note in found)


@pytest.mark.parametrize("rows", [64, 32])
def test_scores_become_an_operand_after_softmax(rng: Any, lower: Any, rows: int) -> None:
    """`acc_s` of attention: written as the result of one product, exponentials, then the left operand of the next."""

    @T.prim_func
    def attend(
        Q: T.Tensor((rows, 32), "float16"), K: T.Tensor((64, 32), "float16"), O: T.Tensor((rows, 32), "float32")
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((rows, 32), "float16")
            k = T.alloc_shared((64, 32), "float16")
            acc_s = T.alloc_fragment((rows, 64), "float32")
            weights = T.alloc_fragment((rows, 64), "float16")
            top = T.alloc_fragment((rows,), "float32")
            out = T.alloc_fragment((rows, 32), "float32")
            T.copy(Q, q)
            T.copy(K, k)
            T.gemm(q, k, acc_s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullCol)
            T.reduce_max(acc_s, top, dim=1)
            for i, j in T.Parallel(rows, 64):
                weights[i, j] = T.exp(acc_s[i, j] - top[i])
            T.gemm(weights, k, out, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(out, O)

    args = [*values(rng, (rows, 32), (64, 32), dtype="float16"), np.zeros((rows, 32), "float32")]
    agree(attend, "sm_80", args, 5e-3)
    assert any("weights goes through shared memory" in n or "acc_s goes through" in n for n in notes(lower, attend))


def test_an_annotation_that_a_product_cannot_live_with(lower: Any) -> None:
    @T.prim_func
    def product(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.annotate_layout({c: Fragment((64, 64), forward_fn=lambda i, j: (i * 2 + j // 32, j % 32))})
            T.copy(A, a)
            T.gemm(a, a, c, clear_accum=True)
            T.copy(c, C)

    with pytest.raises(LayoutConflict) as caught:
        lower(product)
    text = str(caught.value)
    assert re.search(r"T.gemm and T.annotate_layout at .*py:\d+ need different layouts of c", text)
    assert re.search(r"--> .*test_layout_conflicts.py:\d+ +T.gemm\(a, a, c, clear_accum=True\)", text)
    # Both maps, drawn: the annotation gives rows to pairs of threads, the instruction pairs of columns to lanes.
    assert re.search(r"T.annotate_layout, line \d+: +T.gemm, line \d+:", text)
    assert re.search(r"t0 +t0 +t0 +t0 +t0 +t0 +t0 +t0 +\.\. +t0 +t0 +t1 +t1 +t2 +t2 +t3 +t3 +\.\.", text)
    assert re.search(r"t2 +t2 +t2 +t2 +t2 +t2 +t2 +t2 +\.\. +t4 +t4 +t5 +t5 +t6 +t6 +t7 +t7 +\.\.", text)
    assert "drop the annotation of c, or T.copy c to another fragment for T.gemm" in text


@dataclass
class Demand(Rule):
    """An operator that insists on one distribution of a tile."""

    tile: Unknown
    dist: Distribution

    def propose(self, level: Level, known: Any) -> Any:
        if level == Level.STRICT:
            yield self.tile, self.dist

    def fault(self, known: Any) -> tuple[Unknown, str] | None:
        return None if known[self.tile] is self.dist else (self.tile, self.dist.describe())


def test_two_operators_are_named_by_their_lines() -> None:
    """Without the repair by copies: what an operator says that cannot take one."""
    line = lambda n: ir.Span(ir.SourceName("attention.py"), n, n, 1, 1)  # noqa: E731
    acc = Unknown("acc", (8, 8))
    rules = [
        Demand("T.gemm", line(41), acc, linear((8, 8), 32, 2)),
        Demand("T.reduce", line(52), acc, linear((8, 8), 32, 2, (1, 0))),
    ]
    with pytest.raises(LayoutConflict) as caught:
        solve(rules)
    lines = [text.strip() for text in str(caught.value).splitlines()]
    assert lines[0] == "[TL204] T.reduce and T.gemm at attention.py:41 need different layouts of acc"
    assert lines[1] == "--> attention.py:52"
    assert re.fullmatch(r"found: +T.gemm at attention.py:41 gives acc \(i, j\) -> thread .*, register j % 2", lines[2])
    assert re.fullmatch(r"T.reduce wants \(i, j\) -> thread .*, register i % 2", lines[3])
    assert re.fullmatch(r"T.gemm, line 41: +T.reduce, line 52:", lines[4])
    assert re.fullmatch(r"(t0 ){2}( *t1 ){2}.* t3 +(t0 +)t4 +t8 .* t28", " ".join(lines[5].split()))
    assert lines[-1] == (
        "try:      write acc in one T.Parallel loop and read it in the next, or use a shared buffer for it"
    )


def test_a_loop_that_reads_what_other_iterations_write(lower: Any) -> None:
    """The language calls this a race (iterations have no order); so does the compiler, with the line."""

    @T.prim_func
    def chain(A: T.Tensor((300,), "float32"), B: T.Tensor((300,), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((300,), "float32")
            b = T.alloc_fragment((300,), "float32")
            T.copy(A, a)
            for i in T.Parallel(300):
                a[i] = a[i] * 2
                b[i] = a[(i + 1) % 300]
            T.copy(b, B)

    with pytest.raises(SharedMemoryRace, match="a_exchange") as caught:
        lower(chain)
    assert "test_layout_conflicts.py" in str(caught.value)
