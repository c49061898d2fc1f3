"""What only HIP's header has, alone, with a distinct value per element: MFMA, loads to LDS, waves of 64.

The layouts are tables written from the CDNA3 ISA ("Matrix Arithmetic Instructions", figures of the register layouts),
register by register, independently of the one rule by which the runtime computes them.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tile_runtime_cpu import emulator

LANE = np.arange(64)
#: Rows of d that one lane holds, by its group of lanes; the column is the lane within the group.
ROWS_32 = [
    [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27],
    [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31],
]
ROWS_16 = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
ROWS_16_F64 = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
#: Columns of a (rows of b) that one lane holds, by its group of lanes, for each shape.
DEPTH = {
    (32, 2): [[0], [1]],
    (32, 4): [[0, 1], [2, 3]],
    (32, 8): [[0, 1, 2, 3], [4, 5, 6, 7]],
    (32, 16): [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15]],
    (16, 4): [[0], [1], [2], [3]],
    (16, 8): [[0, 1], [2, 3], [4, 5], [6, 7]],
    (16, 16): [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]],
    (16, 32): [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [8, 9, 10, 11, 12, 13, 14, 15],
        [16, 17, 18, 19, 20, 21, 22, 23],
        [24, 25, 26, 27, 28, 29, 30, 31],
    ],
}
TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "xf32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
BOTH, OLD, NEW = ("gfx90a", "gfx942"), ("gfx90a",), ("gfx942",)
#: Name, rows, depth, types of a and b, architectures.
MFMA = [
    ("32x32x8_f32_f16", 32, 8, "f16", "f16", BOTH),
    ("16x16x16_f32_f16", 16, 16, "f16", "f16", BOTH),
    ("32x32x8_f32_bf16", 32, 8, "bf16", "bf16", BOTH),
    ("16x16x16_f32_bf16", 16, 16, "bf16", "bf16", BOTH),
    ("32x32x2_f32_f32", 32, 2, "f32", "f32", BOTH),
    ("16x16x4_f32_f32", 16, 4, "f32", "f32", BOTH),
    ("16x16x4_f64_f64", 16, 4, "f64", "f64", BOTH),
    ("32x32x4_f32_xf32", 32, 4, "xf32", "xf32", NEW),
    ("16x16x8_f32_xf32", 16, 8, "xf32", "xf32", NEW),
    ("32x32x8_i32_i8", 32, 8, "i8", "i8", OLD),
    ("16x16x16_i32_i8", 16, 16, "i8", "i8", OLD),
    ("32x32x16_i32_i8", 32, 16, "i8", "i8", NEW),
    ("16x16x32_i32_i8", 16, 32, "i8", "i8", NEW),
    ("32x32x16_f32_e4m3fnuz", 32, 16, "e4m3fnuz", "e4m3fnuz", NEW),
    ("16x16x32_f32_e4m3fnuz", 16, 32, "e4m3fnuz", "e4m3fnuz", NEW),
    ("32x32x16_f32_e5m2fnuz", 32, 16, "e5m2fnuz", "e5m2fnuz", NEW),
    ("16x16x32_f32_e5m2fnuz", 16, 32, "e5m2fnuz", "e5m2fnuz", NEW),
    ("32x32x16_f32_e4m3fnuz_e5m2fnuz", 32, 16, "e4m3fnuz", "e5m2fnuz", NEW),
    ("16x16x32_f32_e4m3fnuz_e5m2fnuz", 16, 32, "e4m3fnuz", "e5m2fnuz", NEW),
    ("32x32x16_f32_e5m2fnuz_e4m3fnuz", 32, 16, "e5m2fnuz", "e4m3fnuz", NEW),
    ("16x16x32_f32_e5m2fnuz_e4m3fnuz", 16, 32, "e5m2fnuz", "e4m3fnuz", NEW),
]
#: The functions whose names the tests put together.
BUILT = [f"mfma_{form[0]}" for form in MFMA]
CASES = [(*form[:5], arch) for form in MFMA for arch in form[5]]
IDS = [f"{case[0]}-{case[5]}" for case in CASES]


def fragments(rows, depth, accumulator):
    """For each lane and element: (row, column) of a; (row, column) of b; (row, column) of d."""
    group, within = LANE // rows, (LANE % rows)[:, None]
    k = np.array(DEPTH[rows, depth])[group]
    d_rows = np.array(ROWS_32 if rows == 32 else ROWS_16_F64 if accumulator is np.float64 else ROWS_16)[group]
    return (within + 0 * k, k), (k, within + 0 * k), (d_rows, within + 0 * d_rows)


def words(values, element):
    """The elements of each lane as 32-bit registers."""
    return np.ascontiguousarray(values.astype(TYPES[element])).view("u4")


def multiply(run_wave, name, rows, depth, a, b, c, a_type, b_type, arch):
    """The instruction over a batch of matrices, gathered into fragments and back by the tables."""
    accumulator = {"i32": np.int32, "f32": np.float32, "f64": np.float64}[name.split("_")[1]]
    in_a, in_b, in_d = fragments(rows, depth, accumulator)
    a_words = np.stack([words(m[in_a], a_type) for m in a])
    b_words = np.stack([words(m[in_b], b_type) for m in b])
    c_words = np.stack([m[in_d] for m in c]).astype(accumulator)
    na, nb, nc = a_words.shape[2], b_words.shape[2], c_words.shape[2]
    c_type = {np.int32: "int", np.float32: "float", np.float64: "double"}[accumulator]
    body = f"""
      for (int m = 0; m < n; ++m) {{
        int place = m * 64 + threadIdx.x;
        uint32_t a[{na}], b[{nb}]; {c_type} c[{nc}];
        for (int i = 0; i < {na}; ++i) a[i] = A[place * {na} + i];
        for (int i = 0; i < {nb}; ++i) b[i] = B[place * {nb} + i];
        for (int i = 0; i < {nc}; ++i) c[i] = C[place * {nc} + i];
        tl::mfma_{name}(c, a, b);
        for (int i = 0; i < {nc}; ++i) C[place * {nc} + i] = c[i];
      }}"""
    parameters = f"const uint32_t* A, const uint32_t* B, {c_type}* C, int n"
    run_wave(parameters, body, [a_words, b_words, c_words, len(a)], arch=arch).check()
    d = np.zeros((len(a), rows, rows), accumulator)
    for m in range(len(a)):
        d[m][in_d] = c_words[m]
    return d


def integers(element):
    """The integers up to 240 that the type holds."""
    values = np.arange(-240 if element != "i8" else -128, 241 if element != "i8" else 128)
    return values[values.astype(TYPES[element]).astype(np.float64) == values]


def distinct_rows(rng, element, shape):
    """Integers, no two equal in a row."""
    return np.stack([rng.choice(integers(element), shape[1], replace=False) for _ in range(shape[0])])


@pytest.mark.parametrize(("name", "rows", "depth", "a_type", "b_type", "arch"), CASES, ids=IDS)
def test_each_element_of_a_meets_its_elements_of_b(run_wave, name, rows, depth, a_type, b_type, arch):
    """One 1 in a at a time: its row of the result is a row of b, whose elements are distinct; then the reverse."""
    rng = np.random.default_rng(depth)
    ones = np.eye(rows * depth).reshape(-1, rows, depth)
    c = np.broadcast_to(np.arange(rows * rows).reshape(rows, rows) * 512, (len(ones), rows, rows))
    other = distinct_rows(rng, b_type, (depth, rows))
    d = multiply(run_wave, name, rows, depth, ones, [other] * len(ones), c, a_type, b_type, arch)
    np.testing.assert_array_equal(d, c + ones @ other)
    ones = ones.transpose(0, 2, 1)
    other = distinct_rows(rng, a_type, (depth, rows)).T
    d = multiply(run_wave, name, rows, depth, [other] * len(ones), ones, c, a_type, b_type, arch)
    np.testing.assert_array_equal(d, c + other @ ones)


def to_xf32(x):
    """10 bits of mantissa, to nearest even."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(fraction * 2**11) / 2**11, exponent)


