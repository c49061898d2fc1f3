"""Blocks on several processes: the results, findings, counters and output are those of one process."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("only_emulated")
MODES = [(seed, mode) for seed in (0, 5) for mode in ("early", "late")]


def both(module, symbol, grid, threads, shared, args, buffers=None, **options):
    """Reports of one process and of three; outputs of the two runs are equal, and so is what is reported."""
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    before = [a.copy() for a in arrays]
    one = module.launch(symbol, grid, threads, shared, args, buffers=buffers, processes=1, **options)
    after = [a.copy() for a in arrays]
    for array, old in zip(arrays, before):
        array[...] = old
    three = module.launch(symbol, grid, threads, shared, args, buffers=buffers, processes=3, **options)
    if one.ok:  # else the copies hold what blocks before the finding left
        for array, expected in zip(arrays, after):
            np.testing.assert_array_equal(array, expected)
    assert str(three) == str(one)
    assert three.errors == one.errors
    assert three.counters == one.counters
    assert three.output == one.output
    assert one.processes == 1
    return three


@pytest.mark.parametrize(("name", "threads"), [("gemm.cu", 128), ("gemm.hip", 256)])
@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_gemm(kernel_file, watched, name, threads, seed, mode):
    n = 256
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype("f2") for _ in range(2))
    c = np.full((n, n), np.nan, "f4")
    options = {"seed": seed, "mode": mode, "buffers": watched(A=a, B=b, O=c)}
    report = both(kernel_file(name), "gemm", (4, 4), (threads,), 16384, [a, b, c, n, n], **options).check()
    assert report.processes == 3
    np.testing.assert_allclose(c, a.astype("f4") @ b.astype("f4").T, rtol=0, atol=5e-5)


@pytest.mark.parametrize(
    "change",
    [
        ("tl::sync_threads();  // stage has arrived for all", ""),
        ("tl::sync_threads();  // stage may be overwritten", ""),
        ("tl::cp_async_wait<1>();", "tl::cp_async_wait<2>();"),
        ("to += 8 * N;", "to += 8 * N + 16 * N * 8;"),
        ("to += 8 * N;", "if (blockIdx.x == 3 && blockIdx.y == 2) to += 1 << 20; to += 8 * N;"),
    ],
)
@pytest.mark.parametrize("seed", [0, 5])
def test_faults(kernel_file, watched, change, seed):
    n = 256
    a, b = (np.random.default_rng(0).standard_normal((n, n)).astype("f2") for _ in range(2))
    c = np.full((n, n), np.nan, "f4")
    options = {"seed": seed, "buffers": watched(A=a, B=b, O=c)}
    report = both(kernel_file("gemm.cu", change), "gemm", (4, 4), (128,), 16384, [a, b, c, n, n], **options)
    assert report.errors


def run(compile_text, body, args, grid=24, threads=32, parameters="const float* X, float* O", **options):
    text = f'#include "tl_cuda.cuh"\nextern "C" __global__ void __launch_bounds__({threads}) k({parameters}) {{\n'
    return both(compile_text(f"{text}{body}\n}}\n"), "k", (grid,), (threads,), 1024, args, **options)


OWN = "int i = blockIdx.x * 32 + threadIdx.x;\n"


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(
    "body",
    [
        "O[i] = 1.0f; if (blockIdx.x == 22) O[threadIdx.x + 64] = 2.0f;",  # written by two
        "O[i] = 1.0f; if (blockIdx.x == 2) O[23 * 32 + threadIdx.x] = 2.0f;",
        "O[i] = blockIdx.x == 20 ? O[threadIdx.x + 96] : 1.0f;",  # read by another
        "O[i] = blockIdx.x == 3 ? O[20 * 32 + threadIdx.x] : 1.0f;",
        "((char*)O)[blockIdx.x] = 1; if (blockIdx.x == 17) ((short*)O)[9] = 3;",  # parts of a word
    ],
)
def test_races_between_blocks_of_different_processes(compile_text, body, seed):
    """Whoever runs the two blocks; neither order of them may hide the race."""
    x, o = np.ones(24 * 32, "f4"), np.zeros(24 * 32, "f4")
    report = run(compile_text, OWN + body, [x, o], seed=seed)
    assert {f.kind for f in report.errors} == {"race-between-blocks"}


def test_neighbouring_bytes_of_different_blocks_are_no_race(compile_text):
    o = np.zeros(96, "u1")
    body = "if (threadIdx.x == 0) O[blockIdx.x] = blockIdx.x;"
    report = run(compile_text, body, [np.zeros(1, "f4"), o], 96, parameters="const float* X, uint8_t* O").check()
    assert report.processes == 3
    np.testing.assert_array_equal(o, np.arange(96))


def test_blocks_that_write_the_same_value(compile_text):
    """No race; the marks of the processes meet, so that one process has the last word."""
    x, o = np.ones(24 * 32, "f4"), np.zeros(24 * 32, "f4")
    report = run(compile_text, OWN + "O[i] = 1.0f; O[threadIdx.x] = 1.0f;", [x, o]).check()
    assert report.processes == 1


def test_atomics_on_global_memory_keep_their_order(compile_text):
    """Sums of floats depend on it, and so does who gets which ticket; what a try has left is undone."""
    x = np.random.default_rng(0).standard_normal(24 * 32).astype("f4")
    o = np.zeros(24 * 32 + 2, "f4")
    body = f"{OWN} O[i + 2] += X[i]; if (blockIdx.x > 3) tl::atomic_add(O, X[i]);"
    report = run(compile_text, body, [x, o], seed=5).check()
    assert report.processes == 1
    np.testing.assert_array_equal(o[2:], x)


def test_atomics_on_shared_memory_need_no_order(compile_text):
    x, o = np.arange(24 * 32, dtype="f4"), np.zeros(24, "f4")
    body = (
        OWN
        + """
      float* s = (float*)tl::shared_memory();
      if (threadIdx.x == 0) s[0] = 0;
      tl::sync_threads();
      tl::atomic_add(s, X[i]);
      tl::sync_threads();
      if (threadIdx.x == 0) O[blockIdx.x] = s[0];"""
    )
    report = run(compile_text, body, [x, o]).check()
    assert report.processes == 3
    np.testing.assert_array_equal(o, x.reshape(24, 32).sum(1))


def test_output_keeps_its_order(compile_text):
    x, o = np.ones(24 * 32, "f4"), np.zeros(24 * 32, "f4")
    body = OWN + 'O[i] = X[i]; if (threadIdx.x == 0 && blockIdx.x % 7 == 3) tl::print("%d\\n", (int)blockIdx.x);'
    assert run(compile_text, body, [x, o]).check().output == "3\n10\n17\n"


def test_a_fault_and_an_assertion_in_a_late_block(compile_text):
    x, o = np.ones(24 * 32, "f4"), np.zeros(24 * 32, "f4")
    for body, kind in [
        ("O[i] = X[i]; tl::device_assert(blockIdx.x != 21, 4);", "device-assert"),
        ("O[i] = X[i]; if (blockIdx.x == 21) *(volatile float*)(0x10) = 1;", "out-of-bounds"),
        ("O[i] = (float)(5 / (int)(X[i] - (blockIdx.x == 21)));", "fault"),
        ("O[i] = X[i]; if (blockIdx.x == 21 && threadIdx.x) tl::sync_threads();", "deadlock"),
    ]:
        report = run(compile_text, OWN + body, [x, o])
        assert [f.kind for f in report.errors] == [kind]
        assert report.errors[0].block == (21, 0, 0)


def test_reads_of_an_output_that_nobody_wrote(compile_text, watched):
    x, o = np.ones(24 * 32, "f4"), np.zeros(24 * 32, "f4")
    body = OWN + "if (blockIdx.x != 5) O[i] = X[i]; else O[i] = O[i] + 1;"
    report = run(compile_text, body, [x, o], buffers=watched(X=x, O=o))
    assert {f.kind for f in report.errors} == {"uninitialized-read"}


def test_a_hook_sees_each_block(compile_text):
    x, o, seen = np.ones(24 * 32, "f4"), np.zeros(24 * 32, "f4"), []
    text = f'#include "tl_cuda.cuh"\nextern "C" __global__ void k(const float* X, float* O) {{ {OWN} O[i] = X[i]; }}\n'
    hook = lambda block, shared: seen.append(block[0])  # noqa: E731
    compile_text(text).launch("k", (24,), (32,), 0, [x, o], hook=hook, processes=3).check()
    assert seen == list(range(24))


def test_short_launches_stay_in_one_process(compile_text, monkeypatch):
    x, o = np.ones(24 * 32, "f4"), np.zeros(24 * 32, "f4")
    text = f'#include "tl_cuda.cuh"\nextern "C" __global__ void k(const float* X, float* O) {{ {OWN} O[i] = X[i]; }}\n'
    monkeypatch.setenv("TILELANG_EMULATE_PROCESSES", "3")
    assert compile_text(text).launch("k", (24,), (32,), 0, [x, o]).check().processes == 1


def test_the_environment_chooses_the_number_of_processes(kernel_file, watched, monkeypatch):
    n = 512
    a, b, c = np.ones((n, n), "f2"), np.ones((n, n), "f2"), np.zeros((n, n), "f4")
    for chosen, used in (("2", 2), ("1", 1)):
        monkeypatch.setenv("TILELANG_EMULATE_PROCESSES", chosen)
        report = kernel_file("gemm.cu").launch(
            "gemm", (8, 8), (128,), 16384, [a, b, c, n, n], buffers=watched(A=a, B=b, O=c)
        )
        assert report.check().processes == used
        np.testing.assert_array_equal(c, np.full((n, n), n))


def children():
    """Processes that this one has started and nobody has asked for yet."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


def test_no_process_is_left_behind(kernel_file, watched):
    n = 128
    a, c = np.ones((n, n), "f2"), np.zeros((n, n), "f4")
    before = children()
    kernel_file("gemm.cu").launch("gemm", (2, 2), (128,), 16384, [a, a, c, n, n], processes=4).check()
    assert children() == before
