"""Each kind of finding on a generated kernel: the user's line, buffer and element, the threads, and what to add."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

import tilelang.language as T

ROWS, COLUMNS, DEPTH = 96, 64, 100


def product(stages: int) -> Any:
    """C = A @ B over tiles of 32 x 32 x 32, of which the last along k is a part."""

    @T.prim_func
    def main(
        A: T.Tensor((ROWS, DEPTH), "float16"),
        B: T.Tensor((DEPTH, COLUMNS), "float16"),
        C: T.Tensor((ROWS, COLUMNS), "float32"),
    ):
        with T.Kernel(T.ceildiv(COLUMNS, 32), T.ceildiv(ROWS, 32), threads=128) as (bx, by):
            left = T.alloc_shared((32, 32), "float16")
            right = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((32, 32), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(DEPTH, 32), num_stages=stages):
                T.copy(A[by * 32, k * 32], left)
                T.copy(B[k * 32, bx * 32], right)
                T.gemm(left, right, acc)
            T.copy(acc, C[by * 32, bx * 32])

    return main


@T.prim_func
def reverse(X: T.Tensor((128,), "int32"), D: T.Tensor((128,), "int32"), Y: T.Tensor((128,), "int32")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((128,), "int32")
        tx = T.get_thread_binding()
        tile[tx] = X[tx]
        T.sync_threads()
        Y[tx] = tile[127 - tx] // D[tx]


@T.prim_func
def sums(X: T.Tensor((128,), "int32"), Y: T.Tensor((128,), "int32")):
    with T.Kernel(1, threads=128):
        once = T.alloc_shared((128,), "int32")
        twice = T.alloc_shared((2, 64), "int32")
        tx = T.get_thread_binding()
        once[tx] = X[tx]
        twice[tx // 64, tx % 64] = X[tx] * 2
        T.sync_threads()
        Y[tx] = once[127 - tx] + twice[tx // 64, tx % 64]


@T.prim_func
def phases(X: T.Tensor((2, 2048), "int32"), Y: T.Tensor((2, 2048), "int32")):
    """Two tiles that are never alive together: they share their memory."""
    with T.Kernel(1, threads=128):
        before = T.alloc_shared((2048,), "int32")
        after = T.alloc_shared((1024,), "int32")
        T.copy(X[0, :], before)
        for i in T.Parallel(2048):
            Y[0, i] = before[2047 - i]
        T.copy(X[1, 0:1024], after)
        for i in T.Parallel(1024):
            Y[1, i] = after[1023 - i]


@T.prim_func
def row_sums(X: T.Tensor((90, 64), "float32"), S: T.Tensor((90,), "float32")):
    with T.Kernel(T.ceildiv(90, 32), threads=128) as bx:
        x = T.alloc_fragment((32, 64), "float32")
        total = T.alloc_fragment((32,), "float32")
        T.copy(X[bx * 32, 0], x)
        T.reduce_sum(x, total, dim=1)
        T.copy(total, S[bx * 32])


def matrices() -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((ROWS, DEPTH)), rng.standard_normal((DEPTH, COLUMNS))
    return a.astype("f2"), b.astype("f2"), np.zeros((ROWS, COLUMNS), "f4")


def vectors(divisor: int = 3) -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(2)
    d = np.full(128, divisor, "i4")
    return rng.integers(-99, 99, 128).astype("i4"), d, np.zeros(128, "i4")


def rows() -> tuple[np.ndarray[Any, Any], ...]:
    return np.random.default_rng(3).standard_normal((90, 64)).astype("f4"), np.zeros(90, "f4")


def line_of(text: str) -> int:
    """The line of this file that holds a statement, the first of its kind."""
    source = inspect.getsource(inspect.getmodule(line_of)).splitlines()
    return next(n for n, line in enumerate(source, 1) if line.strip().startswith(text))


def at(finding: Any, statement: str) -> None:
    """The finding names this file, the statement's line, and its text."""
    assert finding.place is not None, str(finding)
    assert finding.place.file == __file__
    assert finding.place.line == line_of(statement), str(finding)
    assert finding.place.text.startswith(statement)
    assert f"--> {__file__}:{finding.place.line}" in str(finding)
    assert "  try:      " in str(finding)


