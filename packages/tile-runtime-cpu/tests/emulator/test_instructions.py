"""Every function of the header alone, with a distinct value per element, against numpy.

The fragment layouts are written out here as the PTX ISA has them, shape by shape ("Matrix Fragments for mma.m16n8k..."),
independently of the one rule by which the runtime computes them.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

LANE = np.arange(32)[:, None]
GROUP, IN_GROUP = LANE // 4, LANE % 4


def either(condition, yes, no):
    return np.where(condition, yes, no)


def fragments(kind):
    """Rows and columns of A, then of B, by lane and element, for one form of the instruction."""
    if kind == "16x16":
        i, j = np.arange(8), np.arange(4)
        a = either((i < 2) | ((i >= 4) & (i < 6)), GROUP, GROUP + 8), IN_GROUP * 2 + (i & 1) + either(i < 4, 0, 8)
        b = IN_GROUP * 2 + (j & 1) + either(j < 2, 0, 8), GROUP + 0 * j
    elif kind == "16x8":
        i, j = np.arange(4), np.arange(2)
        a, b = (either(i < 2, GROUP, GROUP + 8), IN_GROUP * 2 + (i & 1)), (IN_GROUP * 2 + j, GROUP + 0 * j)
    elif kind == "32x8":
        i, j = np.arange(4), np.arange(2)
        a = either(i % 2 == 0, GROUP, GROUP + 8), either(i < 2, IN_GROUP, IN_GROUP + 4)
        b = either(j == 0, IN_GROUP, IN_GROUP + 4), GROUP + 0 * j
    elif kind == "32x4":
        i, j = np.arange(2), np.arange(1)
        a, b = (either(i == 0, GROUP, GROUP + 8), IN_GROUP + 0 * i), (IN_GROUP + 0 * j, GROUP + 0 * j)
    elif kind == "8x16":
        i, j = np.arange(8), np.arange(4)
        a, b = (either(i < 4, GROUP, GROUP + 8), IN_GROUP * 4 + (i & 3)), (IN_GROUP * 4 + j, GROUP + 0 * j)
    elif kind == "8x16 of 8 rows":
        i = np.arange(4)
        a, b = (GROUP + 0 * i, IN_GROUP * 4 + i), (IN_GROUP * 4 + i, GROUP + 0 * i)
    elif kind == "4x32":
        i, j = np.arange(16), np.arange(8)
        a, b = (either(i < 8, GROUP, GROUP + 8), IN_GROUP * 8 + (i & 7)), (IN_GROUP * 8 + j, GROUP + 0 * j)
    elif kind == "4x32 of 8 rows":
        i = np.arange(8)
        a, b = (GROUP + 0 * i, IN_GROUP * 8 + i), (IN_GROUP * 8 + i, GROUP + 0 * i)
    elif kind == "8x32":
        i, j = np.arange(16), np.arange(8)
        a = either((i < 4) | ((i >= 8) & (i < 12)), GROUP, GROUP + 8), IN_GROUP * 4 + (i & 3) + either(i < 8, 0, 16)
        b = IN_GROUP * 4 + (j & 3) + either(j < 4, 0, 16), GROUP + 0 * j
    else:
        i, j = np.arange(32), np.arange(16)
        a = either((i < 8) | ((i >= 16) & (i < 24)), GROUP, GROUP + 8), IN_GROUP * 8 + (i & 7) + either(i < 16, 0, 32)
        b = IN_GROUP * 8 + (j & 7) + either(j < 8, 0, 32), GROUP + 0 * j
    return a, b


C_ROWS, C_COLUMNS = either(np.arange(4) < 2, GROUP, GROUP + 8), IN_GROUP * 2 + (np.arange(4) & 1)

TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
}
MMA = [
    ("m16n8k8_f32_f16", "16x8", "f16", "f16"),
    ("m16n8k8_f16_f16", "16x8", "f16", "f16"),
    ("m16n8k16_f32_f16", "16x16", "f16", "f16"),
    ("m16n8k16_f16_f16", "16x16", "f16", "f16"),
    ("m16n8k16_f32_bf16", "16x16", "bf16", "bf16"),
    ("m16n8k8_f32_bf16", "16x8", "bf16", "bf16"),
    ("m16n8k8_f32_tf32", "32x8", "tf32", "tf32"),
    ("m16n8k4_f32_tf32", "32x4", "tf32", "tf32"),
    *(
        (f"{shape}_s32_{a}{'' if a == b else '_' + b}", kind, a, b)
        for shape, kind, bits in (
            ("m16n8k32", "8x32", 8), ("m16n8k16", "8x16", 8), ("m8n8k16", "8x16 of 8 rows", 8),
            ("m16n8k64", "4x64", 4), ("m16n8k32", "4x32", 4), ("m8n8k32", "4x32 of 8 rows", 4),
        )
        for a in (f"s{bits}", f"u{bits}")
        for b in (f"s{bits}", f"u{bits}")
    ),
    ("m16n8k32_f32_e4m3", "8x32", "e4m3", "e4m3"),
    ("m16n8k32_f32_e5m2", "8x32", "e5m2", "e5m2"),
    ("m16n8k32_f32_e4m3_e5m2", "8x32", "e4m3", "e5m2"),
    ("m16n8k32_f32_e5m2_e4m3", "8x32", "e5m2", "e4m3"),
]  # fmt: skip
#: Columns and the suffix of the functions that multiply float32 by three instructions of tf32 each.
BY_THREE = [(columns, suffix) for columns in (8, 16, 32) for suffix in ("", "_pairs")]
#: The functions whose names the tests put together.
BUILT = [
    *(f"mma_{form[0]}" for form in MMA),
    *(f"mma_m16n{columns}k8_f32_tf32x3{suffix}" for columns, suffix in BY_THREE),
    *(f"{kind}matrix_x{count}{suffix}" for kind in ("ld", "st") for count in (1, 2, 4) for suffix in ("", "_trans")),
]


def registers(values, element):
    """Elements of each lane, packed into its 32-bit registers, low bits first."""
    if element in ("s4", "u4"):
        nibbles = (values & 15).astype("u1")
        return np.ascontiguousarray(nibbles[:, 0::2] | nibbles[:, 1::2] << 4).view("u4")
    return np.ascontiguousarray(values.astype(TYPES[element])).view("u4")


def operand(rng, element, shape):
    """Small integers: products and sums are exact in every type."""
    low, high = {"u8": (0, 256), "u4": (0, 16), "s8": (-128, 128), "s4": (-8, 8), "e5m2": (-4, 5)}.get(element, (-8, 9))
    return rng.integers(low, high, shape)


@pytest.mark.parametrize(("name", "kind", "a_type", "b_type"), MMA, ids=[m[0] for m in MMA])
def test_mma(run_body, name, kind, a_type, b_type):
    rng = np.random.default_rng(len(name))
    depth = int(name.split("_")[0].split("k")[1])
    rows = 8 if name.startswith("m8") else 16
    a, b = operand(rng, a_type, (rows, depth)), operand(rng, b_type, (depth, 8))
    c = np.arange(rows * 8).reshape(rows, 8) - 60
    (a_rows, a_columns), (b_rows, b_columns) = fragments(kind)
    a_registers, b_registers = registers(a[a_rows, a_columns], a_type), registers(b[b_rows, b_columns], b_type)
    accumulator = {"f32": "f4", "s32": "i4", "f16": "f2"}[name.split("_")[1]]
    in_c = C_ROWS[:, : rows // 4], C_COLUMNS[:, : rows // 4]
    c_registers = np.ascontiguousarray(c[in_c].astype(accumulator))
    na, nb, nc = a_registers.shape[1], b_registers.shape[1], c_registers.view("u4").shape[1]
    c_type = {"f4": "float", "i4": "int", "f2": "uint32_t"}[accumulator]
    body = f"""
      uint32_t a[{na}], b[{nb}]; {c_type} c[{nc}];
      for (int i = 0; i < {na}; ++i) a[i] = A[threadIdx.x * {na} + i];
      for (int i = 0; i < {nb}; ++i) b[i] = B[threadIdx.x * {nb} + i];
      for (int i = 0; i < {nc}; ++i) c[i] = C[threadIdx.x * {nc} + i];
      tl::mma_{name}(c, a, b);
      for (int i = 0; i < {nc}; ++i) C[threadIdx.x * {nc} + i] = c[i];"""
    parameters = f"const uint32_t* A, const uint32_t* B, {c_type}* C"
    run_body(parameters, body, [a_registers, b_registers, c_registers.view("u4")]).check()
    np.testing.assert_array_equal(c_registers, (c + a @ b)[in_c].astype(accumulator))


def test_mma_ignores_the_low_bits_of_tf32(run_body):
    a, b, c = (np.full((32, n), v, "f4") for n, v in ((2, 1.0), (1, 1.0), (4, 0.0)))
    a.view("u4")[...] |= 0x1FFF
    body = """
      float c[4] = {0, 0, 0, 0};
      tl::mma_m16n8k4_f32_tf32(c, A + threadIdx.x * 2, B + threadIdx.x);
      for (int i = 0; i < 4; ++i) C[threadIdx.x * 4 + i] = c[i];"""
    run_body("const uint32_t* A, const uint32_t* B, float* C", body, [a, b, c]).check()
    np.testing.assert_array_equal(c, np.full((32, 4), 4.0))


@pytest.mark.parametrize(("columns", "suffix"), BY_THREE)
def test_three_products_of_tf32(run_body, columns, suffix):
    """Of 8 columns after 8 columns in each lane; with pairs a lane holds operands as it does 16-bit ones."""
    rng = np.random.default_rng(columns)
    a, b, c = (rng.standard_normal(shape).astype("f4") for shape in ((16, 8), (8, columns), (16, columns)))
    a_places, b_places = fragments("16x8" if suffix else "32x8")

    def beside(matrix, places):
        """Blocks of 8 columns."""
        return np.ascontiguousarray(np.hstack([matrix[:, j : j + 8][places] for j in range(0, columns, 8)]))

    held = [np.ascontiguousarray(a[a_places]), beside(b, b_places), beside(c, (C_ROWS, C_COLUMNS))]
    na, nb, nc = (x.shape[1] for x in held)
    body = f"""
      float a[{na}], b[{nb}], c[{nc}];
      for (int i = 0; i < {na}; ++i) a[i] = A[threadIdx.x * {na} + i];
      for (int i = 0; i < {nb}; ++i) b[i] = B[threadIdx.x * {nb} + i];
      for (int i = 0; i < {nc}; ++i) c[i] = C[threadIdx.x * {nc} + i];
      tl::mma_m16n{columns}k8_f32_tf32x3{suffix}(c, a, b);
      for (int i = 0; i < {nc}; ++i) C[threadIdx.x * {nc} + i] = c[i];"""
    run_body("const float* A, const float* B, float* C", body, held).check()
    expected = c.astype("f8") + a.astype("f8") @ b.astype("f8")
    np.testing.assert_allclose(held[2], beside(expected, (C_ROWS, C_COLUMNS)), rtol=0, atol=8e-6)


MATRIX = """
  uint16_t* s = (uint16_t*)tl::shared_memory(); int lane = threadIdx.x; uint32_t r[4] = {0, 0, 0, 0};
