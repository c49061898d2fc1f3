"""Whole kernels: exact or within rounding of numpy, without a false alarm, over seeds and both modes of copies."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

MODES = [(seed, mode) for seed in (0, 1, 2) for mode in ("early", "late")]


def random(*shape, dtype="float16", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_gemm(kernel_file, watched, seed, mode):
    m, n, k = 128, 64, 96
    a, b, c = random(m, k), random(n, k, seed=1), np.full((m, n), np.nan, "float32")
    module = kernel_file("gemm.cu")
    buffers = watched(A=a, B=b, O=c)
    module.launch(
        "gemm", (n // 64, m // 64), (128,), 16384, [a, b, c, n, k], seed=seed, mode=mode, buffers=buffers
    ).check()
    np.testing.assert_allclose(c, a.astype("f4") @ b.astype("f4").T, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_attention(kernel_file, watched, seed, mode):
    heads, length = 1, 128
    q, k, v = (random(heads, length, 64, seed=i) for i in range(3))
    o = np.full((heads, length, 64), np.nan, "float16")
    scale = np.float32(np.log2(np.e) / 8)
    args, buffers = [q, k, v, o, length, scale], watched(Q=q, K=k, V=v, O=o)
    module = kernel_file("attention.cu")
    module.launch(
        "attention", (length // 64, heads), (128,), 40960, args, seed=seed, mode=mode, buffers=buffers
    ).check()
    scores = np.einsum("hqd,hkd->hqk", q.astype("f4"), k.astype("f4")) / 8
    p = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("hqk,hkd->hqd", p / p.sum(-1, keepdims=True), v.astype("f4"))
    np.testing.assert_allclose(o.astype("f4"), expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_row_sum_by_shuffles(kernel_file, watched, seed, mode):
    x, y = np.arange(3 * 300, dtype="f4").reshape(3, 300) % 17, np.zeros(3, "f4")
    module = kernel_file("reductions.cu")
    module.launch("row_sum", (3,), (128,), 16, [x, y, 300], seed=seed, mode=mode, buffers=watched(X=x, O=y)).check()
    np.testing.assert_array_equal(y, x.sum(1))


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_gemm_by_waves_of_64(kernel_file, watched, seed, mode):
    m, n, k = 128, 64, 96
    a, b, c = random(m, k), random(n, k, seed=1), np.full((m, n), np.nan, "float32")
    module, buffers = kernel_file("gemm.hip", arch="gfx942"), watched(A=a, B=b, O=c)
    args = [a, b, c, n, k]
    report = module.launch(
        "gemm", (n // 64, m // 64), (256,), 16384, args, seed=seed, mode=mode, buffers=buffers
    ).check()
    np.testing.assert_allclose(c, a.astype("f4") @ b.astype("f4").T, rtol=0, atol=2e-5)
    assert report.counters["mma"] == m * n * k // (32 * 32 * 8)
    assert report.counters["direct_loads"] * 4 == a.nbytes * (n // 64) + b.nbytes * (m // 64)


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_row_sum_by_shuffles_of_a_wave(kernel_file, watched, seed, mode):
    x, y = np.arange(3 * 300, dtype="f4").reshape(3, 300) % 17, np.zeros(3, "f4")
    module = kernel_file("reductions.hip")
    module.launch("row_sum", (3,), (128,), 16, [x, y, 300], seed=seed, mode=mode, buffers=watched(X=x, O=y)).check()
    np.testing.assert_array_equal(y, x.sum(1))


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_a_wave_hands_values_over_without_the_block(kernel_file, watched, seed, mode):
    x, y = np.arange(256, dtype="f4"), np.zeros(256, "f4")
    module, buffers = kernel_file("reductions.hip"), watched(X=x, O=y)
    module.launch("reverse_in_wave", (4,), (64,), 256, [x, y], seed=seed, mode=mode, buffers=buffers).check()
    np.testing.assert_array_equal(y.reshape(4, 64), x.reshape(4, 64)[:, ::-1])


@pytest.mark.parametrize("name", ["reductions.cu", "reductions.hip"])
@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_histogram_by_atomics(kernel_file, watched, seed, mode, name):
    x, bins = np.random.default_rng(0).integers(0, 128, 2000, "u1"), np.zeros(128, "i4")
    module, buffers = kernel_file(name), [*watched(X=x), (bins.ctypes.data, bins.nbytes, "bins", True)]
    module.launch("histogram", (4,), (128,), 512, [x, bins, 2000], seed=seed, mode=mode, buffers=buffers).check()
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=128))


def test_transpose_of_two_byte_elements_in_a_two_dimensional_block(kernel_file, watched):
    x = np.arange(64 * 96).reshape(64, 96).astype(ml_dtypes.bfloat16)
    y = np.zeros((96, 64), ml_dtypes.bfloat16)
    module = kernel_file("reductions.cu")
    module.launch("transpose", (3, 2), (32, 8), 2112, [x, y, 64, 96], seed=3, buffers=watched(X=x, O=y)).check()
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_named_barriers_hand_a_buffer_over(kernel_file, watched, seed, mode):
    x, y = np.arange(5 * 64, dtype="f4"), np.zeros(64, "f4")
    module = kernel_file("reductions.cu")
    module.launch("ping_pong", (1,), (128,), 256, [x, y, 5], seed=seed, mode=mode, buffers=watched(X=x, O=y)).check()
    np.testing.assert_array_equal(y, x.reshape(5, 64)[:, ::-1].sum(0))


@pytest.mark.parametrize("threads", [1, 33, 1000, 1024])
def test_blocks_of_any_size(run_body, watched, threads):
    y = np.zeros(threads, "f4")
    body = """
      float* s = (float*)tl::shared_memory();
      s[threadIdx.x] = threadIdx.x;
      for (int i = 0; i < 20; ++i) {
        tl::sync_threads();
        float other = s[blockDim.x - 1 - threadIdx.x];
        tl::sync_threads();
        s[threadIdx.x] = other;
      }
      O[threadIdx.x] = s[threadIdx.x];"""
    run_body("float* O", body, [y], threads, buffers=watched(O=y)).check()
    np.testing.assert_array_equal(y, np.arange(threads))


def test_a_value_that_all_threads_read(run_body, watched):
    """More readers than a cell holds; the next write must still see the last of them."""
    y = np.zeros(256, "f4")
    body = """
      float* s = (float*)tl::shared_memory();
      for (int i = 0; i < 3; ++i) {
        if (threadIdx.x == i) s[0] = i;
        tl::sync_threads();
        O[threadIdx.x] += s[0];
        tl::sync_threads();  // all have read
      }"""
    buffers = [(y.ctypes.data, y.nbytes, "O", True)]
    run_body("float* O", body, [y], 256, buffers=buffers).check()
    np.testing.assert_array_equal(y, np.full(256, 3))
    report = run_body("float* O", body.replace("tl::sync_threads();  // all have read", ""), [y], 256, buffers=buffers)
    assert report.errors[0].kind in ("race-write-after-read", "race-read-after-write")


def test_counters_of_a_gemm(kernel_file, watched, only_emulated):
    n = 64
    a, b, c = random(n, n), random(n, n, seed=1), np.zeros((n, n), "f4")
    module = kernel_file("gemm.cu")
    report = module.launch("gemm", (1, 1), (128,), 16384, [a, b, c, n, n], buffers=watched(A=a, B=b, O=c)).check()
    counters = report.counters
    assert counters["mma"] == n * n * n // (16 * 8 * 16)
    assert counters["ldmatrix"] == 4 * 4 * 4  # warps, steps of 16, fragments
    assert counters["ldmatrix_wavefronts"] == 4 * counters["ldmatrix"]  # the swizzle has no conflicts
    assert counters["cp_async_bytes"] == 2 * a.nbytes
    assert counters["global_read_bytes"] == 2 * a.nbytes
    assert counters["global_written_bytes"] == c.nbytes
    assert counters["barriers"] == 4
    assert counters["global_sectors"] == 2 * a.nbytes // 32 + c.nbytes // 32  # all of them whole


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (8, 32), (0, 1)])
def test_sectors_of_a_global_access(run_body, only_emulated, stride, sectors):
    x, y = np.ones(32 * 8, "f4"), np.zeros(64, "f4")
    body = f"for (int i = 0; i < 3; ++i) O[threadIdx.x] = X[threadIdx.x * {stride}];"
    report = run_body("const float* X, volatile float* O", body, [x, y], 64 if stride < 8 else 32).check()
    warps = 2 if stride < 8 else 1
    loads = report.counters["global_requests"] - 3 * warps  # the compiler may load once for all three
    assert report.counters["global_sectors"] == 3 * 4 * warps + sectors * loads


@pytest.mark.parametrize(
    ("c_type", "stride", "wavefronts"),
    [
        ("float", 1, 1),
        ("float", 2, 2),
        ("float", 32, 32),
        ("float", 33, 1),
        ("float", 0, 1),
        ("double", 1, 2),
        ("tl::vec<float, 4>", 1, 4),
        ("uint8_t", 1, 1),
    ],
)
def test_wavefronts_of_a_shared_access(run_body, only_emulated, c_type, stride, wavefronts):
    body = (
        f"{c_type} v = {{}}; ((volatile char*)&v)[0] = 0; (({c_type}*)tl::shared_memory())[threadIdx.x * {stride}] = v;"
    )
    report = run_body("", body, [], shared=33 * 32 * 4).check()
    assert report.counters["shared_requests"] == 1
    assert report.counters["shared_wavefronts"] == wavefronts
