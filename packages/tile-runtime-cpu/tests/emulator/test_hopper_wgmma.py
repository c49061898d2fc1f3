"""Every form of wgmma alone, against numpy, on small integers: all sums are exact, on the chip too.

The layouts of registers and of shared memory are written out here from the PTX ISA ("Register Fragments and Shared Memory
Matrix Layouts", "Matrix Descriptor Format"), element by element.
"""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

THREAD = np.arange(128)[:, None]
TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
}
KINDS = [
    "f32_f16", "f32_bf16", "f16_f16", "f32_tf32",
    *(f"{d}_{ab}" for d in ("f32", "f16") for ab in ("e4m3", "e5m2", "e4m3_e5m2", "e5m2_e4m3")),
    "s32_s8", "s32_u8", "s32_s8_u8", "s32_u8_s8",
]  # fmt: skip


def forms():
    """(kind, n, registers, majors of a and b, swizzle)."""
    for kind in KINDS:
        for registers in (False, True):
            for n, swizzle in ((8, 128), (64, 64), (96, 32), (256, 128), (16, 0)):
                yield kind, n, registers, (0, 0), swizzle
    for kind in KINDS[:3]:
        for majors in ((0, 1), (1, 0), (1, 1)):
            for n, swizzle in ((64, 128), (96, 64), (48, 32), (24, 0), (256, 128)):
                yield kind, n, False, majors, swizzle
        yield kind, 128, True, (0, 1), 128
    for n in range(8, 257, 8):
        yield "f32_f16", n, False, (0, 0), 128
        yield "f16_f16", n, True, (0, 0), 64
    for n in (8, 16, 24, *range(32, 257, 16)):
        yield "s32_s8", n, False, (0, 0), 128


def forms_here():
    """All in `nox -s full`; here not the numbers of columns between those that each kind has anyway."""
    between = {form for form in forms() if form[0] in ("f32_f16", "f16_f16", "s32_s8") and 32 < form[1] < 256}
    return [pytest.param(*form, marks=pytest.mark.full if form in between else ()) for form in dict.fromkeys(forms())]


def function_of(kind, registers):
    """The header's name of a form."""
    return f"wgmma_m64k{32 // np.dtype(TYPES[kind.split('_')[1]]).itemsize}_{kind}{'_rs' if registers else ''}"


#: The functions whose names the tests put together.
BUILT = [function_of(kind, registers) for kind in KINDS for registers in (False, True)]


def swizzled(offset, span):
    return offset ^ (offset >> 3 & {0: 0, 32: 0x10, 64: 0x30, 128: 0x70}[span])