"""


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(run_body, count, transposed):
    """Rows lie in the order of a permutation, to see that each lane's address counts."""
    memory, out = np.arange(32 * 8, dtype="u2").reshape(32, 8), np.zeros((32, 4), "u4")
    name = f"ldmatrix_x{count}" + ("_trans" if transposed else "")
    body = f"""{MATRIX}
      for (int i = 0; i < 8; ++i) s[lane * 8 + i] = X[lane * 8 + i];
      tl::sync_warp();
      tl::{name}(r, s + (lane * 5 + 3) % 32 * 8);
      for (int i = 0; i < 4; ++i) O[lane * 4 + i] = r[i];"""
    run_body("const uint16_t* X, uint32_t* O", body, [memory, out]).check()
    matrices = memory[(np.arange(32) * 5 + 3) % 32].reshape(4, 8, 8)[:count]
    if transposed:
        matrices = matrices.transpose(0, 2, 1)
    expected = matrices[:, GROUP[:, 0][:, None], IN_GROUP * 2 + np.arange(2)]  # matrix, lane, half
    np.testing.assert_array_equal(out.view("u2").reshape(32, 4, 2)[:, :count].transpose(1, 0, 2), expected)
    assert not out[:, count:].any()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_undoes_ldmatrix(run_body, count, transposed):
    memory, out = np.arange(count * 64, dtype="u2"), np.zeros(count * 64, "u2")
    suffix = "_trans" if transposed else ""
    body = f"""{MATRIX}
      for (int i = lane; i < {count * 64}; i += 32) s[i] = X[i];
      tl::sync_warp();
      tl::ldmatrix_x{count}{suffix}(r, s + lane % {count * 8} * 8);
      tl::stmatrix_x{count}{suffix}(s + 1024 + (lane * 3) % {count * 8} * 8, r);
      tl::sync_warp();
      for (int i = lane; i < {count * 64}; i += 32) O[i] = s[1024 + i];"""
    run_body("const uint16_t* X, uint16_t* O", body, [memory, out]).check()
    rows = (np.arange(count * 8) * 3) % (count * 8)
    np.testing.assert_array_equal(out.reshape(-1, 8)[rows], memory.reshape(-1, 8))