@pytest.mark.parametrize(("name", "rows", "depth", "a_type", "b_type", "arch"), CASES, ids=IDS)
def test_random_matrices(run_wave, name, rows, depth, a_type, b_type, arch):
    """All values of the types; float sums within depth roundings of the exact result."""
    rng = np.random.default_rng(len(name))
    n = 5
    if "_i32_" in name:
        a, b = (rng.integers(-128, 128, s) for s in ((n, rows, depth), (n, depth, rows)))
        c = rng.integers(-(2**31), 2**31, (n, rows, rows))
        expected = (c + a @ b).astype("u8").astype("u4").view("i4")  # wraps
        d = multiply(run_wave, name, rows, depth, a, b, c, a_type, b_type, arch)
        np.testing.assert_array_equal(d, expected)
        return
    a = rng.standard_normal((n, rows, depth)).astype(TYPES[a_type]).astype("f8")
    b = rng.standard_normal((n, depth, rows)).astype(TYPES[b_type]).astype("f8")
    c = rng.standard_normal((n, rows, rows)).astype("f4")
    if arch == "gfx90a" and a_type in ("f16", "bf16"):  # subnormal operands count as zero
        least = float(ml_dtypes.finfo(TYPES[a_type]).smallest_normal)
        a[np.abs(a) < least] = b[np.abs(b) < least] = 0
    d = multiply(run_wave, name, rows, depth, a, b, c, a_type, b_type, arch)
    if a_type == "xf32":
        a, b = to_xf32(a), to_xf32(b)
    size = np.abs(a) @ np.abs(b) + np.abs(c)
    assert (np.abs(d - (a @ b + c)) <= depth * np.finfo(d.dtype).eps / 2 * size).all()