def test_the_kernels_are_right_without_a_fault(planted: Any) -> None:
    a, b, c = matrices()
    for stages in (0, 3):
        assert planted(product(stages)).report(a, b, c).ok
        np.testing.assert_allclose(c, a.astype("f8") @ b.astype("f8"), rtol=1e-3, atol=1e-3)
    x, d, y = vectors()
    assert planted(reverse).report(x, d, y).ok
    np.testing.assert_array_equal(y, x[::-1] // d)
    x, s = rows()
    assert planted(row_sums).report(x, s).ok
    np.testing.assert_allclose(s, x.astype("f8").sum(1), rtol=1e-4, atol=1e-5)


def test_uninitialized_read_of_shared_memory(planted: Any) -> None:
    finding = planted(reverse, ("tile[tx] = X[tx];", "if (tx != 5) tile[tx] = X[tx];")).finding(
        "uninitialized-read", *vectors()
    )
    at(finding, "Y[tx] = tile[127 - tx] // D[tx]")
    assert (finding.buffer, finding.element) == ("tile", "[5]")
    assert finding.threads == (122,)
    assert finding.block == (0, 0, 0)
    assert "T.fill" in finding.advice


def test_race_read_after_write(planted: Any) -> None:
    finding = planted(reverse, ("tl::sync_threads();", "")).report(*vectors()).errors[-1]
    assert finding.kind == "race-read-after-write"
    at(finding, "Y[tx] = tile[127 - tx] // D[tx]")
    assert finding.other_place.line == line_of("tile[tx] = X[tx]")
    assert finding.threads[0] + finding.threads[1] == 127
    assert finding.element == f"[{finding.threads[1]}]"
    assert "T.sync_threads()" in finding.advice


def test_race_write_after_write(planted: Any) -> None:
    finding = planted(reverse, ("tile[tx] =", "tile[tx / 2] =")).finding("race-write-after-write", *vectors())
    at(finding, "tile[tx] = X[tx]")
    assert {t // 2 for t in finding.threads} == {int(finding.element[1:-1])}
    assert finding.other_place == finding.place


def test_race_write_after_read(planted: Any) -> None:
    """The barrier before the copies of the loop: they overwrite what other warps still multiply."""
    text = planted(product(0)).loaded.artifact.source
    assert text.index("tl::sync_threads();") < text.index("T.gemm"), "the first barrier is the one before the copies"
    planted_text = planted(product(0), ("tl::sync_threads();", ""))
    finding = planted_text.finding("race-write-after-read", *matrices())
    assert finding.buffer in ("left", "right")
    assert re.fullmatch(r"\[\d+, \d+(:\d+)?\]", finding.element)
    at(finding, "T.copy(A[by * 32" if finding.buffer == "left" else "T.copy(B[k * 32")
    assert finding.threads[0] != finding.threads[1]


def test_read_in_flight(planted: Any) -> None:
    text = planted(product(3)).loaded.artifact.source
    wait = re.search(r"tl::cp_async_wait<\d>\(\);", text)[0]
    finding = planted(product(3), (wait, "")).finding("read-in-flight", *matrices())
    at(finding, "T.gemm(left, right, acc)")
    assert finding.buffer in ("left", "right")
    assert re.fullmatch(r"\[0, \d+, \d+:\d+\]", finding.element), finding.element  # the version of the first stage
    assert finding.other_place.line in (line_of("T.copy(A["), line_of("T.copy(B["))
    assert "the compiler places this wait" in finding.advice


def test_write_in_flight(planted: Any) -> None:
    """All stages copied to the place of the first one."""
    text = planted(product(3)).loaded.artifact.source
    index = re.search(r"&left\[[^\]]* \+ 1024\]", text)[0]
    finding = planted(product(3), (index, index.replace(" + 1024", ""))).finding("write-in-flight", *matrices())
    at(finding, "T.copy(A[by * 32, k * 32], left)")
    assert finding.buffer == "left"
    assert finding.element.startswith("[0, ")


def test_race_between_blocks(planted: Any) -> None:
    changed = planted(product(0), ("const int by = blockIdx.y;", "const int by = blockIdx.y / 2;"))
    a, b, c = matrices()
    assert changed.report(a, b, c).ok  # equal values: replicated work is no race
    changed = planted(product(0), ("C[(by * 32", "C[(0 * 32"))
    finding = changed.finding("race-between-blocks", a, b, c)
    at(finding, "T.copy(acc, C[by * 32, bx * 32])")
    assert finding.buffer == "C"
    assert "block (0, 0, 0)" in finding.message or "block (1, 0, 0)" in finding.message
    assert finding.block == (finding.block[0], 1, 0)


def test_out_of_bounds(planted: Any) -> None:
    condition = "if (bx * 32 + tx / 4 < 90)"
    text = planted(row_sums).loaded.artifact.source
    condition = re.search(r"if \(bx \* 32 \+ [^{]* < 90\) \{\n *S\[", text)
    assert condition, text
    stripped = condition[0].replace(condition[0][: condition[0].index("{")], "if (true) ")
    finding = planted(row_sums, (condition[0], stripped)).finding("out-of-bounds", *rows())
    at(finding, "T.copy(total, S[bx * 32])")
    assert (finding.buffer, finding.element) == ("S", f"[{90}]")
    assert "outside of its shape (90,)" in finding.message
    assert finding.block == (2, 0, 0)


@pytest.mark.parametrize(
    ("change", "statement", "buffer", "where"),
    [
        (
            ("once[127 - tx]", "once[128 - tx]"),
            "Y[tx] = once[127 - tx]",
            "once",
            "4 bytes at offset 512 of once, which has 512 bytes: where twice[0, 0] is",
        ),
        (
            ("twice[tx] = X[tx] * 2", "twice[tx - 4] = X[tx] * 2"),
            "twice[tx // 64, tx % 64] = X[tx] * 2",
            "twice",
            r"4 bytes at \d+ bytes before twice, which has 512 bytes: where once\[12[4-7]\] is",
        ),
    ],
)
def test_out_of_its_own_shared_buffer(
    planted: Any, change: tuple[str, str], statement: str, buffer: str, where: str
) -> None:
    """The access stays inside the block's shared memory, and reads or overwrites another tile: both are named."""
    x, y = np.arange(128, dtype="i4"), np.zeros(128, "i4")
    assert planted(sums).report(x, y).ok
    np.testing.assert_array_equal(y, x[::-1] + 2 * x)
    finding = planted(sums, change).finding("out-of-bounds", x, y)
    at(finding, statement)
    assert finding.buffer == buffer
    assert where in finding.message or re.search(where, finding.message)


def test_tiles_that_share_memory_have_bounds_of_their_own(planted: Any) -> None:
    x, y = np.arange(4096, dtype="i4").reshape(2, 2048), np.zeros((2, 2048), "i4")
    text = planted(phases).loaded.artifact.source
    assert re.search(r"\*after = \(int \*\)tl::shared_memory\(\);", text), "where `before` is"
    assert planted(phases).report(x, y).ok
    np.testing.assert_array_equal(y[1, :1024], x[1, 1023::-1])
    index = re.findall(r"after\[[^\]]*\]", text)[-1]
    finding = planted(phases, (index, index[:-1] + " + 1024]")).finding("out-of-bounds", x, y)
    assert finding.buffer == "after"
    assert "of after, which has 4096 bytes: where before[" in finding.message


def test_store_to_an_input(planted: Any) -> None:
    changes = [("const int *__restrict__ X", "int *__restrict__ X"), ("tile[tx] = X[tx];", "tile[tx] = X[tx] = 1;")]
    x, d, y = vectors()
    finding = planted(reverse, *changes).finding("read-only", x, d, y)
    at(finding, "tile[tx] = X[tx]")
    assert (finding.buffer, finding.element) == ("X", f"[{finding.threads[0]}]")
    assert (x != 1).any()


def test_misaligned_vector(planted: Any) -> None:
    text = planted(product(0)).loaded.artifact.source
    vector = re.search(r"\(const tl::vec<tl::half_t, 8> \*\)&B\[", text)[0]
    finding = planted(product(0), (vector, f"{vector}1 + ")).finding("misaligned", *matrices())
    at(finding, "T.copy(B[k * 32, bx * 32], right)")
    assert finding.buffer == "B"
    assert re.fullmatch(r"\[\d+, \d+:\d+\]", finding.element)
    assert "not a multiple of 16" in finding.message


def test_divergence(planted: Any) -> None:
    """Half of a warp leaves for another operation of the whole warp."""
    text = planted(row_sums).loaded.artifact.source
    shuffle = re.search(r"tl::shfl_xor\((\w+(?:\[\w+\])?), 1\)", text)
    changed = f"(tx % 32 < 16 ? {shuffle[0]} : (tl::sync_warp(), 0.0f))"
    finding = planted(row_sums, (shuffle[0], changed)).finding("divergence", *rows())
    at(finding, "T.reduce_sum(x, total, dim=1)")
    assert "out of branches" in finding.advice


def test_lane_that_left(planted: Any) -> None:
    change = ("const int tx = threadIdx.x;", "const int tx = threadIdx.x; if (tx == 3) return;")
    finding = planted(row_sums, change).finding("exited-lane", *rows())
    at(finding, "T.reduce_sum(x, total, dim=1)")


def test_deadlock_says_where_each_warp_stands(planted: Any) -> None:
    report = planted(reverse, ("tl::sync_threads();", "if (tx < 96) tl::sync_threads();")).report(*vectors())
    finding = report.errors[-1]
    assert finding.kind == "deadlock"
    at(finding, "T.sync_threads()")
    here = f"{__file__}:{line_of('T.sync_threads()')}"
    assert f"warps 0-2, threads 0-95: wait in tl::sync_threads, {here}   T.sync_threads()" in report.standing
    assert any(text.startswith("warp 3, threads 96-127: finished") for text in report.standing)


def test_barrier_with_two_counts(planted: Any) -> None:
    change = ("tl::sync_threads();", "if (tx < 64) tl::sync_threads<1, 64>(); else tl::sync_threads<1, 128>();")
    finding = planted(reverse, change).report(*vectors()).errors[-1]
    assert finding.kind == "barrier-count"
    at(finding, "T.sync_threads()")


def test_fault_of_the_processor(planted: Any) -> None:
    """No change of the text: the user divides by zero, inside a helper of the generated text."""
    finding = planted(reverse).finding("fault", *vectors(divisor=0))
    at(finding, "Y[tx] = tile[127 - tx] // D[tx]")
    assert "arithmetic error" in finding.message


def test_endless_loop(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELANG_EMULATE_TIMEOUT", "0.2")
    change = ("tl::sync_threads();", "while (((volatile const int*)X)[0] != 12345) {}")
    finding = planted(reverse, change).finding("timeout", *vectors())
    at(finding, "T.sync_threads()")


def test_first_findings_only(planted: Any) -> None:
    """Every element is raced for; the text is short all the same, and the process goes on."""
    report = planted(reverse, ("tl::sync_threads();", "")).report(*vectors())
    assert len(report.errors) <= 3
    assert len(str(report)) < 3000
    assert any(finding.repeats > 1 for finding in report.errors)
