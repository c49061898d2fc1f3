"""One hook for both: before each tile operator the emulator shows the arrays that the interpreter shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import interpret

Seen = list[tuple[str, tuple[int, ...], dict[str, np.ndarray[Any, Any]]]]


@contextmanager
def hooked(hook: Callable[..., Any]) -> Iterator[None]:
    interpret.hook = hook
    try:
        yield
    finally:
        interpret.hook = None


def watch(func: Any, execution: str, args: tuple[Any, ...]) -> Seen:
    """What a hook sees of one call: the operator, the block, copies of all arrays."""
    seen: Seen = []

    def hook(operator: Any, block: tuple[int, ...], arrays: Mapping[str, Any]) -> None:
        if getattr(operator, "NAME", "") == "tl.sync_threads":
            return  # where the device has a barrier is the compiler's affair
        copies = {name: np.array(array) for name, array in arrays.items()}
        seen.append((getattr(operator, "NAME", ""), block, copies))

    kernel = tilelang.compile(func, target="cuda -arch=sm_80", execution=execution)
    with hooked(hook):
        kernel(*args)
    return seen


def same(func: Any, args: tuple[Any, ...], tolerance: float, names: set[str]) -> Seen:
    """Both ways stop at the same operators of the same blocks, and show equal arrays where they are written."""
    ways = {how: watch(func, how, tuple(np.array(a) for a in args)) for how in ("interpret", "emulate")}
    defined, found = ways["interpret"], ways["emulate"]
    assert [(name, block) for name, block, _ in found] == [(name, block) for name, block, _ in defined]
    shown: set[str] = set()
    for number, ((name, block, want), (_, _, got)) in enumerate(zip(defined, found)):
        for buffer, array in want.items():
            # Memory that nobody wrote is all ones in the interpreter: NaN, -1.
            written = ~np.isnan(array.astype("f8")) if array.dtype.kind == "f" else array != -1
            if not written.any():
                continue
            shown.add(buffer)
            assert buffer in got, f"stop {number}, {name} of block {block}: {buffer} is not shown"
            assert got[buffer].shape == array.shape, buffer
            assert got[buffer].dtype == array.dtype, buffer
            np.testing.assert_allclose(
                got[buffer][written].astype("f8"),
                array[written].astype("f8"),
                tolerance,
                tolerance,
                err_msg=f"stop {number}, {name} of block {block}: {buffer}",
            )
    assert names <= shown, f"never compared: {names - shown}"
    return found


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("shape", [(64, 64, 64), (50, 70, 40)])
def test_product_with_fused_relu(shape: tuple[int, int, int]) -> None:
    m, n, k = shape

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=64) as (bx, by):
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for step in T.serial(T.ceildiv(k, 32)):
                T.copy(A[by * 32, step * 32], a)
                T.copy(B[step * 32, bx * 32], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(32, 32):
                c[i, j] = T.max(c[i, j], 0)
            T.copy(c, C[by * 32, bx * 32])

    args = (normal(m, k, dtype="float16"), normal(k, n, dtype="float16", seed=1), np.zeros((m, n), "f4"))
    seen = same(main, args, 1e-3, {"A", "B", "C", "a", "b", "c"})
    assert {name for name, _, _ in seen} == {"tl.fill", "tl.copy", "tl.gemm", ""}


def test_softmax_has_replicated_fragments() -> None:
    @T.prim_func
    def main(X: T.Tensor((60, 100), "float32"), Y: T.Tensor((60, 100), "float32")):
        with T.Kernel(T.ceildiv(60, 32), threads=128) as bx:
            x = T.alloc_fragment((32, 100), "float32")
            top = T.alloc_fragment((32,), "float32")
            total = T.alloc_fragment((32,), "float32")
            T.copy(X[bx * 32, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(32, 100):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(32, 100):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * 32, 0])

    same(main, (normal(60, 100), np.zeros((60, 100), "f4")), 1e-5, {"X", "x", "top", "total"})


def test_integers_scans_and_arrays_of_each_thread() -> None:
    @T.prim_func
    def main(X: T.Tensor((2, 96), "int32"), Y: T.Tensor((2, 96), "int32")):
        with T.Kernel(2, threads=96) as bx:
            row = T.alloc_shared((96,), "int32")
            sums = T.alloc_shared((96,), "int32")
            mine = T.alloc_local((2,), "int32")
            tx = T.get_thread_binding()
            mine[0] = tx
            mine[1] = X[bx, tx] * 2
            T.copy(X[bx, 0], row)
            T.cumsum(row, sums, dim=0)
            Y[bx, tx] = mine[1]
            T.sync_threads()
            T.copy(sums, Y[bx, 0])

    x = np.random.default_rng(3).integers(1, 50, (2, 96)).astype("i4")
    same(main, (x, np.zeros((2, 96), "i4")), 0, {"X", "row", "sums", "mine"})


def pipelined() -> Any:
    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(2, 2, threads=64) as (bx, by):
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for step in T.Pipelined(4, num_stages=2):
                T.copy(A[by * 32, step * 32], a)
                T.copy(B[step * 32, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    return main


@pytest.mark.parametrize("mode", ["early", "late"])
def test_versions_of_a_pipelined_tile(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the n-th T.gemm its operands are in one of the versions, and the sum is that of the steps before."""
    monkeypatch.setenv("TILELANG_EMULATE_MODE", mode)
    a, b = normal(64, 128, dtype="float16"), normal(128, 64, dtype="float16", seed=1)
    gemms = [
        entry for entry in watch(pipelined(), "emulate", (a, b, np.zeros((64, 64), "f4"))) if entry[0] == "tl.gemm"
    ]
    assert len(gemms) == 4 * 4
    for number, (_, (bx, by), arrays) in enumerate(gemms):
        step = number % 4
        rows, columns = slice(by * 32, by * 32 + 32), slice(bx * 32, bx * 32 + 32)
        depth = slice(step * 32, step * 32 + 32)
        assert arrays["a"].shape[1:] == (32, 32)
        assert any(np.array_equal(version, a[rows, depth]) for version in arrays["a"])
        assert any(np.array_equal(version, b[depth, columns]) for version in arrays["b"])
        before = a[rows, : step * 32].astype("f8") @ b[: step * 32, columns].astype("f8")
        np.testing.assert_allclose(arrays["c"], before, 1e-3, 1e-3)