@pytest.mark.parametrize(("name", "element"), [("f32_f16", "f16"), ("f32_bf16", "bf16"), ("i32_i8", "i8")])
def test_sixteen_products_of_4x4(run_wave, name, element):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 10, (16, 4, 4)) for _ in range(2))
    c = np.arange(256).reshape(16, 4, 4)
    block, within = LANE // 4, LANE % 4
    held = np.arange(4)
    c_words = np.ascontiguousarray(c[block[:, None], held, within[:, None]].astype("i4" if element == "i8" else "f4"))
    a_words = words(a[block[:, None], within[:, None], held], element)
    b_words = words(b[block[:, None], held, within[:, None]], element)
    count = a_words.shape[1]
    body = f"tl::mfma_4x4x4_{name}(tl_c, A + threadIdx.x * {count}, B + threadIdx.x * {count});"
    c_type = "int" if element == "i8" else "float"
    body = f"""{c_type} tl_c[4]; for (int i = 0; i < 4; ++i) tl_c[i] = C[threadIdx.x * 4 + i]; {body}
      for (int i = 0; i < 4; ++i) C[threadIdx.x * 4 + i] = tl_c[i];"""
    run_wave(f"const uint32_t* A, const uint32_t* B, {c_type}* C", body, [a_words, b_words, c_words]).check()
    np.testing.assert_array_equal(c_words, (c + a @ b)[block[:, None], held, within[:, None]])


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("arch", BOTH)
def test_subnormals_are_flushed_by_gfx90a_only(run_wave, element, arch):
    """ROCm, MIOpen documentation, "MI200 matrix fused multiply-add (MFMA) behavior specifics"."""
    tiny = float(ml_dtypes.finfo(TYPES[element]).smallest_subnormal)
    a, b, c = np.zeros((3, 16, 16)), np.zeros((3, 16, 16)), np.zeros((3, 16, 16), "f4")
    a[0], b[0] = np.eye(16) * tiny * 3, np.eye(16) * 4  # an operand
    a[1], b[1] = np.eye(16) * 2.0**-70, np.eye(16) * 2.0**-60  # the result; bf16 only: f16 has no such values
    a[2], b[2], c[2] = np.eye(16), np.eye(16), np.full((16, 16), 2.0**-140)  # the accumulator
    if element == "f16":
        a[1] = 0
    d = multiply(run_wave, f"16x16x16_f32_{element}", 16, 16, a, b, c, element, element, arch)
    expected = a @ b + c
    if arch == "gfx90a":
        expected[:2] = 0
        expected[2] = a[2]
    np.testing.assert_array_equal(d, expected.astype("f4"))


