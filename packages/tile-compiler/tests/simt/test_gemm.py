"""Products: tensor instructions for every element type and form of operand, and plain multiply-add."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import threads as simt

import tilelang.language as T
from tile_compiler.simt.errors import LayoutConflict


def tiles(rng: Any, dtype: str, *shapes: tuple[int, int]) -> list[Any]:
    kind = T.dtype(dtype).as_numpy()
    if dtype in ("int8", "uint8"):
        return [rng.integers(0 if dtype == "uint8" else -9, 9, s).astype(kind) for s in shapes]
    return [rng.standard_normal(s).astype(kind) for s in shapes]


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(
    ("dtype", "result", "instruction"),
    [
        ("float16", "float32", "m16n8k16_f32_f16"),
        ("bfloat16", "float32", "m16n8k16_f32_bf16"),
        ("int8", "int32", "m16n8k32_s32_s8"),
        ("uint8", "int32", "m16n8k32_s32_u8"),
        ("float8_e4m3fn", "float32", "m16n8k32_f32_e4m3"),
        ("float32", "float32", ""),
        ("float16", "float16", ""),
    ],
)
def test_types_and_transposes(
    rng: Any, check: Any, dtype: str, result: str, instruction: str, trans_a: bool, trans_b: bool
) -> None:
    M, N, K = 32, 40, 64
    shape_a, shape_b = ((K, M) if trans_a else (M, K)), ((N, K) if trans_b else (K, N))

    @T.prim_func
    def product(A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor((M, N), result)):
        with T.Kernel(1, threads=64) as bx:
            a = T.alloc_shared(shape_a, dtype)
            b = T.alloc_shared(shape_b, dtype)
            c = T.alloc_fragment((M, N), result)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_A=trans_a, transpose_B=trans_b)
            T.copy(c, C)

    args = [*tiles(rng, dtype, shape_a, shape_b), np.zeros((M, N), result)]
    trace, _ = check(product, args, rtol=2e-2 if result == "float16" else 1e-4, atol=1e-2, arch="sm_89", passes=False)
    found = simt.calls(trace.steps[-1].after, "tl::mma")
    assert bool(found) == bool(instruction)
    assert all(str(f.args[0].value) == f"tl::mma_{instruction}" for f in found)


@pytest.mark.parametrize("policy", list(T.GemmWarpPolicy))
@pytest.mark.parametrize("threads", [32, 96, 128, 256])
def test_policies(rng: Any, check: Any, policy: Any, threads: int) -> None:
    @T.prim_func
    def product(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 48), "float16"), C: T.Tensor((64, 48), "float32")):
        with T.Kernel(1, threads=threads) as bx:
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 48), "float16")
            c = T.alloc_fragment((64, 48), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, policy=policy, clear_accum=True)
            T.copy(c, C)

    args = [*tiles(rng, "float16", (64, 32), (32, 48)), np.zeros((64, 48), "float32")]
    check(product, args, rtol=1e-4, atol=1e-4, passes=False)


@pytest.mark.parametrize("which", ["a", "b", "ab"])
def test_operands_in_registers(rng: Any, check: Any, which: str) -> None:
    @T.prim_func
    def product(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_fragment((64, 32), "float16") if "a" in which else T.alloc_shared((64, 32), "float16")
            b = T.alloc_fragment((32, 64), "float16") if "b" in which else T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    args = [*tiles(rng, "float16", (64, 32), (32, 64)), np.zeros((64, 64), "float32")]
    check(product, args, rtol=1e-4, atol=1e-4)


def test_result_of_one_product_is_operand_of_the_next(rng: Any, check: Any) -> None:
    """Full rows: no exchange between threads. Split columns: through shared memory, and the report says so."""
    for policy, exchanged in ((T.GemmWarpPolicy.FullRow, False), (T.GemmWarpPolicy.FullCol, True)):

        @T.prim_func
        def chain(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
            with T.Kernel(1, threads=128) as bx:
                a = T.alloc_shared((64, 64), "float16")
                b = T.alloc_shared((64, 64), "float16")
                s = T.alloc_fragment((64, 64), "float32")
                p = T.alloc_fragment((64, 64), "float16")
                c = T.alloc_fragment((64, 64), "float32")
                T.copy(A, a)
                T.copy(B, b)
                T.gemm(a, b, s, clear_accum=True, policy=policy)
                T.copy(s, p)
                T.gemm(p, b, c, clear_accum=True, policy=policy)
                T.copy(c, C)

        args = [*tiles(rng, "float16", (64, 64), (64, 64)), np.zeros((64, 64), "float32")]
        _, ctx = check(chain, args, rtol=1e-2, atol=1e-2)
        assert any("through shared memory" in text for _, text in ctx.report.notes) == exchanged


def test_conflict_names_both_lines_and_the_repair(lower: Any) -> None:
    @T.prim_func
    def conflict(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 64), "float16")
            p = T.alloc_fragment((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(A, p)
            T.gemm(a, a, s, clear_accum=True)
            for i, j in T.Parallel(64, 64):
                p[i, j] = s[j, i]
            T.gemm(p, a, s)
            T.copy(s, C)

    with pytest.raises(LayoutConflict) as caught:
        lower(conflict)
    text = str(caught.value)
    assert "T.Parallel" in text
    assert "T.gemm" in text
    assert text.count("thread") >= 2
    assert "shared" in text


def test_operands_in_global_memory_and_shared_result(rng: Any, check: Any) -> None:
    @T.prim_func
    def product(A: T.Tensor((30, 20), "float16"), B: T.Tensor((20, 24), "float16"), C: T.Tensor((30, 24), "float32")):
        with T.Kernel(1, threads=32) as bx:
            c = T.alloc_shared((32, 24), "float32")
            T.clear(c)
            T.gemm(A[0:32, 0:32], B[0:32, :], c)
            T.copy(c[0, 0], C)

    args = [*tiles(rng, "float16", (30, 20), (20, 24)), np.zeros((30, 24), "float32")]
    check(product, args, rtol=1e-4, atol=1e-4)


def test_small_tile_that_two_distributions_need_is_given_to_all(rng: Any, check: Any) -> None:
    """Row sums of a product with an instruction scale one without: neither's threads have the other's rows."""

    @T.prim_func
    def mixed(A: T.Tensor((32, 32), "float16"), B: T.Tensor((32, 32), "float32"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=64) as bx:
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float32")
            fast = T.alloc_fragment((32, 32), "float32")
            slow = T.alloc_fragment((32, 32), "float32")
            rows = T.alloc_fragment((32,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, a, fast, clear_accum=True)
            T.gemm(b, b, slow, clear_accum=True)
            T.reduce_max(fast, rows, dim=1)
            for i, j in T.Parallel(32, 32):
                slow[i, j] += rows[i]
            T.copy(slow, C)

    args = [rng.standard_normal((32, 32)).astype(d) for d in ("float16", "float32")]
    _, ctx = check(mixed, [*args, np.zeros((32, 32), "float32")], rtol=1e-4, atol=1e-4)
    assert any("rows: every thread holds it" in text for _, text in ctx.report.notes)