def test_ldmatrix_counts_conflicts(run_body, only_emulated):
    body = (
        "uint16_t* s = (uint16_t*)tl::shared_memory(); uint32_t r[1]; tl::ldmatrix_x1(r, s + threadIdx.x % 8 * STRIDE);"
    )
    for stride, wavefronts in ((8, 1), (16, 2), (64, 8), (72, 1)):
        report = run_body("", body.replace("STRIDE", str(stride)), [])  # unwritten: only the count matters
        assert report.counters["ldmatrix_wavefronts"] == wavefronts


@pytest.mark.parametrize("mode", ["early", "late"])
@pytest.mark.parametrize("size", [4, 8, 16])
def test_cp_async_fills_zeros_where_not_valid(run_body, watched, size, mode):
    x, out = np.arange(1, 32 * size + 1).astype("u1"), np.zeros(32 * size, "u1")
    body = f"""
      unsigned char* s = tl::shared_memory(); int t = threadIdx.x;
      bool valid = t % 3 != 0;
      tl::cp_async<{size}>(s + t * {size}, valid ? X + t * {size} : X + (1 << 20), valid);
      tl::cp_async_commit();
      tl::cp_async_wait<0>();
      for (int i = 0; i < {size}; ++i) O[t * {size} + i] = s[t * {size} + i];"""
    args = [x, out]
    run_body("const unsigned char* X, unsigned char* O", body, args, mode=mode, buffers=watched(X=x, O=out)).check()
    valid = np.arange(32) % 3 != 0
    np.testing.assert_array_equal(out.reshape(32, size), x.reshape(32, size) * valid[:, None])