def test_operator_knows_its_line() -> None:
    found = []

    def hook(operator: Any, block: tuple[int, ...], arrays: Any) -> None:
        found.append(operator)

    kernel = tilelang.compile(pipelined(), target="cuda -arch=sm_80", execution="emulate")
    with hooked(hook):
        kernel(normal(64, 128, dtype="float16"), normal(128, 64, dtype="float16"), np.zeros((64, 64), "f4"))
    source = Path(__file__).read_text().splitlines()
    assert {operator.file for operator in found} == {__file__}
    for operator in found:
        assert source[operator.line - 1].strip().startswith(("T.copy(", "T.gemm(", "T.clear("))
        family = {"T.fill": "T.clear("}.get(operator.text, f"{operator.text}(")
        assert source[operator.line - 1].strip().startswith(family)


def test_one_block_alone_gathers_little() -> None:
    """Tiles are gathered when they are asked for; what a hook changes in them changes nothing."""
    a, b = normal(64, 128, dtype="float16"), normal(128, 64, dtype="float16", seed=1)
    sums = []

    def hook(operator: Any, block: tuple[int, ...], arrays: Any) -> None:
        if block == (1, 0) and operator.NAME == "tl.gemm":
            tile = arrays["c"]
            sums.append(float(np.abs(tile).sum()))
            tile[:] = 7

    c = np.zeros((64, 64), "f4")
    kernel = tilelang.compile(pipelined(), target="cuda -arch=sm_80", execution="emulate")
    with hooked(hook):
        kernel(a, b, c)
    assert len(sums) == 4
    assert sums[0] == 0 < sums[1]
    np.testing.assert_allclose(c, a.astype("f8") @ b.astype("f8"), 1e-3, 1e-2)


def test_error_of_a_hook_reaches_the_caller() -> None:
    def hook(operator: Any, block: tuple[int, ...], arrays: Any) -> None:
        raise KeyError(operator.NAME)

    kernel = tilelang.compile(pipelined(), target="cuda -arch=sm_80", execution="emulate")
    args = normal(64, 128, dtype="float16"), normal(128, 64, dtype="float16"), np.zeros((64, 64), "f4")
    with hooked(hook), pytest.raises(KeyError, match=r"tl\.fill"):
        kernel(*args)
    kernel(*args)  # the process and the kernel go on


def test_findings_are_the_same_with_a_hook(planted: Any) -> None:
    """A stop is no barrier."""

    @T.prim_func
    def reverse(X: T.Tensor((128,), "int32"), Y: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((128,), "int32")
            tx = T.get_thread_binding()
            T.copy(X, tile)
            for i in T.Parallel(128):
                Y[i] = tile[127 - i]

    x, y = np.arange(128, dtype="i4"), np.zeros(128, "i4")
    broken = planted(reverse, ("tl::sync_threads();", ""))
    without = broken.report(x, y)
    broken.loaded.backend.hook = lambda: lambda *_: None
    with_hook = broken.report(x, y)
    assert without.errors[-1].kind == "race-read-after-write"
    assert with_hook.errors
    assert {f.kind for f in with_hook.errors} <= {"race-read-after-write"}
    assert with_hook.errors[0].place == without.errors[-1].place