def test_sums_are_rounded_one_at_a_time_in_the_order_of_k(run_wave):
    """What the emulator does where the ISA leaves the order open: 2^24 + 1 rounds to even, and stays."""
    a, b, c = np.ones((1, 16, 16)), np.ones((1, 16, 16)), np.full((1, 16, 16), 2.0**24)
    a[0, 0, :8] = 2
    d = multiply(run_wave, "16x16x16_f32_f16", 16, 16, a, b, c, "f16", "f16", "gfx942")
    assert (d[0, 0] == 2**24 + 16).all()
    assert (d[0, 1:] == 2**24).all()


def test_nan_and_infinity_pass_through(run_wave):
    a = np.zeros((1, 16, 32), ml_dtypes.float8_e4m3fnuz)
    a[0, 3, 5] = np.nan
    b = np.ones((1, 32, 16))
    d = multiply(run_wave, "16x16x32_f32_e4m3fnuz", 16, 32, a, b, np.zeros((1, 16, 16)), *["e4m3fnuz"] * 2, "gfx942")
    assert np.isnan(d[0, 3]).all()
    assert not np.delete(d[0], 3, 0).any()
    a, b = np.zeros((1, 16, 16), "f2"), np.ones((1, 16, 16))
    a[0, 2, 7] = np.inf
    d = multiply(run_wave, "16x16x16_f32_f16", 16, 16, a, b, np.zeros((1, 16, 16)), "f16", "f16", "gfx942")
    assert np.isposinf(d[0, 2]).all()


@pytest.mark.parametrize(
    ("call", "arch"),
    [
        ("tl::mfma_16x16x32_f32_e4m3fnuz(C, C, C)", "gfx90a"),
        ("tl::mfma_16x16x16_i32_i8(C, C, C)", "gfx942"),
        ("tl::load_to_lds<4>(tl::shared_memory(), C)", "gfx90a"),
        ("tl::load_to_lds<16>(tl::shared_memory(), C)", "gfx942"),
        ("tl::ldmatrix_x1(C, tl::shared_memory())", "gfx942"),
        ("tl::sync_threads<1, 64>()", "gfx942"),
        ("__builtin_amdgcn_s_barrier()", "gfx942"),  # orders nothing without the fences that tl::sync_threads has
    ],
)
def test_what_an_architecture_lacks_does_not_compile(run_wave, call, arch):
    with pytest.raises(emulator.CompileError):
        run_wave("float* C", call + ";", [np.zeros(64, "f4")], arch=arch)


def test_a_matrix_instruction_wants_whole_waves(run_wave):
    x = np.zeros(64, "f4")
    body = "float c[4] = {0, 0, 0, 0}; tl::mfma_16x16x16_f32_f16(c, c, c); O[threadIdx.x] = c[0];"
    report = run_wave("float* O", body, [x], threads=96)
    assert [f.kind for f in report.errors] == ["partial-wave"]
    assert "multiple of 64" in report.errors[0].advice


# ---- loads to LDS ----------------------------------------------------------------------------------------------------

MODES = ["early", "late"]


@pytest.mark.parametrize("mode", MODES)
def test_a_load_puts_lanes_side_by_side(run_wave, watched, mode):
    """Each lane takes its data from where it likes; the wave's address is one."""
    x, out = np.random.default_rng(0).permutation(128).astype("i4"), np.zeros(128, "i4")
    body = """
      int* s = (int*)tl::shared_memory(); int t = threadIdx.x, wave = t / 64;
      tl::load_to_lds<4>(s + 128 + wave * 64, X + (t * 37 + 5) % 128);
      tl::wait_loads<0>();
      tl::sync_threads();
      O[127 - t] = s[128 + 127 - t];"""
    options = {"threads": 128, "mode": mode, "buffers": watched(X=x, O=out), "arch": "gfx942"}
    report = run_wave("const int* X, int* O", body, [x, out], **options).check()
    np.testing.assert_array_equal(out, x[(np.arange(128) * 37 + 5) % 128])
    assert report.counters["direct_loads"] == 128


