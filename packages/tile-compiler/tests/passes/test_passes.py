"""Each pass alone: its text before and after."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler import pipeline
from tile_compiler.context import CompileContext
from tile_compiler.errors import DivergentControl, PipelineOrderError
from tile_compiler.inspect import readable, run_passes
from tile_compiler.passes.bounds import bounds
from tile_compiler.passes.drop_hints import drop_hints
from tile_compiler.passes.lower_parallel import lower_parallel
from tile_compiler.passes.lower_tile_ops import lower_tile_ops
from tile_compiler.passes.plan_pipeline import plan_pipeline
from tile_compiler.passes.plan_scratch import plan_scratch
from tile_compiler.passes.relax_atomics import relax_atomics
from tile_compiler.passes.serialize_threads import serialize_threads
from tile_compiler.passes.unroll_loops import MOST, unroll_loops
from tilelang.ir import tile_ir

n, m = T.dynamic("n"), T.dynamic("m")


@pytest.fixture
def before_after(golden: Any) -> Callable[..., CompileContext]:
    """Compare `traced -> passes` with the golden text; earlier passes run first, without being shown."""

    def compare(func: Any, *passes: Any, first: tuple[Any, ...] = ()) -> CompileContext:
        ctx = CompileContext()
        for apply in first:
            func = apply(func, ctx)
        after = func
        for apply in passes:
            after = apply(after, ctx)
        golden(f"{readable(func)}\n\n->\n\n{readable(after)}")
        return ctx

    return compare


def test_plan_pipeline(before_after: Any) -> None:
    @T.prim_func
    def copies(A: T.Tensor((64, 32), "float32"), B: T.Tensor((64, 32), "float32")):
        with T.Kernel(1) as bx:
            s = T.alloc_shared((16, 32), "float32")
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[k * 16, 0], s)
                T.copy(s, B[k * 16, 0])

    before_after(copies, plan_pipeline)


def test_a_wrong_schedule_is_an_error() -> None:
    @T.prim_func
    def copies(A: T.Tensor((64, 32), "float32"), B: T.Tensor((64, 32), "float32")):
        with T.Kernel(1) as bx:
            s = T.alloc_shared((16, 32), "float32")
            for k in T.Pipelined(4, order=[0, 1, 2], stage=[0, 0, 1]):
                T.copy(A[k * 16, 0], s)
                T.copy(s, B[k * 16, 0])

    with pytest.raises(PipelineOrderError, match="3 entries"):
        plan_pipeline(copies, CompileContext())


def test_drop_hints(before_after: Any) -> None:
    @T.prim_func
    def hints(A: T.Tensor((32,), "float32")):
        with T.Kernel(1) as bx:
            T.use_swizzle(10)
            T.fill(A, 1)

    ctx = before_after(hints, drop_hints)
    assert "hint has no effect" in json.dumps(ctx.report.to_json())


def test_unroll_loops(before_after: Any) -> None:
    """Each step has its own loop variables; of more steps than are written out, of unknown ones, and of those that a break
    leaves the loop stays."""

    @T.prim_func
    def loops(A: T.Tensor((4, 8), "float32"), N: T.Tensor((1,), "int32"), B: T.Tensor((4, 8), "float32")):
        with T.Kernel(1) as bx:
            for r in T.unroll(1, 3):
                for j in T.serial(8):
                    twice = A[r, j] * 2
                    B[r, j] = twice + r
            for r in T.unroll(2):
                for j in T.unroll(2):
                    B[r * 3, j] = 1
            for r in T.unroll(MOST + 1):
                A[0, r % 8] += 1
            for r in T.unroll(N[0]):
                A[1, r] += 1
            for r in T.unroll(4):
                if A[2, r] > 0:
                    break
                A[2, r] = 1

    before_after(loops, unroll_loops)


@pytest.mark.parametrize(("steps", "written"), [(32, 32 * 32), (33, 33)])
def test_nested_loops_are_written_out_to_so_many_statements(steps: int, written: int) -> None:
    @T.prim_func
    def loops(A: T.Tensor((64, 64), "float32")):
        with T.Kernel(1) as bx:
            for i in T.unroll(steps):
                for j in T.unroll(steps):
                    A[i, j] = i + j

    after = unroll_loops(loops, CompileContext())
    assert sum(isinstance(node, tir.BufferStore) for node in tile_ir.walk(after.body)) == written


@pytest.mark.parametrize(
    ("promise", "guards"),
    [
        (lambda n, bx: None, True),
        (lambda n, bx: T.assume(n % 32 == 0), False),
        (lambda n, bx: T.assume(n % 16 == 0), True),
    ],
)
def test_a_promise_spares_the_guards_of_elements_and_tiles(promise: Any, guards: bool) -> None:
    """What `T.assume` says reaches every pass of the CPU target that guards accesses; then it goes."""

    @T.prim_func
    def scale(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32)) as bx:
            promise(n, bx)
            tile = T.alloc_shared((32,), "float32")
            T.copy(A[bx * 32], tile)
            for i in T.Parallel(32):
                B[bx * 32 + i] = tile[i] * 2

    ctx = CompileContext()
    lowered, _ = run_passes(scale, pipeline.CPU, ctx)
    text = readable(lowered)
    assert ("T.min(32, n - bx * 32)" in text) is guards, text
    assert "assume" not in text
    assert "T.assume" not in json.dumps(ctx.report.to_json())


def test_serialize_threads_without_lanes(before_after: Any) -> None:
    @T.prim_func
    def plain(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            x = T.alloc_var("float32", init=1.0)
            x = x * 2
            for i in T.Parallel(32):
                A[i] = x

    before_after(plain, serialize_threads)


def test_serialize_threads_with_barriers(before_after: Any) -> None:
    @T.prim_func
    def reverse(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((32,), "float32")
            kept = T.alloc_local((2,), "float32")
            place = bx * 32 + tx
            kept[0] = A[place]
            s[tx] = kept[0]
            T.sync_threads()
            B[place] = kept[0] + s[31 - tx]

    before_after(reverse, serialize_threads)


def test_serialize_threads_under_a_mask(before_after: Any) -> None:
    @T.prim_func
    def total(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((32,), "float32")
            s[tx] = A[tx]
            for step in T.serial(5):
                if tx < T.shift_right(16, step):
                    s[tx] = s[tx] + s[tx + T.shift_right(16, step)]
            if tx == 0:
                A[0] = s[0]

    before_after(total, serialize_threads)


def test_leaving_a_loop_of_the_block_alone_is_an_error() -> None:
    @T.prim_func
    def wrong(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            s = T.alloc_shared((32,), "float32")
            for k in T.serial(4):
                T.copy(A, s)
                if T.get_thread_binding() > k:
                    break

    with pytest.raises(DivergentControl, match="break or continue"):
        serialize_threads(wrong, CompileContext())


def test_bounds(before_after: Any) -> None:
    @T.prim_func
    def shifted(A: T.Tensor((n,), "float32"), I: T.Tensor((n,), "int32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32)) as bx:
            T.annotate_safe_value({A: -1.0})
            for i in T.Parallel(32):
                B[bx * 32 + i] = A[bx * 32 + i] + A[bx * 32 + i - 1] + A[I[bx * 32 + i]]

    before_after(shifted, bounds)


def test_bounds_that_are_proven(before_after: Any) -> None:
    @T.prim_func
    def inside(A: T.Tensor((4, 64), "float32"), B: T.Tensor((n, 64), "float32")):
        with T.Kernel(2, n) as (bx, by):
            for i, j in T.Parallel(4, 32):
                A[i, bx * 32 + j] = A[(i + 1) % 4, bx * 32 + j] + B[by, bx * 32 + j]
            for j in T.serial(100):
                if j < 64:
                    B[by, j] = 0.0

    before_after(inside, bounds)


def test_lower_copy(before_after: Any) -> None:
    @T.prim_func
    def copies(A: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 8)) as (bx, by):
            s = T.alloc_shared((8, 32), "float32")
            T.copy(A[by * 8, bx * 32], s)
            T.copy(s[0:4, :], s[4:8, :])
            T.copy(s, A[by * 8, bx * 32])

    before_after(copies, lower_tile_ops)


def test_lower_reduce(before_after: Any) -> None:
    @T.prim_func
    def reduction(A: T.Tensor((4, 20), "float32"), R: T.Tensor((4,), "float32"), C: T.Tensor((20,), "float32")):
        with T.Kernel(1) as bx:
            T.reduce_sum(A, R, dim=1, clear=False)
            T.reduce_max(A, C, dim=0)

    before_after(reduction, lower_tile_ops)


def test_lower_scan(before_after: Any) -> None:
    @T.prim_func
    def scan(A: T.Tensor((4, 32), "float32")):
        with T.Kernel(1) as bx:
            T.cumsum(A, A, dim=1)
            T.cumsum(A, A, dim=0, reverse=True)

    before_after(scan, lower_tile_ops)


def test_lower_gemm_without_a_kernel_of_the_target(before_after: Any) -> None:
    @T.prim_func
    def product(A: T.Tensor((4, 8), "float16"), B: T.Tensor((6, 8), "float16"), C: T.Tensor((4, 6), "float32")):
        with T.Kernel(1) as bx:
            a, b = T.alloc_shared((4, 8), "float16"), T.alloc_shared((6, 8), "float16")
            c = T.alloc_fragment((4, 6), "float32")
            T.gemm(a, b, c, transpose_B=True)
            T.gemm(A, b, c, transpose_B=True)

    before_after(product, lower_tile_ops)


def test_relax_atomics(before_after: Any) -> None:
    @T.prim_func
    def histogram(A: T.Tensor((16,), "int32"), H: T.Tensor((8,), "int32")):
        with T.Kernel(1) as bx:
            s = T.alloc_shared((8,), "int32")
            for i in T.serial(16):
                T.atomic_add(s[A[i]], 1)
            T.atomic_add(H, s)

    before_after(histogram, relax_atomics, first=(bounds, lower_tile_ops))


def test_lower_parallel(before_after: Any) -> None:
    @T.prim_func
    def rescale(S: T.Tensor((m,), "float32"), A: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 64)) as bx:
            acc = T.alloc_fragment((8, 40), "float32")
            scale = T.alloc_fragment((8,), "float32")
            for i, j in T.Parallel(8, 40):
                acc[i, j] = acc[i, j] * scale[i]
            for j, i in T.Parallel(40, 8):
                acc[i, j] = T.if_then_else(i >= j, acc[i, j], 0.0)
            for i, j in T.Parallel(8, 64):
                A[i, bx * 64 + j] = A[i, bx * 64 + j] * 2

    before_after(rescale, lower_parallel, first=(bounds,))


def test_lower_parallel_of_whole_steps(before_after: Any) -> None:
    """No step is clipped to n, and the rows' condition stays around vectors of a static number."""

    @T.prim_func
    def sums(A: T.Tensor((m, n), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(T.ceildiv(m, 4)) as bx:
            total = T.alloc_shared((4, 32), "float32")
            for step in T.serial(n // 32):
                for i, j in T.Parallel(4, 32):
                    total[i, j] += A[bx * 4 + i, step * 32 + j]
            for j in T.Parallel(32):
                B[j] = total[0, j] + total[1, j] + total[2, j] + total[3, j]

    before_after(sums, lower_parallel, first=(bounds,))


def test_lower_parallel_keeps_private_values_apart(before_after: Any) -> None:
    @T.prim_func
    def poly(A: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            for i in T.Parallel(64):
                acc = T.alloc_var("float32", init=0.0)
                x = A[i]
                for k in T.serial(5):
                    acc = acc * x + 1
                A[i] = acc

    before_after(poly, lower_parallel)


def test_lower_parallel_reports_what_it_cannot_decide() -> None:
    @T.prim_func
    def scatter(A: T.Tensor((64,), "float32"), I: T.Tensor((64,), "int32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            for i in T.Parallel(64):
                B[I[i]] = A[i]

    ctx = CompileContext()
    lower_parallel(bounds(scatter, ctx), ctx)
    assert any("different iterations of i" in text for text in ctx.report.assumed)


def test_plan_scratch(before_after: Any) -> None:
    @T.prim_func
    def tiles(A: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            for k in T.serial(2):
                a = T.alloc_shared((33,), "float16")
                b = T.alloc_fragment((8, 8), "float32")
                c = T.reshape(b, (64,))
                d = T.alloc_local((4,), "float32")
                a[0] = T.cast(k, "float16")
                d[0] = 1.0
                b[0, 0] = d[0]
                c[1] = d[0]

    before_after(tiles, plan_scratch)


def test_every_pass_is_traced() -> None:
    @T.prim_func
    def nothing(A: T.Tensor((64,), "float32")):
        with T.Kernel(1) as bx:
            T.clear(A)

    _, trace = run_passes(nothing, pipeline.CPU, CompileContext())
    assert [s.name for s in trace.steps] == [name for name, _ in pipeline.CPU]
    assert "(unchanged)" in trace.text()
    assert "+    for i_chunk in range(4):" in trace.text(diffs=True)
    assert set(trace.timings()) == {name for name, _ in pipeline.CPU}
