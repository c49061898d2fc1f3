"""HIP kernels with one wait, barrier or address wrong: each must be reported, in both modes and over seeds.

The first is the prototype's; its companions are what else can go wrong between a load to LDS and its readers.
"""

from __future__ import annotations

import numpy as np
import pytest

MODES = [(seed, mode) for seed in (0, 1, 2) for mode in ("early", "late")]


def launch_gemm(kernel_file, watched, *changes, n=128, seed=0, mode="late"):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype("f2") for _ in range(2))
    c = np.full((n, n), np.nan, "f4")
    module, buffers = kernel_file("gemm.hip", *changes, arch="gfx942"), watched(A=a, B=b, O=c)
    grid, args = (n // 64, n // 64), [a, b, c, n, n]
    return module.launch("gemm", grid, (256,), 16384, args, seed=seed, mode=mode, buffers=buffers)


@pytest.mark.parametrize(("seed", "mode"), MODES)
@pytest.mark.parametrize("wait", ["tl::wait_loads<8>();", "tl::wait_loads<0>();"])
def test_vmcnt_wait_left_out(kernel_file, watched, seed, mode, wait):
    """In early mode the result stays exact; the fragments are read while the loads are in flight all the same."""
    report = launch_gemm(kernel_file, watched, (wait, ""), seed=seed, mode=mode)
    assert {f.kind for f in report.errors} == {"read-in-flight"}
    assert report.errors[0].text.startswith("tl::vec<tl::half_t, 4>")
    assert "tl::wait_loads" in report.errors[0].advice


@pytest.mark.parametrize(("seed", "mode"), MODES)
@pytest.mark.parametrize("count", [9, 15])
def test_vmcnt_wait_too_weak(kernel_file, watched, seed, mode, count):
    change = ("tl::wait_loads<8>();", f"tl::wait_loads<{count}>();")
    report = launch_gemm(kernel_file, watched, change, seed=seed, mode=mode)
    assert {f.kind for f in report.errors} == {"read-in-flight"}


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_first_barrier_of_the_loop_removed(kernel_file, watched, seed, mode):
    """Each wave has waited for its own loads, not for those of the others."""
    change = ("tl::sync_threads();  // stage has arrived for all", "")
    report = launch_gemm(kernel_file, watched, change, seed=seed, mode=mode)
    assert {f.kind for f in report.errors} & {"read-in-flight", "race-read-after-write", "uninitialized-read"}


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_second_barrier_of_the_loop_removed(kernel_file, watched, seed, mode):
    """Leaves the result exact; the loads of the next step overwrite what other waves still read."""
    change = ("tl::sync_threads();  // stage may be overwritten", "")
    report = launch_gemm(kernel_file, watched, change, seed=seed, mode=mode)
    assert report.errors[0].kind in ("race-write-after-read", "read-in-flight")


@pytest.mark.parametrize("mode", ["early", "late"])
def test_lds_address_of_a_lane_instead_of_the_wave(kernel_file, watched, mode):
    change = ("tl::load_to_lds<4>(to + row * 32,", "tl::load_to_lds<4>(to + row * 32 + lane * 2,")
    report = launch_gemm(kernel_file, watched, change, mode=mode)
    assert {f.kind for f in report.errors} == {"not-uniform"}


def test_load_past_the_end_of_an_input(kernel_file, watched):
    change = ("+ column + lane % 16 * 2);", "+ column + 32 + lane % 16 * 2);")
    report = launch_gemm(kernel_file, watched, change, n=64)
    assert (report.errors[0].kind, report.errors[0].buffer) == ("out-of-bounds", "A")


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("symbol", "barrier"),
    [
        ("row_sum", "tl::sync_threads();  // partial sums are written"),
        ("histogram", "tl::sync_threads();  // bins are zero"),
        ("histogram", "tl::sync_threads();  // all is counted"),
        ("reverse_in_wave", "tl::sync_warp();  // all lanes have written"),
    ],
)
def test_barrier_removed(kernel_file, seed, symbol, barrier):
    module = kernel_file("reductions.hip", (barrier, ""))
    if symbol == "histogram":
        x, y = np.random.default_rng(0).integers(0, 128, 512, "u1"), np.zeros(128, "i4")
        report = module.launch(symbol, (2,), (128,), 512, [x, y, 512], seed=seed)
    elif symbol == "row_sum":
        x = np.ones((2, 300), "f4")
        report = module.launch(symbol, (2,), (128,), 16, [x, np.zeros(2, "f4"), 300], seed=seed)
    else:
        x = np.ones(64, "f4")
        report = module.launch(symbol, (1,), (64,), 256, [x, np.zeros(64, "f4")], seed=seed)
    assert report.errors


def test_a_sum_that_forgets_half_of_the_wave(kernel_file, watched):
    """A reduction written for warps of 32 leaves a wave's upper half out: no race, a wrong number."""
    x, y = np.ones((2, 300), "f4"), np.zeros(2, "f4")
    module = kernel_file("reductions.hip", ("int delta = 32", "int delta = 16"))
    module.launch("row_sum", (2,), (128,), 16, [x, y, 300], buffers=watched(X=x, O=y)).check()
    assert (y != 300).all()