def test_cp_async_groups_complete_in_order(run_body, only_emulated):
    """A wait covers all but the newest groups, so that the oldest may be read while others are in flight."""
    x, out = np.arange(128, dtype="i4"), np.zeros(32, "i4")
    body = """
      int* s = (int*)tl::shared_memory(); int t = threadIdx.x;
      for (int i = 0; i < 4; ++i) { tl::cp_async<4>(s + i * 32 + t, X + i * 32 + t); tl::cp_async_commit(); }
      tl::cp_async_wait<2>();
      O[t] = s[t] + s[32 + t];"""
    for mode in ("early", "late"):
        run_body("const int* X, int* O", body, [x, out], mode=mode).check()
        np.testing.assert_array_equal(out, x[:32] + x[32:64])
    report = run_body("const int* X, int* O", body.replace("s[32 + t]", "s[64 + t]"), [x, out])
    assert [f.kind for f in report.errors] == ["read-in-flight"]


def test_cp_async_is_visible_to_others_only_after_a_barrier(run_body, only_emulated):
    x, out = np.arange(32, dtype="i4"), np.zeros(32, "i4")
    body = """
      int* s = (int*)tl::shared_memory(); int t = threadIdx.x;
      tl::cp_async<4>(s + t, X + t);
      tl::cp_async_commit();
      tl::cp_async_wait<0>();
      SYNC
      O[t] = s[31 - t];"""
    run_body("const int* X, int* O", body.replace("SYNC", "tl::sync_threads();"), [x, out]).check()
    np.testing.assert_array_equal(out, x[::-1])
    assert run_body("const int* X, int* O", body.replace("SYNC", ""), [x, out]).errors