@pytest.mark.parametrize("mode", MODES)
def test_loads_complete_in_order(run_wave, mode):
    """A wait covers all but the newest loads, so that the oldest may be read while others are in flight."""
    x, out = np.arange(256, dtype="i4"), np.zeros(64, "i4")
    body = """
      int* s = (int*)tl::shared_memory(); int t = threadIdx.x;
      for (int i = 0; i < 4; ++i) tl::load_to_lds<4>(s + i * 64, X + i * 64 + t);
      tl::wait_loads<2>();
      O[t] = s[t] + s[64 + t];"""
    run_wave("const int* X, int* O", body, [x, out], mode=mode).check()
    np.testing.assert_array_equal(out, x[:64] + x[64:128])
    report = run_wave("const int* X, int* O", body.replace("s[64 + t]", "s[128 + t]"), [x, out], mode=mode)
    assert [f.kind for f in report.errors] == ["read-in-flight"]
    assert "tl::wait_loads" in report.errors[0].advice


def test_a_load_is_visible_to_others_only_after_a_barrier(run_wave):
    x, out = np.arange(64, dtype="i4"), np.zeros(64, "i4")
    body = """
      int* s = (int*)tl::shared_memory(); int t = threadIdx.x;
      tl::load_to_lds<4>(s, X + t);
      tl::wait_loads<0>();
      SYNC
      O[t] = s[63 - t];"""
    for sync in ("tl::sync_threads();", "tl::sync_warp();"):
        run_wave("const int* X, int* O", body.replace("SYNC", sync), [x, out]).check()
        np.testing.assert_array_equal(out, x[::-1])
    assert run_wave("const int* X, int* O", body.replace("SYNC", ""), [x, out]).errors


def test_a_barrier_does_not_wait_for_loads(run_wave):
    """A release at the scope of a workgroup leaves vmcnt alone (LLVM, "User Guide for AMDGPU Backend", memory model gfx942)."""
    x, out = np.arange(64, dtype="i4"), np.zeros(64, "i4")
    body = """
      int* s = (int*)tl::shared_memory(); int t = threadIdx.x;
      tl::load_to_lds<4>(s, X + t);
      tl::sync_threads();
      O[t] = s[t];"""
    for mode in MODES:
        report = run_wave("const int* X, int* O", body, [x, out], mode=mode)
        assert {f.kind for f in report.errors} == {"read-in-flight"}


@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_copy_is_over_at_once(run_wave, watched, size):
    """CUDA's asynchronous copy under the same name: zeros, and nothing read, where not valid."""
    x, out = np.arange(1, 64 * size + 1).astype("u1"), np.zeros(64 * size, "u1")
    body = f"""
      unsigned char* s = tl::shared_memory(); int t = threadIdx.x;
      bool valid = t % 3 != 0;
      tl::cp_async<{size}>(s + t * {size}, valid ? X + t * {size} : X + (1 << 20), valid);
      tl::cp_async_commit();
      tl::cp_async_wait<0>();
      for (int i = 0; i < {size}; ++i) O[t * {size} + i] = s[t * {size} + i];"""
    parameters = "const unsigned char* X, unsigned char* O"
    run_wave(parameters, body, [x, out], buffers=watched(X=x, O=out)).check()
    valid = np.arange(64) % 3 != 0
    np.testing.assert_array_equal(out.reshape(64, size), x.reshape(64, size) * valid[:, None])


def test_lanes_that_give_different_addresses(run_wave):
    x = np.zeros(64, "i4")
    body = "int* s = (int*)tl::shared_memory();\ntl::load_to_lds<4>(s + threadIdx.x, X + threadIdx.x);"
    report = run_wave("const int* X", body, [x])
    finding = report.errors[0]
    assert finding.kind == "not-uniform"
    assert finding.text.startswith("tl::load_to_lds<4>")
    assert finding.threads == (1, 0)


