"""The passes on AMD: the printed HIP text, run by the emulator in waves of 64, gives the interpreter's answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_texts import printed

import tilelang.language as T

ARCHS = ["gfx90a", "gfx942"]
m, n = T.dynamic("m"), T.dynamic("n")
pytestmark = pytest.mark.parametrize("arch", ARCHS)


def text(func: Any, trace: Any, ctx: Any) -> str:
    return printed(func, trace.steps[-1].after, ctx).source


def test_vectors_of_16_bytes_and_no_needless_predicates(rng: Any, proved: Any, arch: str) -> None:
    @T.prim_func
    def scaled(A: T.Tensor((256, 64), "float16"), B: T.Tensor((256, 64), "float16")):
        with T.Kernel(4, threads=64) as bx:
            for i, j in T.Parallel(64, 64):
                B[bx * 64 + i, j] = A[bx * 64 + i, j] * T.float16(2)

    args = [rng.standard_normal((256, 64)).astype("float16"), np.zeros((256, 64), "float16")]
    trace, ctx = proved(scaled, args, arch=arch, passes=False)
    source = text(scaled, trace, ctx)
    assert "tl::vec<tl::half_t, 8>" in source
    assert "if (" not in source


@pytest.mark.parametrize("stages", [0, 1, 3])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_pipelines_of_any_length(rng: Any, proved: Any, arch: str, stages: int, length: int) -> None:
    @T.prim_func
    def summed(A: T.Tensor((n, 64), "float16"), M: T.Tensor((n,), "int32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "float16")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for k in T.Pipelined(n, num_stages=stages):
                if M[k] > 0:
                    T.copy(A[k, :], s)
                    for i in T.Parallel(64):
                        total[i] = total[i] + s[63 - i]
            T.copy(total, B)

    args = [rng.standard_normal((length, 64)).astype("float16"), np.arange(length, dtype="int32") % 2]
    proved(summed, [*args, np.zeros(64, "float32")], arch=arch, passes=False)


def test_explicit_order_and_stage(rng: Any, proved: Any, arch: str) -> None:
    @T.prim_func
    def summed(A: T.Tensor((6, 128), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((128,), "float32")
            total = T.alloc_fragment((128,), "float32")
            T.clear(total)
            for k in T.Pipelined(6, order=[0, 1], stage=[0, 1]):
                T.copy(A[k, :], s)
                for i in T.Parallel(128):
                    total[i] = total[i] + s[127 - i]
            T.copy(total, B)

    proved(summed, [rng.standard_normal((6, 128)).astype("float32"), np.zeros(128, "float32")], arch=arch)


def test_scans_and_old_content(rng: Any, proved: Any, arch: str) -> None:
    @T.prim_func
    def scans(A: T.Tensor((16, 40), "int32"), B: T.Tensor((16, 40), "int32"), S: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=64):
            f, rows = T.alloc_fragment((16, 40), "int32"), T.alloc_fragment((16,), "int32")
            T.copy(A, f)
            T.copy(S, rows)
            T.reduce_sum(f, rows, dim=1, clear=False)
            T.cumsum(f, dim=1)
            T.copy(rows, S)
            T.copy(f, B)

    args = [rng.integers(-9, 9, (16, 40)).astype("int32"), np.zeros((16, 40), "int32")]
    proved(scans, [*args, rng.integers(-9, 9, 16).astype("int32")], arch=arch)


def test_atomics(rng: Any, proved: Any, arch: str) -> None:
    @T.prim_func
    def counted(A: T.Tensor((64, 32), "float32"), S: T.Tensor((32,), "float32"), V: T.Tensor((64,), "float32")):
        with T.Kernel(4, threads=64) as bx:
            f, s = T.alloc_fragment((16, 32), "float32"), T.alloc_fragment((32,), "float32")
            T.copy(A[bx * 16, 0], f)
            T.reduce_sum(f, s, dim=0)
            T.atomic_add(S, s)
            for i in T.Parallel(16):
                T.atomic_addx4(V[i * 4], A[bx * 16, 4 * (i % 8)])

    args = [rng.standard_normal((64, 32)).astype("float32"), np.zeros(32, "float32"), np.zeros(64, "float32")]
    trace, ctx = proved(counted, args, 1e-4, 1e-4, arch=arch, passes=False)
    assert "tl::atomic_add(" in text(counted, trace, ctx)


def test_panels_and_shared_memory_by_liveness(rng: Any, proved: Any, arch: str) -> None:
    @T.prim_func
    def phases(A: T.Tensor((96, 256), "float32"), B: T.Tensor((96, 256), "float32")):
        with T.Kernel(4, 3, threads=64) as (bx, by):
            T.use_swizzle(2)
            first, second = T.alloc_shared((32, 64), "float32"), T.alloc_shared((64, 32), "float32")
            f = T.alloc_fragment((32, 64), "float32")
            T.copy(A[by * 32, bx * 64], first)
            for i, j in T.Parallel(32, 64):
                f[i, j] = first[31 - i, j] + by
            for i, j in T.Parallel(32, 64):
                second[j, i] = f[i, j]
            for i, j in T.Parallel(32, 64):
                B[by * 32 + i, bx * 64 + j] = second[63 - j, i]

    args = [rng.standard_normal((96, 256)).astype("float32"), np.zeros((96, 256), "float32")]
    _, ctx = proved(phases, args, arch=arch, passes=False)
    assert ctx.shared_bytes == {0: 8192}  # the second tile lies over the first
    assert any("blocks run in panels of 2" in note for _, note in ctx.report.notes)


def test_offsets_of_large_tensors_have_64_bits(rng: Any, proved: Any, arch: str) -> None:
    @T.prim_func
    def rows(A: T.Tensor((m, n), "float32"), B: T.Tensor((8, n), "float32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            for i, j in T.Parallel(8, 64):
                B[i, bx * 64 + j] = A[m - 8 + i, bx * 64 + j]

    args = [rng.standard_normal((11, 100)).astype("float32"), np.zeros((8, 100), "float32")]
    trace, ctx = proved(rows, args, arch=arch, passes=False)
    assert "(int64_t)" in text(rows, trace, ctx)
