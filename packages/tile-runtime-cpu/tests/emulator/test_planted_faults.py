"""One barrier, wait or predicate removed or weakened at a time: each must be reported, in both modes and over seeds.

The first four are those of the prototype's table (two of them leave the result exact); Hopper's and HIP's follow with
those instruction sets.
"""

from __future__ import annotations

import numpy as np
import pytest

MODES = [(seed, mode) for seed in (0, 1, 2) for mode in ("early", "late")]


def launch_gemm(kernel_file, watched, *changes, n=128, seed=0, mode="late"):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype("f2") for _ in range(2))
    c = np.full((n, n), np.nan, "f4")
    grid = (n // 64, n // 64)
    module = kernel_file("gemm.cu", *changes)
    args, buffers = [a, b, c, n, n], watched(A=a, B=b, O=c)
    return module.launch("gemm", grid, (128,), 16384, args, seed=seed, mode=mode, buffers=buffers), (a, b, c)


def line_of(report, index=0):
    return report.errors[index].text


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_first_barrier_of_the_loop_removed(kernel_file, watched, seed, mode):
    change = ("tl::sync_threads();  // stage has arrived for all", "")
    report, _ = launch_gemm(kernel_file, watched, change, seed=seed, mode=mode)
    kinds = {f.kind for f in report.errors}
    assert kinds & {"read-in-flight", "race-read-after-write", "uninitialized-read"}
    assert "ldmatrix" in line_of(report)


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_second_barrier_of_the_loop_removed(kernel_file, watched, seed, mode):
    """Leaves the result exact; the copies of the next step overwrite what other warps still read."""
    change = ("tl::sync_threads();  // stage may be overwritten", "")
    report, _ = launch_gemm(kernel_file, watched, change, seed=seed, mode=mode)
    finding = report.errors[0]
    assert finding.kind in ("race-write-after-read", "read-in-flight")
    assert finding.buffer == "shared memory"
    assert "sync_threads" in finding.advice or "wait" in finding.advice


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_wait_for_copies_too_weak(kernel_file, watched, seed, mode):
    change = ("tl::cp_async_wait<1>();", "tl::cp_async_wait<2>();")
    report, _ = launch_gemm(kernel_file, watched, change, seed=seed, mode=mode)
    assert {f.kind for f in report.errors} == {"read-in-flight"}
    assert "ldmatrix" in line_of(report)
    assert "cp_async_wait" in report.errors[0].advice


def test_epilogue_pointer_past_the_tile(kernel_file, watched):
    report, (_, _, c) = launch_gemm(kernel_file, watched, ("to += 8 * N;", "to += 8 * N + 16 * N * 8;"))
    finding = report.errors[0]
    assert (finding.kind, finding.buffer) in (
        ("out-of-bounds", "O"),
        ("race-between-blocks", "O"),
    )  # by order of blocks
    report, (_, _, c) = launch_gemm(kernel_file, watched, ("to += 8 * N;", "to += 64 * N;"), n=64)
    finding = report.errors[0]
    assert (finding.kind, finding.buffer, finding.size) == ("out-of-bounds", "O", 8)
    assert finding.offset >= c.nbytes
    assert "vec<float, 2>" in finding.text


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_last_wait_left_out(kernel_file, watched, seed, mode):
    report, _ = launch_gemm(kernel_file, watched, ("tl::cp_async_wait<0>();", ""), seed=seed, mode=mode)
    assert {f.kind for f in report.errors} == {"read-in-flight"}


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_commit_left_out(kernel_file, watched, seed, mode):
    """Copies in no group are covered by no wait."""
    change = ("      tl::cp_async_commit();\n      tl::cp_async_wait<1>();", "      tl::cp_async_wait<1>();")
    report, _ = launch_gemm(kernel_file, watched, change, seed=seed, mode=mode)
    assert {f.kind for f in report.errors} <= {"read-in-flight", "write-in-flight"}
    assert report.errors


def test_stage_not_toggled(kernel_file, watched):
    change = ("load(sA + (stage ^ 1) * 2048", "load(sA + stage * 2048")
    report, _ = launch_gemm(kernel_file, watched, change)
    assert report.errors


ATTENTION = {
    "arrival_barrier": ("tl::sync_threads();  // keys and values have arrived", ""),
    "release_barrier": ("tl::sync_threads();  // keys and values may be overwritten", ""),
    "weak_wait": ("tl::cp_async_wait<1>();", "tl::cp_async_wait<2>();"),
    "no_last_wait": ("tl::cp_async_wait<0>();", ""),
    "no_commit": ("tl::cp_async_commit();\n      tl::cp_async_wait", "tl::cp_async_wait"),
}


@pytest.mark.parametrize("mode", ["early", "late"])
@pytest.mark.parametrize("fault", ATTENTION)
def test_faults_of_attention(kernel_file, watched, fault, mode):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 192, 64)).astype("f2") for _ in range(3))
    o = np.zeros((1, 192, 64), "f2")
    module = kernel_file("attention.cu", ATTENTION[fault])
    args, buffers = [q, k, v, o, 192, 0.18], watched(Q=q, K=k, V=v, O=o)
    report = module.launch("attention", (3, 1), (128,), 40960, args, mode=mode, buffers=buffers)
    assert report.errors
    assert all(f.buffer == "shared memory" and f.line for f in report.errors)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("symbol", "removed"),
    [
        ("row_sum", "tl::sync_threads();  // partial sums are written"),
        ("histogram", "tl::sync_threads();  // bins are zero"),
        ("histogram", "tl::sync_threads();  // all is counted"),
        ("transpose", "tl::sync_threads();  // the tile is whole"),
        ("ping_pong", "tl::sync_threads<1, 128>();  // full"),
        ("ping_pong", "tl::sync_threads<2, 128>();  // empty"),
    ],
)
def test_barriers_of_small_kernels(kernel_file, watched, symbol, removed, seed):
    module = kernel_file("reductions.cu", (removed, ""))
    if symbol == "row_sum":
        x, y = np.ones((2, 300), "f4"), np.zeros(2, "f4")
        report = module.launch(symbol, (2,), (128,), 16, [x, y, 300], seed=seed)
    elif symbol == "histogram":
        x, y = np.random.default_rng(0).integers(0, 128, 512, "u1"), np.zeros(128, "i4")
        report = module.launch(symbol, (2,), (128,), 512, [x, y, 512], seed=seed)
    elif symbol == "transpose":
        x = np.arange(1024, dtype="u2")
        report = module.launch(symbol, (1,), (32, 8), 2112, [x, np.zeros_like(x), 32, 32], seed=seed)
    else:
        x = np.ones(5 * 64, "f4")
        report = module.launch(symbol, (1,), (128,), 256, [x, np.zeros(64, "f4"), 5], seed=seed)
    assert report.errors
