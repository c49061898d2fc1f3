"""Shapes that no tile divides: whole tiles without predicates, the rest with them, by one condition of the block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler.rewrite import Rewriter, is_call
from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.errors import SharedMemoryRace
from tilelang.ir import tile_ir

m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")


def product() -> Any:
    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=64) as (bx, by):
            T.assume(k % 8 == 0)
            T.assume(n % 8 == 0)
            a, b = T.alloc_shared((32, 32), "float16"), T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((32, 32), "float32")
            T.clear(acc)
            for i in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 32, i * 32], a)
                T.copy(B[i * 32, bx * 32], b)
                T.gemm(a, b, acc)
            T.copy(acc, C[by * 32, bx * 32])

    return main


def copies(body: Any) -> list[tuple[bool, Any]]:
    """(whether it has a predicate, the statement) of each asynchronous copy."""
    found = []
    for node in tile_ir.walk(body):
        if isinstance(node, tir.Evaluate) and is_call(node.value, "tirx.call_extern"):
            if str(node.value.args[0].value).startswith("tl::cp_async<"):
                found.append((tile_ir.static(node.value.args[-1]) is None, node))
    return found


SHAPES = [(64, 64, 64), (70, 72, 104), (5, 8, 8), (33, 40, 0)]


@pytest.mark.parametrize(
    ("arch", "shape"),
    [
        *(("sm_80", shape) for shape in SHAPES[2:]),
        *(pytest.param("sm_80", shape, marks=pytest.mark.full) for shape in SHAPES[:1]),
        ("sm_80", SHAPES[1]),
        *(("gfx942", shape) for shape in SHAPES[2:]),
        *(pytest.param("gfx942", shape, marks=pytest.mark.full) for shape in SHAPES[:2]),
        *(pytest.param("sm_75", shape, marks=pytest.mark.full) for shape in SHAPES),
    ],
)
def test_a_product_of_any_shape(rng: Any, proved: Any, shape: tuple[int, int, int], arch: str) -> None:
    rows, columns, inner = shape
    a, b = rng.standard_normal((rows, inner)), rng.standard_normal((inner, columns))
    args = [a.astype("float16"), b.astype("float16"), np.zeros((rows, columns), "float32")]
    trace, ctx = proved(product(), args, 1e-2, 1e-2, arch=arch, passes=rows == 70)
    assert any("no predicates where the whole tile is in bounds" in text for _, text in ctx.report.notes)
    if arch == "sm_80":
        kinds = [guarded for guarded, _ in copies(trace.steps[-1].after.body)]
        assert sorted(kinds) == [False] * 4 + [True] * 4  # two tiles, before the loop and in it


def test_a_static_shape_that_does_not_divide(rng: Any, proved: Any) -> None:
    @T.prim_func
    def scaled(A: T.Tensor((100, 72), "float32"), B: T.Tensor((100, 72), "float32")):
        with T.Kernel(2, 2, threads=64) as (bx, by):
            for i, j in T.Parallel(64, 64):
                B[by * 64 + i, bx * 64 + j] = A[by * 64 + i, bx * 64 + j] * 2

    trace, _ = proved(scaled, [rng.standard_normal((100, 72)).astype("float32"), np.zeros((100, 72), "float32")])
    (split,) = [s for s in tile_ir.walk(trace.steps[-1].after.body) if isinstance(s, tir.IfThenElse) and s.else_case]
    free, guarded = (
        [node for node in tile_ir.walk(case) if isinstance(node, tir.IfThenElse) or is_call(node, "prim.if_then_else")]
        for case in (split.then_case, split.else_case)
    )
    assert not free
    assert guarded


def test_whole_tiles_have_one_body(lower: Any) -> None:
    @T.prim_func
    def scaled(A: T.Tensor((128, 64), "float32"), B: T.Tensor((128, 64), "float32")):
        with T.Kernel(2, threads=64) as bx:
            for i, j in T.Parallel(64, 64):
                B[bx * 64 + i, j] = A[bx * 64 + i, j] * 2

    trace, _ = lower(scaled)
    assert not [s for s in tile_ir.walk(trace.steps[-1].after.body) if isinstance(s, tir.IfThenElse)]


def test_rows_that_memory_names_keep_their_predicates(rng: Any, proved: Any) -> None:
    @T.prim_func
    def gathered(A: T.Tensor((n, 64), "float32"), rows: T.Tensor((32,), "int32"), B: T.Tensor((32, 64), "float32")):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(32, 64):
                B[i, j] = A[rows[i], j]

    args = [rng.standard_normal((9, 64)).astype("float32"), rng.integers(-3, 12, 32).astype("int32")]
    trace, ctx = proved(gathered, [*args, np.zeros((32, 64), "float32")])
    assert not any("no predicates" in text for _, text in ctx.report.notes)


@pytest.mark.parametrize("guarded", [False, True])
def test_the_checker_looks_at_both_bodies(lower: Any, guarded: bool) -> None:
    """All threads copy to one place in the whole tiles, or in the others alone: refuted either way."""
    trace, ctx = lower(product())
    final = trace.steps[-1].after
    victim = [node for has, node in copies(final.body) if has == guarded][-1]
    check_synchronization(final, ctx)
    with pytest.raises(SharedMemoryRace):
        check_synchronization(final.with_body(_Clash(victim).body(final.body)), ctx)


class _Clash(Rewriter):
    """Sends a copy's pieces to the first place of their tile."""

    def __init__(self, victim: Any) -> None:
        self.victim = victim

    def evaluate(self, node: Any) -> Any:
        if not node.same_as(self.victim):
            return node
        name, target, *rest = node.value.args
        first = tir.BufferLoad(target.args[0].source, [tir.const(0, "int32")])
        call = ir.Call(node.value.op, [name, tir.address_of(first), *rest], attrs=node.value.attrs, ret_ty="int32")
        return tir.Evaluate(call, span=node.span)


def test_a_tile_that_always_hangs_over(rng: Any, proved: Any) -> None:
    """No tile is whole: a second text for one would never run, and what never runs gets no barriers."""

    @T.prim_func
    def main(A: T.Tensor((m, 24), "float32"), B: T.Tensor((m, 24), "float32")):
        with T.Kernel(T.ceildiv(m, 16), threads=128) as bx:
            tile = T.alloc_shared((16, 32), "float32")
            for i, c in T.Parallel(16, 32):
                tile[i, c] = T.if_then_else(bx * 16 + i < m and c < 24, A[bx * 16 + i, c], 0.0)
            for i, c in T.Parallel(16, 32):
                if bx * 16 + i < m and c < 24:
                    B[bx * 16 + i, c] = tile[15 - i, c]

    a = rng.standard_normal((40, 24)).astype("float32")
    trace, ctx = proved(main, [a, np.zeros((40, 24), "float32")], 0, 0, arch="sm_80")
    assert not any("where the whole tile is in bounds" in text for _, text in ctx.report.notes)
    questions = [n.condition for n in tile_ir.walk(trace.steps[-1].after.body, tir.IfThenElse)]
    assert not any(tile_ir.static(c) == 0 for q in questions for c in tile_ir.walk(tir.Evaluate(q)))