@pytest.mark.parametrize("c_type", ["int", "float", "double", "int64_t", "uint8_t", "tl::half_t"])
def test_shuffles(run_body, c_type):
    dtype = {"int": "i4", "float": "f4", "double": "f8", "int64_t": "i8", "uint8_t": "u1", "tl::half_t": "f2"}[c_type]
    x, out = (np.arange(32) * 3 + 1).astype(dtype), np.zeros((4, 32), dtype)
    body = """
      int t = threadIdx.x;
      O[t] = tl::shfl_xor(X[t], 5);
      O[32 + t] = tl::shfl_down(X[t], 3);
      O[64 + t] = tl::shfl_up(X[t], 3);
      O[96 + t] = tl::shfl_idx(X[t], 7 * t);"""
    run_body(f"const {c_type}* X, {c_type}* O", body, [x, out]).check()
    lane = np.arange(32)
    sources = [lane ^ 5, np.where(lane < 29, lane + 3, lane), np.where(lane < 3, lane, lane - 3), 7 * lane % 32]
    np.testing.assert_array_equal(out, [x[s] for s in sources])


def test_votes(run_body):
    out = np.zeros((4, 32), "u4")
    body = """
      int t = threadIdx.x;
      O[t] = tl::vote_ballot(t % 3 == 0);
      O[32 + t] = tl::vote_any(t == 31);
      O[64 + t] = tl::vote_all(t != 31);
      O[96 + t] = tl::vote_all(true) && !tl::vote_any(false);"""
    run_body("uint32_t* O", body, [out]).check()
    assert (out[0] == sum(1 << t for t in range(0, 32, 3))).all()
    assert (out[1:, 0] == [1, 0, 1]).all()


def test_a_value_of_the_whole_warp(run_body):
    """The same in all lanes; of values that differ the first lane's counts."""
    out = np.zeros(64, "i4")
    run_body("int* O", "O[threadIdx.x] = tl::uniform((int)threadIdx.x * 7 + 5);", [out], 64).check()
    np.testing.assert_array_equal(out, np.repeat([5, 229], 32))


def test_transpose_quad(run_body):
    words = np.random.default_rng(2).integers(0, 2**32, (32, 4), dtype="u4")
    out = words.copy()
    body = """
      uint32_t w[4];
      for (int i = 0; i < 4; ++i) w[i] = X[threadIdx.x * 4 + i];
      tl::transpose_quad(w);
      for (int i = 0; i < 4; ++i) X[threadIdx.x * 4 + i] = w[i];"""
    run_body("uint32_t* X", body, [out]).check()
    np.testing.assert_array_equal(out.reshape(8, 4, 4), words.reshape(8, 4, 4).swapaxes(1, 2))