def test_a_load_is_checked_on_both_sides(run_wave, watched):
    x = np.zeros(60, "i4")
    body = "tl::load_to_lds<4>(tl::shared_memory(), X + threadIdx.x);"
    report = run_wave("const int* X", body, [x], buffers=watched(X=x))
    assert [(f.kind, f.buffer, f.offset) for f in report.errors] == [
        ("out-of-bounds", "X", 252)
    ]  # the last lane goes first
    x = np.zeros(64, "i4")
    report = run_wave("const int* X", body, [x], shared=128)
    assert [(f.kind, f.buffer, f.offset) for f in report.errors] == [("out-of-bounds", "shared memory", 252)]


# ---- waves of 64 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("c_type", ["int", "float", "double", "int64_t", "uint8_t", "tl::half_t"])
def test_shuffles_over_a_wave(run_wave, c_type):
    dtype = {"int": "i4", "float": "f4", "double": "f8", "int64_t": "i8", "uint8_t": "u1", "tl::half_t": "f2"}[c_type]
    x, out = (np.arange(128) + 1).astype(dtype), np.zeros((5, 128), dtype)
    body = """
      int t = threadIdx.x;
      O[t] = tl::shfl_xor(X[t], 37);
      O[128 + t] = tl::shfl_down(X[t], 40);
      O[256 + t] = tl::shfl_up(X[t], 33);
      O[384 + t] = tl::shfl_idx(X[t], 7 * t);
      O[512 + t] = tl::shfl_xor(X[t], 32);"""
    run_wave(f"const {c_type}* X, {c_type}* O", body, [x, out], threads=128).check()
    lane = np.arange(128) % 64
    down, up = np.where(lane < 24, lane + 40, lane), np.where(lane < 33, lane, lane - 33)
    sources = [lane ^ 37, down, up, 7 * np.arange(128) % 64, lane ^ 32]
    np.testing.assert_array_equal(out, [x[np.arange(128) // 64 * 64 + s] for s in sources])


def test_votes_of_a_wave(run_wave):
    out = np.zeros((4, 64), "u8")
    body = """
      int t = threadIdx.x;
      O[t] = tl::vote_ballot(t % 3 == 0);
      O[64 + t] = tl::vote_any(t == 63);
      O[128 + t] = tl::vote_all(t != 63);
      O[192 + t] = tl::vote_all(true) && !tl::vote_any(false);"""
    run_wave("uint64_t* O", body, [out]).check()
    assert (out[0] == sum(1 << t for t in range(0, 64, 3))).all()
    assert (out[1:, 0] == [1, 0, 1]).all()


def test_a_warp_barrier_orders_all_64_lanes(run_wave):
    out = np.zeros(128, "f4")
    body = """
      float* s = (float*)tl::shared_memory(); int t = threadIdx.x;
      s[t] = t;
      tl::sync_warp();
      O[t] = s[t PARTNER];"""
    run_wave("float* O", body.replace("PARTNER", "^ 63"), [out], threads=128).check()
    np.testing.assert_array_equal(out, np.arange(128) ^ 63)
    report = run_wave("float* O", body.replace("PARTNER", "^ 64"), [out], threads=128)
    assert {f.kind for f in report.errors} & {"race-read-after-write", "uninitialized-read"}


@pytest.mark.parametrize("threads", [1, 63, 65, 1000, 1024])
def test_blocks_of_any_size(run_wave, watched, threads):
    y = np.zeros(threads, "f4")
    body = """
      float* s = (float*)tl::shared_memory();
      s[threadIdx.x] = threadIdx.x;
      tl::sync_threads();
      O[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x] + tl::shfl_xor(1.0f, 32);"""
    run_wave("float* O", body, [y], threads=threads, buffers=watched(O=y)).check()
    np.testing.assert_array_equal(y, threads - np.arange(threads))


def test_divergence_within_a_wave(run_wave):
    """Lanes 32 to 63 are of the same wave."""
    body = "float x = threadIdx.x; if (threadIdx.x < 32) x = tl::shfl_xor(x, 1); else tl::sync_warp();"
    report = run_wave("", body, [])
    assert [f.kind for f in report.errors] == ["divergence"]
