"""Copies straight to LDS on gfx942: who copies which word, when a wait may leave loads in flight, what takes another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler.rewrite import is_call
from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.errors import SharedMemoryRace
from tilelang.ir import tile_ir

n = T.dynamic("n")


def product(stages: int, steps: Any, dtype: str = "float16", threads: int = 128) -> Any:
    """C = A B over `steps` steps of 32; the tiles of A and B are swizzled."""

    @T.prim_func
    def main(
        A: T.Tensor((steps, 64, 32), dtype), B: T.Tensor((steps, 32, 64), dtype), C: T.Tensor((64, 64), "float32")
    ):
        with T.Kernel(1, threads=threads):
            a, b = T.alloc_shared((64, 32), dtype), T.alloc_shared((32, 64), dtype)
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(steps, num_stages=stages):
                T.copy(A[k, 0, 0], a)
                T.copy(B[k, 0, 0], b)
                T.gemm(a, b, acc)
            T.copy(acc, C)

    return main


def operands(rng: Any, steps: int, dtype: str = "float16") -> list[Any]:
    a, b = rng.standard_normal((steps, 64, 32)), rng.standard_normal((steps, 32, 64))
    return [a.astype(dtype), b.astype(dtype), np.zeros((64, 64), "float32")]


def names(trace: Any) -> list[str]:
    return [str(n.args[0].value) for n in tile_ir.walk(trace.steps[-1].after.body) if is_call(n, "tirx.call_extern")]


@pytest.mark.parametrize(
    ("stages", "steps"), [(1, 2), (2, 0), (2, 7), (3, 1), pytest.param(3, 7, marks=pytest.mark.full), (4, 2)]
)
def test_pipelined_product(rng: Any, proved: Any, stages: int, steps: int) -> None:
    trace, _ = proved(product(stages, n), operands(rng, steps), 1e-2, 1e-2, arch="gfx942", passes=steps == 7)
    assert "tl::load_to_lds<4>" in names(trace)
    assert not [name for name in names(trace) if name.startswith("tl::cp_async")]


@pytest.mark.parametrize(("stages", "waits"), [(2, {0}), (3, {16, 0}), (4, {32, 16, 0})])
def test_a_wait_leaves_the_loads_of_later_iterations_in_flight(
    rng: Any, proved: Any, stages: int, waits: set[int]
) -> None:
    """16 loads of a wave for an iteration's tiles of 4 KiB each: 2 x 1024 words by 128 threads."""
    trace, _ = proved(product(stages, n), operands(rng, 5), 1e-2, 1e-2, arch="gfx942", passes=False)
    found = {int(name[15:-1]) for name in names(trace) if name.startswith("tl::wait_loads<")}
    assert found <= waits
    assert max(found) == max(waits)


@pytest.mark.parametrize(("dtype", "threads"), [("float32", 64), ("float16", 256), ("bfloat16", 192)])
def test_other_elements_and_blocks(rng: Any, proved: Any, dtype: str, threads: int) -> None:
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype

    @T.prim_func
    def turned(A: T.Tensor((4, 32, 64), dtype), B: T.Tensor((64, 32), "float32")):
        with T.Kernel(1, threads=threads):
            s = T.alloc_shared((32, 64), dtype)
            total = T.alloc_fragment((64, 32), "float32")
            T.clear(total)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k, 0, 0], s)
                for i, j in T.Parallel(64, 32):
                    total[i, j] += s[j, i]
            T.copy(total, B)

    args = [rng.standard_normal((4, 32, 64)).astype(kind), np.zeros((64, 32), "float32")]
    trace, _ = proved(turned, args, 1e-2, 1e-2, arch="gfx942")
    assert "tl::load_to_lds<4>" in names(trace)


def test_copies_under_a_condition_are_waited_for_altogether(rng: Any, proved: Any) -> None:
    @T.prim_func
    def sparse(A: T.Tensor((6, 32, 32), "float16"), M: T.Tensor((6,), "int32"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for k in T.Pipelined(6, num_stages=3):
                if M[k] > 0:
                    T.copy(A[k, 0, 0], a)
                    for i, j in T.Parallel(32, 32):
                        c[i, j] += a[j, i]
            T.copy(c, C)

    for mask in ([1, 0, 0, 1, 1, 0], [0] * 6, [1] * 6):
        args = [
            rng.standard_normal((6, 32, 32)).astype("float16"),
            np.array(mask, "int32"),
            np.zeros((32, 32), "float32"),
        ]
        trace, _ = proved(sparse, args, 1e-3, 1e-3, arch="gfx942", passes=mask[0] == 1)
    assert {name for name in names(trace) if name.startswith("tl::wait_loads")} == {"tl::wait_loads<0>"}


REASONS = {
    "reach past the end of A": {"columns": 100},
    "elements are converted": {"source": "float32"},
    "no whole waves": {"threads": 96},
    "has gaps": {"padded": True},
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_cannot_go_straight_says_why(rng: Any, proved: Any, reason: str) -> None:
    case = {"columns": 128, "source": "float16", "threads": 64, "padded": False, **REASONS[reason]}
    columns, source = case["columns"], case["source"]

    @T.prim_func
    def main(A: T.Tensor((32, columns), source), B: T.Tensor((32, 64), "float32")):
        with T.Kernel(1, threads=case["threads"]):
            s = T.alloc_shared((32, 64), "float16")
            total = T.alloc_fragment((32, 64), "float32")
            if case["padded"]:
                T.annotate_layout({s: T.Layout((32, 64), lambda i, j: i * 72 + j)})
            T.clear(total)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 64], s)
                for i, j in T.Parallel(32, 64):
                    total[i, j] += s[31 - i, j]
            T.copy(total, B)

    args = [rng.standard_normal((32, columns)).astype(source), np.zeros((32, 64), "float32")]
    trace, ctx = proved(main, args, 1e-2, 1e-2, arch="gfx942")
    assert not [name for name in names(trace) if name.startswith(("tl::load_to_lds", "tl::wait_loads", "tl::cp_async"))]
    assert any("not straight to LDS" in text and reason in text for _, text in ctx.report.notes), ctx.report.notes


def test_every_wait_is_needed(rng: Any, lower: Any) -> None:
    """A wait that leaves one load more in flight is refuted by the checker, which counts each wave's loads."""
    trace, ctx = lower(product(3, n), "gfx942")
    final = trace.steps[-1].after
    waits = [node for node in tile_ir.walk(final.body) if isinstance(node, tir.Evaluate) and _pending(node) is not None]
    assert waits
    for wait in waits:
        more = tir.Evaluate(tir.call_extern("int32", f"tl::wait_loads<{_pending(wait) + 1}>"), span=wait.span)
        with pytest.raises(SharedMemoryRace, match="still being copied to"):
            check_synchronization(final.with_body(_replaced(final.body, wait, more)), ctx)


def _pending(node: Any) -> int | None:
    name = str(node.value.args[0].value) if is_call(node.value, "tirx.call_extern") else ""
    return int(name[15:-1]) if name.startswith("tl::wait_loads<") else None


def _replaced(body: Any, old: Any, new: Any) -> Any:
    from tile_compiler.rewrite import Rewriter

    class Replace(Rewriter):
        def evaluate(self, node: Any) -> Any:
            return new if node.same_as(old) else node

    return Replace().body(body)