def in_shared_memory(matrix, mn_major, swizzle):
    """(bytes, leading, stride, step of k) of a matrix (rows or columns, k) of two k steps."""
    extent, depth = matrix.shape
    size, span = matrix.itemsize, swizzle or 16
    along = matrix.T if mn_major else matrix
    image = np.zeros(1 << 17, "u1")
    rows, columns = along.shape  # the second is contiguous
    per = span // size  # elements in a row of an atom
    for r in range(rows):
        for c in range(columns):
            inside = c % per * size + r % 8 * span
            atom = c // per * rows * span if mn_major or swizzle else c // per * rows * 16
            offset = swizzled(atom + r // 8 * 8 * span + inside, swizzle)
            image[offset : offset + size] = along[r : r + 1, c : c + 1].copy().view("u1").reshape(-1)
    groups, atoms = 8 * span, rows * span
    if mn_major:
        leading, stride = (atoms, groups) if swizzle else (groups, atoms)
        step = depth // 2 // 8 * groups
    else:
        leading, stride = (16, groups) if swizzle else (atoms, groups)
        bytes_of_step = depth // 2 * size
        step = bytes_of_step // span * atoms if span <= bytes_of_step else bytes_of_step
    return image[: rows * max(columns * size, span)], leading, stride, step


def rows_and_columns(count):
    """Of the elements of an accumulator, by thread and element."""
    e = np.arange(count)
    rows = THREAD // 32 * 16 + THREAD % 32 // 4 + 8 * (e // 2 % 2)
    return rows, e // 4 * 8 + THREAD % 4 * 2 + e % 2


def a_fragments(a, step):
    """Registers of a k step: (thread, element)."""
    per = 4 // a.itemsize
    depth = 32 // a.itemsize
    e = np.arange(4 * per)
    j, i = e // per, e % per
    rows = THREAD // 32 * 16 + THREAD % 32 // 4 + 8 * (j % 2)
    return a[rows, step * depth + depth // 2 * (j // 2) + per * (THREAD % 4) + i]


HEAD = """
extern "C" __global__ void __launch_bounds__(128)
    {name}(const unsigned char* A, const unsigned char* B, const uint32_t* R, uint32_t* O) {{"""
BODY = """
  unsigned char* s = tl::shared_memory();
  unsigned char* sb = s + {b_at};
  for (int i = threadIdx.x; i < {a_bytes}; i += 128) s[i] = A[i];
  for (int i = threadIdx.x; i < {b_bytes}; i += 128) sb[i] = B[i];
  uint32_t ra[2][4], d[{count}];
#pragma unroll
  for (int i = 0; i < 8; ++i) (&ra[0][0])[i] = R[threadIdx.x * 8 + i];
  tl::fence_proxy_async();
  tl::sync_threads();
  uint64_t a = tl::wgmma_descriptor<{swizzle}>(s, {a_leading}, {a_stride});
  uint64_t b = tl::wgmma_descriptor<{swizzle}>(sb, {b_leading}, {b_stride});
  tl::wgmma_fence();
  {call}(d, {first_a}, b, false);
  {call}(d, {second_a}, tl::wgmma_descriptor_advance(b, {b_step}), true);
  tl::wgmma_commit();
  tl::wgmma_wait<0>();
  tl::wgmma_hold<{count}>(d);
#pragma unroll
  for (int i = 0; i < {count}; ++i) O[threadIdx.x * {count} + i] = d[i];"""


def operands(kind, n, majors, swizzle):
    """a, b, and how they lie in shared memory."""
    _, a_type, *rest = kind.split("_")
    a_kind, b_kind = TYPES[a_type], TYPES[rest[0] if rest else a_type]
    k = 32 // np.dtype(a_kind).itemsize
    rng = np.random.default_rng(n)
    low = 0 if "u8" in kind else -3
    a, b = rng.integers(low, 4, (64, 2 * k)).astype(a_kind), rng.integers(low, 4, (n, 2 * k)).astype(b_kind)
    a_image, a_leading, a_stride, a_step = in_shared_memory(a, majors[0], swizzle)
    b_image, b_leading, b_stride, b_step = in_shared_memory(b, majors[1], swizzle)
    b_at = -(-a_image.size // 1024) * 1024
    places = {
        "a_bytes": a_image.size, "a_leading": a_leading, "a_stride": a_stride, "a_step": a_step,
        "b_bytes": b_image.size, "b_leading": b_leading, "b_stride": b_stride, "b_step": b_step,
        "b_at": b_at, "shared": b_at + b_image.size + 1024,
    }  # fmt: skip
    return a, b, np.ascontiguousarray(a_image), np.ascontiguousarray(b_image), places


def symbol(n, registers, majors, swizzle):
    return f"k{n}_{'rs' if registers else 'ss'}_{majors[0]}{majors[1]}_{swizzle}"


@functools.cache
def source(kind):
    """The text of a kernel for each form of a kind: compiled once."""
    text = '#include "tl_cuda.cuh"\n'
    k = 32 // np.dtype(TYPES[kind.split("_")[1]]).itemsize
    for of_kind, n, registers, majors, swizzle in dict.fromkeys(forms()):
        if of_kind != kind:
            continue
        places = operands(kind, n, majors, swizzle)[-1]
        call = f"tl::{function_of(kind, registers)}<{n}"
        if k == 16:
            call += f", tl::major({majors[1]})" if registers else f", tl::major({majors[0]}), tl::major({majors[1]})"
        body = BODY.format(
            call=call + ">",
            first_a="ra[0]" if registers else "a",
            second_a="ra[1]" if registers else f"tl::wgmma_descriptor_advance(a, {places['a_step']})",
            count=n // 4 if kind.startswith("f16") else n // 2,
            swizzle=swizzle,
            **places,
        )
        text += f"{HEAD.format(name=symbol(n, registers, majors, swizzle))}{body}\n}}\n"
    return text


@pytest.mark.parametrize(("kind", "n", "registers", "majors", "swizzle"), forms_here())
def test_wgmma(compile_text, kind, n, registers, majors, swizzle):
    a, b, a_image, b_image, places = operands(kind, n, majors, swizzle)
    fragments = np.stack([np.ascontiguousarray(a_fragments(a, step)).view("u4") for step in (0, 1)], 1)
    d_type = kind.split("_")[0]
    out = np.full((128, n // 4 if d_type == "f16" else n // 2), 0xFFFFFFFF, "u4")
    args = [a_image, b_image, np.ascontiguousarray(fragments), out]
    module, name = compile_text(source(kind)), symbol(n, registers, majors, swizzle)
    module.launch(name, (1,), (128,), places["shared"], args, mode="late" if n % 16 else "early").check()
    found = out.view({"f32": "f4", "f16": "f2", "s32": "i4"}[d_type])
    rows, columns = rows_and_columns(found.shape[1])
    expected = a.astype("f8") @ b.astype("f8").T
    np.testing.assert_array_equal(found.astype("f8"), expected[rows, columns])


@pytest.mark.parametrize("mode", ["early", "late"])
def test_batches_of_one_warpgroup_end_in_order(run_body, mode):
    """Two accumulators in groups of their own: the older may be used while the newer is under way."""
    a, b = (np.random.default_rng(i).integers(-3, 4, (64, 16)).astype("f2") for i in (0, 1))
    images = [in_shared_memory(np.concatenate([x, x], 1), 0, 32)[0] for x in (a, b)]
    body = """
      unsigned char* s = tl::shared_memory();
      for (int i = threadIdx.x; i < 4096; i += 128) {
        s[i] = A[i];
        s[4096 + i] = B[i];
      }
      tl::fence_proxy_async();
      tl::sync_threads();
      uint64_t a = tl::wgmma_descriptor<32>(s, 16, 256), b = tl::wgmma_descriptor<32>(s + 4096, 16, 256);
      float d[32], e[32];
      tl::wgmma_fence();
      tl::wgmma_m64k16_f32_f16<64>(d, a, b, false);
      tl::wgmma_commit();
      tl::wgmma_m64k16_f32_f16<64>(e, a, b, false);
      tl::wgmma_commit();
      tl::wgmma_wait<1>();
      for (int i = 0; i < 32; ++i) O[threadIdx.x * 32 + i] = d[i];
      tl::wgmma_wait<0>();
      for (int i = 0; i < 32; ++i) O[threadIdx.x * 32 + i] += 1000 * e[i];"""
    out = np.zeros((128, 32), "f4")
    parameters = "const unsigned char* A, const unsigned char* B, float* O"
    run_body(parameters, body, [*images, out], 128, shared=8192, mode=mode).check()
    rows, columns = rows_and_columns(32)
    np.testing.assert_array_equal(out, 1001 * (a.astype("f4") @ b.astype("f4").T)[rows, columns])


@pytest.mark.parametrize("mode", ["early", "late"])
@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("s[5] = 0;", "write-under-asynchronous-read"),
        ("O[threadIdx.x] = d[3];", "register-in-flight"),
        ("d[3] = 1.0f;", "register-in-flight"),
        ("a[2] = 1;", "register-in-flight"),
        ("tl::wgmma_m64k16_f32_f16<32>(d, desc, desc, false);", "register-in-flight"),
        ("O[threadIdx.x] = s[5];", None),
        ("if (threadIdx.x < 96) tl::wgmma_wait<0>(); else tl::wgmma_commit();", "divergence"),
    ],
)
def test_what_may_not_happen_between_issue_and_wait(run_body, only_emulated, statement, kind, mode):
    x, y = np.ones(8192, "u1"), np.zeros(128, "f4")
    body = f"""
      unsigned char* s = tl::shared_memory();
      for (int i = threadIdx.x; i < 8192; i += 128) s[i] = X[i];
      tl::fence_proxy_async();
      tl::sync_threads();
      uint64_t desc = tl::wgmma_descriptor<32>(s, 16, 256);
      float d[32];
      uint32_t a[4] = {{1, 2, 3, 4}};
      tl::wgmma_fence();
      tl::wgmma_m64k16_f32_f16<64>(d, desc, desc, false);
      tl::wgmma_m64k16_f32_f16_rs<64>(d, a, desc, true);
      tl::wgmma_commit();
      {statement}
      tl::wgmma_wait<0>();"""
    more = {"shared": 8192, "mode": mode}
    report = run_body("const unsigned char* X, volatile float* O", body, [x, y], 128, **more)
    assert [f.kind for f in report.errors][:1] == ([kind] if kind else []), report


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (("tl::fence_proxy_async();", ""), "missing-proxy-fence"),
        (("tl::sync_threads();", ""), "race-read-after-write"),
        (("tl::wgmma_fence();", ""), "missing-wgmma-fence"),
        (("tl::wgmma_fence();", "tl::wgmma_fence(); a[1] = 7;"), "missing-wgmma-fence"),
        (("tl::wgmma_fence(); // again", "a[1] = 7;"), "missing-wgmma-fence"),
        (("(s, 16, 256)", "(s + 8192 - 1024, 16, 256)"), "out-of-bounds"),
        (("desc, true);", "desc | 1ull << 49, true);"), "bad-wgmma"),
        (("desc, true);", "desc + threadIdx.x / 64, true);"), "bad-wgmma"),
        (("if (threadIdx.x < 128)", "if (threadIdx.x >= 128)"), "bad-wgmma"),
    ],
)
def test_misuse_of_wgmma(run_body, only_emulated, change, kind):
    x, y = np.ones(8192, "u1"), np.zeros(128, "f4")
    body = """
      unsigned char* s = tl::shared_memory();
      for (int i = threadIdx.x; i < 8192; i += blockDim.x) s[i] = X[i];
      tl::fence_proxy_async();
      tl::sync_threads();
      uint64_t desc = tl::wgmma_descriptor<32>(s, 16, 256);
      float d[32];
      uint32_t a[4] = {1, 2, 3, 4};
      if (threadIdx.x < 128) {
        for (int i = 0; i < 2; ++i) {
          tl::wgmma_fence();
          if (i) { tl::wgmma_fence(); // again
          }
          tl::wgmma_m64k16_f32_f16<64>(d, desc, desc, false);
          tl::wgmma_m64k16_f32_f16_rs<64>(d, a, desc, true);
          tl::wgmma_commit();
          tl::wgmma_wait<0>();
        }
        O[threadIdx.x] = d[0];
      }"""
    old, new = change
    assert old in body
    body = body.replace(old, new)
    if "again" in old:
        body = body.replace("          tl::wgmma_fence();\n", "          if (i == 0) tl::wgmma_fence();\n", 1)
    report = run_body("const unsigned char* X, volatile float* O", body, [x, y], 160, shared=8192)
    assert [f.kind for f in report.errors][:1] == ([kind] if kind else []), report
