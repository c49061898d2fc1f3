"""Atomics with both vendors' headers, each alone with distinct values: results, old values, and orders."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest


@pytest.mark.parametrize(
    ("c_type", "dtype"),
    [("int", "i4"), ("unsigned", "u4"), ("int64_t", "i8"), ("float", "f4"), ("double", "f8"), ("tl::half_t", "f2")],
)
def test_atomics(run_on_each, c_type, dtype):
    start = np.array([10, 10, 10, 10, 0, 0, 0, 0], dtype)
    memory = np.zeros(8 * 64, "u1")
    offset = -memory.ctypes.data % 64  # the forms for several elements want their common alignment
    x, old = memory[offset : offset + start.nbytes].view(dtype), np.zeros(33, dtype)
    x[:] = start
    body = f"""
      int t = threadIdx.x; typedef {c_type} T; T v = (T)(float)t;
      O[t] = tl::atomic_add(X, (T)1.0f);
      tl::atomic_min(X + 1, v);
      tl::atomic_max(X + 2, v);
      if (t == 9) O[32] = tl::atomic_exchange(X + 3, v);
      T values[4] = {{v, v, v, v}};
      tl::atomic_add_x2(X + 4, values);
      if (t < 16) tl::atomic_add_x4(X + 4, values);"""
    run_on_each(f"{c_type}* X, {c_type}* O", body, [x, old]).check()
    assert sorted(old.tolist()) == [10, *range(10, 42)]
    np.testing.assert_array_equal(x, [42, 0, 31, 9, 496 + 120, 496 + 120, 120, 120])


def test_atomics_on_bits(run_on_each):
    x = np.array([0, -1, 0], "i4")
    body = "tl::atomic_or(X, 1 << threadIdx.x);"
    body += " tl::atomic_and(X + 1, ~(1 << threadIdx.x)); tl::atomic_xor(X + 2, 3 << threadIdx.x);"
    run_on_each("int* X", body, [x]).check()
    np.testing.assert_array_equal(x, [-1, 0, 1])


def test_atomic_add_of_packed_pairs(run_on_each):
    for c_type, dtype in (("tl::half_t", np.float16), ("tl::bfloat16_t", ml_dtypes.bfloat16)):
        x = np.zeros(4, dtype)
        body = f"tl::vec<{c_type}, 2> v; v[0] = {c_type}(1.0f); v[1] = {c_type}(2.0f); tl::atomic_add_x2(X + 2, v);"
        run_on_each(f"{c_type}* X", body, [x]).check()
        np.testing.assert_array_equal(x.astype("f4"), [0, 0, 32, 64])


@pytest.mark.parametrize("order", ["relaxed", "acquire", "release", "acq_rel", "seq_cst"])
def test_atomics_that_order_other_accesses(run_on_each, order):
    x, old = np.array([10, 10, 10, -1, 0, 0, 0, 7], "i4"), np.zeros((2, 32), "i4")
    body = f"""
      int t = threadIdx.x;
      tl::fence();
      O[t] = tl::atomic_add<tl::{order}>(X, 1);
      tl::atomic_min<tl::{order}>(X + 1, t);
      tl::atomic_max<tl::{order}>(X + 2, t);
      tl::atomic_and<tl::{order}>(X + 3, ~(1 << t));
      tl::atomic_or<tl::{order}>(X + 4, 1 << t);
      tl::atomic_xor<tl::{order}>(X + 5, 3 << t);
      if (t == 9) tl::atomic_exchange<tl::{order}>(X + 6, t);
      O[32 + t] = tl::atomic_load<tl::{order}>(X + 7) + tl::atomic_load(X + 7);"""
    run_on_each("int* X, int* O", body, [x, old]).check()
    assert sorted(old[0].tolist()) == list(range(10, 42))
    np.testing.assert_array_equal(old[1], 14)
    np.testing.assert_array_equal(x, [42, 0, 31, 0, -1, 1, 9, 7])


@pytest.mark.parametrize(("c_type", "dtype"), [("double", "f8"), ("tl::half_t", "f2"), ("int64_t", "i8")])
def test_atomic_load(run_on_each, c_type, dtype):
    x, out = (np.arange(32) * 3 - 7).astype(dtype), np.zeros(32, dtype)
    body = "O[31 - threadIdx.x] = tl::atomic_load(X + threadIdx.x);"
    run_on_each(f"const {c_type}* X, {c_type}* O", body, [x, out]).check()
    np.testing.assert_array_equal(out, x[::-1])
