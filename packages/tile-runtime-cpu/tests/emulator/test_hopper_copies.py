"""Bulk copies and mbarriers, each function alone with distinct values, against numpy.

What a box is, and where a swizzle puts its bytes, is written out here element by element, as the manual has it.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from tile_runtime.errors import TensorMapError
from tile_runtime.tensor_map import TensorMap

SHARED = 32768


@pytest.fixture(params=["early", "late"])
def both_modes(request):
    """Copies that end early and late."""
    return request.param


def swizzled(offset, span):
    """Where the byte at `offset` of a box lies: chunks of 16 bytes are exchanged within rows of `span` bytes, by the row."""
    if span == 0:
        return offset
    row, chunk, byte = offset // span, offset % span // 16, offset % 16
    period = 128 // span  # rows of less than 128 bytes change places every few rows
    return row * span + (chunk ^ row // period % (span // 16)) * 16 + byte


def box_of(array, start, box, steps, fill):
    """The box as numpy sees it, slowest dimension first; indices `start`, `box`, `steps` are fastest first."""
    out = np.full([-(-b // s) for b, s in zip(box[::-1], (*steps[:0:-1], 1))], fill, array.dtype)
    for index in np.ndindex(out.shape):
        steps_here = (*steps[:0:-1], 1)
        at = [s + i * step for s, i, step in zip(start[::-1], index, steps_here)]
        if all(0 <= a < n for a, n in zip(at, array.shape)):
            out[index] = array[tuple(at)]
    return out


def in_shared_memory(box, span):
    """The bytes of a box in shared memory."""
    flat = np.ascontiguousarray(box).view("u1").reshape(-1)
    image = np.zeros_like(flat)
    for offset in range(0, flat.size, 16):
        place = swizzled(offset, span)
        image[place : place + 16] = flat[offset : offset + 16]
    return image


LOAD = """
  unsigned char* s = tl::shared_memory();
  uint64_t* bar = (uint64_t*)(s + 16384);
  if (threadIdx.x == 0) {{
    tl::mbarrier_init(bar, 1);
    tl::fence_mbarrier_init();
  }}
  tl::sync_threads();
  if (threadIdx.x == 0) {{
    tl::mbarrier_arrive_expect_tx(bar, bytes);
    {load}
  }}
  tl::mbarrier_wait(bar, 0);
  for (int i = threadIdx.x; i < bytes; i += 32) O[i] = s[i];"""


def distinct(shape, dtype):
    count = int(np.prod(shape))
    if np.dtype(dtype).itemsize == 1:
        return (np.arange(count) * 7 % 251).astype("u1").view(dtype).reshape(shape)
    values = np.arange(count) + 1
    return values.astype(dtype).reshape(shape) if count < 2048 else values.astype("i4").view(dtype).reshape(shape)


@pytest.mark.parametrize(
    ("shape", "start", "box", "steps", "swizzle", "dtype", "fill"),
    [
        ((40,), (8,), (16,), (1,), 0, "float32", "zero"),
        ((40,), (32,), (16,), (1,), 0, "float32", "nan"),
        ((40,), (-8,), (16,), (1,), 0, "float16", "nan"),
        ((20, 64), (0, 3), (64, 8), (1, 1), 128, "float16", "zero"),
        ((20, 64), (32, 15), (32, 16), (1, 1), 64, "float16", "zero"),
        ((20, 64), (-8, -2), (16, 16), (1, 1), 32, "float16", "nan"),
        ((20, 64), (40, 1), (32, 10), (1, 1), 128, "float32", "zero"),
        ((9, 32), (0, 0), (16, 9), (1, 1), 128, "float64", "zero"),
        ((50, 256), (128, 2), (128, 40), (1, 1), 128, "uint8", "zero"),
        ((50, 256), (-16, -1), (64, 40), (1, 1), 64, "uint8", "zero"),
        ((5, 7, 16), (0, 5, 1), (16, 4, 3), (1, 1, 1), 32, "float16", "zero"),
        ((5, 7, 16), (8, -1, 3), (16, 5, 4), (1, 1, 1), 0, "bfloat16", "nan"),
        ((3, 4, 5, 16), (0, 1, 2, 1), (16, 3, 2, 2), (1, 1, 1, 1), 64, "int32", "zero"),
        ((3, 2, 4, 5, 16), (8, 1, 1, 0, 2), (8, 4, 2, 2, 2), (1, 1, 1, 1, 1), 0, "float32", "nan"),
        ((30, 24, 16), (0, 2, 1), (16, 9, 8), (1, 2, 3), 0, "float32", "zero"),
    ],
)
def test_a_box_of_a_tensor(run_body, tensor_map, both_modes, shape, start, box, steps, swizzle, dtype, fill):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    x = distinct(shape, kind)
    tensor = tensor_map(x, box, element_strides=steps, swizzle=swizzle, fill=fill)
    expected = box_of(x, start, box, steps, np.nan if fill == "nan" else 0)
    y = np.zeros(expected.size, kind)
    assert tensor.box_bytes == expected.nbytes
    load = f"tl::tma_load(s, &X, bar, {', '.join(map(str, start))});"
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True, False)]
    args = [tensor, y, y.nbytes]
    parameters = "const __grid_constant__ tl::tensor_map X, unsigned char* O, int bytes"
    run_body(parameters, LOAD.format(load=load), args, shared=SHARED, buffers=buffers, mode=both_modes).check()
    y, image = y.view("u1"), in_shared_memory(expected, swizzle)
    if fill == "nan":  # which NaN is the hardware's affair
        y, image = (np.nan_to_num(unswizzled(a, swizzle).view(kind).astype("f8"), nan=-1.0) for a in (y, image))
    np.testing.assert_array_equal(y, image)


def unswizzled(image, span):
    out = np.zeros_like(image)
    for offset in range(0, image.size, 16):
        place = swizzled(offset, span)
        out[offset : offset + 16] = image[place : place + 16]
    return out


STORE = """
  unsigned char* s = tl::shared_memory();
  for (int i = threadIdx.x; i < bytes; i += 32) s[i] = X[i];
  tl::fence_proxy_async_shared();
  tl::sync_threads();
  if (threadIdx.x == 0) {{
    {store}
    tl::bulk_commit();
    tl::bulk_wait<0>();
  }}"""


@pytest.mark.parametrize(
    ("shape", "start", "box", "swizzle", "dtype"),
    [
        ((40,), (32,), (16,), 0, "float32"),
        ((20, 64), (40, 15), (32, 16), 64, "float16"),
        ((20, 64), (0, 16), (64, 8), 128, "bfloat16"),
        ((5, 7, 16), (12, 4, 3), (8, 5, 4), 0, "int32"),
        ((3, 4, 5, 16), (0, 1, 2, 1), (16, 3, 2, 2), 32, "uint16"),
        ((3, 2, 4, 5, 16), (8, 1, 1, 0, 2), (8, 4, 2, 2, 2), 0, "float32"),
    ],
)
def test_a_box_into_a_tensor(run_body, tensor_map, both_modes, shape, start, box, swizzle, dtype):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    tile = distinct(box[::-1], kind)
    y = np.zeros(shape, kind)
    x = in_shared_memory(tile, swizzle)
    expected = y.copy()
    for index in np.ndindex(tile.shape):
        at = tuple(s + i for s, i in zip(start[::-1], index))
        if all(0 <= a < n for a, n in zip(at, shape)):
            expected[at] = tile[index]
    store = f"tl::tma_store(&O, s, {', '.join(map(str, start))});"
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True)]
    parameters = "const __grid_constant__ tl::tensor_map O, const unsigned char* X, int bytes"
    args = [tensor_map(y, box, swizzle=swizzle), x, x.nbytes]
    run_body(parameters, STORE.format(store=store), args, shared=SHARED, buffers=buffers, mode=both_modes).check()
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("start", "statement", "said"),
    [
        ((30, 0), "load", "begins at element 30 of 4 bytes: 120 bytes into its row, no multiple of 16"),
        ((-6, 0), "load", "begins at element -6 of 4 bytes: -24 bytes into its row, no multiple of 16"),
        ((30, 0), "store", "begins at element 30 of 4 bytes: 120 bytes into its row, no multiple of 16"),
        ((-8, 0), "store", "writes a box which begins before the tensor: coordinate 0 is -8"),
        ((0, -3), "store", "writes a box which begins before the tensor: coordinate 1 is -3"),
        ((0, -3), "reduce", "writes a box which begins before the tensor: coordinate 1 is -3"),
    ],
)
def test_coordinates_that_the_hardware_refuses(run_body, tensor_map, only_recorded, start, statement, said):
    """On a chip each of these launches is an illegal instruction: they are packed for one as such."""
    x = np.arange(1024, dtype="f4").reshape(16, 64)
    y = np.zeros(512, "u1")
    at = ", ".join(map(str, start))
    load, store = (
        f"tl::tma_load(s, &X, bar, {at});",
        f"tl::tma_store(&X, s, {at}); tl::bulk_commit(); tl::bulk_wait<0>();",
    )
    texts = {
        "load": LOAD.format(load=load),
        "store": STORE.replace("X[i]", "O[i]").format(store=store),
        "reduce": STORE.replace("X[i]", "O[i]").format(store=store.replace("tma_store", "tma_reduce<tl::reduce_add>")),
    }
    parameters = "const __grid_constant__ tl::tensor_map X, unsigned char* O, int bytes"
    args = [tensor_map(x, (16, 8)), y, y.nbytes]
    buffers = [(x.ctypes.data, x.nbytes, "X", True), (y.ctypes.data, y.nbytes, "O", True)]
    report = run_body(parameters, texts[statement], args, shared=SHARED, buffers=buffers)
    assert [f.kind for f in report.errors] == ["bad-coordinates"]
    assert said in report.errors[0].message


INTEGERS = ["uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "bfloat16", "float32"]
REDUCTIONS = [
    *itertools.product(["add", "min", "max"], ["uint32", "int32", "float16", "bfloat16"]),
    *itertools.product(["add"], ["float32", "uint64"]),
    *itertools.product(["and", "or", "xor"], ["uint32", "int32"]),
]
C_TYPES = {
    "float16": "tl::half_t",
    "bfloat16": "tl::bfloat16_t",
    "float32": "float",
    "uint32": "uint32_t",
    "int32": "int32_t",
    "uint64": "uint64_t",
}


def reduced(operation, a, b):
    if operation in ("and", "or", "xor"):
        return getattr(np, f"bitwise_{operation}")(a, b)
    return {"add": np.add, "min": np.minimum, "max": np.maximum}[operation](a, b)


@pytest.mark.parametrize(("operation", "dtype"), REDUCTIONS)
def test_reductions(run_body, tensor_map, both_modes, operation, dtype):
    """Through a tensor map and without: two blocks combine with what is there."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    rng = np.random.default_rng(0)
    tile, first = (rng.integers(0 if dtype[0] == "u" else -50, 50, (8, 16)).astype(kind) for _ in range(2))
    expected = reduced(operation, reduced(operation, first, tile), tile)
    for store in (
        f"tl::tma_reduce<tl::reduce_{operation}>(&O, s, 0, 0);",
        f"tl::bulk_reduce<tl::reduce_{operation}>(P, (const {C_TYPES[dtype]}*)s, bytes);",
    ):
        y = first.copy()
        buffers = [(tile.ctypes.data, tile.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True)]
        parameters = f"const __grid_constant__ tl::tensor_map O, {C_TYPES[dtype]}* P, const unsigned char* X, int bytes"
        args = [tensor_map(y, (16, 8)), y, tile, tile.nbytes]
        body = STORE.format(store=store)
        run_body(parameters, body, args, shared=SHARED, grid=(2,), buffers=buffers, mode=both_modes).check()
        np.testing.assert_array_equal(y, expected)


def test_bulk_copies_without_a_tensor_map(run_body, both_modes):
    x = np.random.default_rng(0).integers(0, 255, 4096, "u1")
    y = np.zeros(4096, "u1")
    load = """tl::bulk_prefetch(X + 1024, 2048);
      tl::bulk_load(s, X + 1024, 2048, bar);"""
    body = (
        LOAD.format(load=load).replace("bytes", "2048")
        + """
  tl::sync_warp();
  if (threadIdx.x == 0) {
    tl::bulk_store(O + 2048, s + 16, 1024);
    tl::bulk_commit();
    tl::bulk_store(O + 3072, s + 1040, 512);
    tl::bulk_commit();
    tl::bulk_wait_read<1>();
    tl::bulk_wait_read<0>();
    tl::bulk_wait<0>();
  }"""
    )
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True)]
    parameters = "const unsigned char* X, unsigned char* O"
    run_body(parameters, body, [x, y], shared=SHARED, buffers=buffers, mode=both_modes).check()
    np.testing.assert_array_equal(y, np.concatenate([x[1024:3072], x[1040:2064], x[2064:2576], np.zeros(512, "u1")]))


def test_phases_and_counts_of_an_mbarrier(run_body, both_modes):
    """Three phases of 32 + 2 arrivals each; tests see them end one after the other."""
    y = np.full(8, -1, "i4")
    body = """
      uint64_t* bar = (uint64_t*)tl::shared_memory();
      if (threadIdx.x == 0) tl::mbarrier_init(bar, 34);
      tl::sync_threads();
      for (int phase = 0; phase < 3; ++phase) {
        if (threadIdx.x == 0) {
          O[2 * phase] = tl::mbarrier_test_wait(bar, phase & 1);
          tl::mbarrier_arrive(bar, 2);
        }
        tl::mbarrier_arrive(bar);
        if (phase == 2) {
          tl::mbarrier_wait(bar, phase & 1);
        } else {
          while (!tl::mbarrier_try_wait(bar, phase & 1)) {
          }
        }
        if (threadIdx.x == 0) O[2 * phase + 1] = tl::mbarrier_test_wait(bar, phase & 1);
      }
      tl::sync_threads();
      if (threadIdx.x == 0) {
        O[6] = tl::mbarrier_test_wait(bar, 1);
        tl::mbarrier_inval(bar);
        *(int*)bar = 77;  // ordinary memory again
        O[7] = *(int*)bar;
      }"""
    buffers = [(y.ctypes.data, y.nbytes, "O", True, False)]
    run_body("int* O", body, [y], buffers=buffers, mode=both_modes).check()
    np.testing.assert_array_equal(y, [0, 1, 0, 1, 0, 1, 0, 77])


@pytest.mark.parametrize("waits", ["", "tl::mbarrier_wait(bar, 0);", "if (i == 3) tl::mbarrier_wait(bar, 1);"])
def test_phases_that_nobody_sees_end(run_body, both_modes, only_emulated, waits):
    """Harmless where nobody ever waits. Who waits, before or after, cannot tell the phases apart."""
    body = f"""
      uint64_t* bar = (uint64_t*)tl::shared_memory();
      tl::mbarrier_init(bar, 1);
      for (int i = 0; i < 4; ++i) {{
        tl::mbarrier_arrive(bar);
        {waits if "i ==" in waits else f"if (i == 0) {{ {waits} }}"}
      }}"""
    errors = run_body("", body, [], 1, mode=both_modes).errors
    assert [f.kind for f in errors] == ["mbarrier-over-arrival"] * bool(waits)
    assert not waits or ("and ends a phase" in str(errors[0])) == ("i ==" not in waits)
    assert not waits or ("two phases have ended" in str(errors[0])) == ("i ==" in waits)


def test_bytes_expected_after_they_came_and_in_parts(run_body, both_modes):
    x, y = np.arange(64, dtype="i4"), np.zeros(64, "i4")
    body = """
      unsigned char* s = tl::shared_memory();
      uint64_t* bar = (uint64_t*)(s + 1024);
      if (threadIdx.x == 0) {
        tl::mbarrier_init(bar, 1);
        tl::fence_mbarrier_init();
        tl::bulk_load(s, X, 128, bar);
        tl::bulk_load(s + 128, X + 32, 128, bar);
        tl::mbarrier_expect_tx(bar, 128);
        tl::mbarrier_expect_tx(bar, 128);
        tl::mbarrier_arrive(bar);
      }
      tl::sync_threads();
      tl::mbarrier_wait(bar, 0);
      for (int i = threadIdx.x; i < 64; i += 32) O[i] = ((int*)s)[i];"""
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True, False)]
    run_body("const int* X, int* O", body, [x, y], buffers=buffers, mode=both_modes).check()
    np.testing.assert_array_equal(y, x)


def test_cp_async_that_arrives_at_an_mbarrier(run_body, both_modes):
    x, y = np.arange(256, dtype="i4"), np.zeros(256, "i4")
    body = """
      int* s = (int*)tl::shared_memory();
      uint64_t* bar = (uint64_t*)(s + 256);
      if (threadIdx.x == 0) tl::mbarrier_init(bar, 32);
      tl::sync_threads();
      if (threadIdx.x < 32) {
        for (int i = threadIdx.x * 4; i < 256; i += 128) tl::cp_async<16>(s + i, X + i);
        tl::cp_async_mbarrier_arrive(bar);
      } else {
        tl::mbarrier_wait(bar, 0);
        for (int i = threadIdx.x - 32; i < 256; i += 32) O[i] = s[255 - i];
      }"""
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True, False)]
    run_body("const int* X, int* O", body, [x, y], 64, buffers=buffers, mode=both_modes).check()
    np.testing.assert_array_equal(y, x[::-1])


def test_named_barriers_that_some_only_arrive_at(run_body, both_modes):
    y = np.zeros(64, "i4")
    body = """
      int* s = (int*)tl::shared_memory();
      if (threadIdx.x < 64) {
        s[threadIdx.x] = threadIdx.x * 3;
        tl::arrive_threads<1, 128>();
        tl::sync_barrier(2, 128);
        O[threadIdx.x] += s[64 + threadIdx.x];
      } else {
        tl::sync_threads<1, 128>();
        O[threadIdx.x - 64] = s[127 - threadIdx.x];
        s[threadIdx.x] = 1000;
        tl::arrive_barrier(2, 128);
      }"""
    run_body("int* O", body, [y], 128, buffers=[(y.ctypes.data, y.nbytes, "O", True, False)], mode=both_modes).check()
    np.testing.assert_array_equal(y, np.arange(64)[::-1] * 3 + 1000)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("tl::bulk_load(s + 8, X, 64, bar);", "misaligned"),
        ("tl::bulk_load(s, X + 8, 64, bar);", "misaligned"),
        ("tl::bulk_load(s, X, 72, bar);", "misaligned"),
        ("tl::bulk_load(s, X + 4000, 128, bar);", "out-of-bounds"),
        ("tl::bulk_load(s + 4064, X, 64, bar);", "out-of-bounds"),
        ("tl::bulk_store(const_cast<unsigned char*>(X), s, 64);", "read-only"),
        ("tl::bulk_load(s, X, 64, bar + 1);", "mbarrier-not-initialized"),
        ("((int*)bar)[0] = 1;", "mbarrier-as-data"),
        ("O[0] = ((unsigned char*)bar)[3];", "mbarrier-as-data"),
        ("tl::mbarrier_init(bar, 1);", "mbarrier-not-initialized"),
        ("tl::mbarrier_expect_tx(bar, 1 << 20);", "mbarrier-transaction-count"),
        ("tl::mbarrier_arrive(bar, 2);", "mbarrier-over-arrival"),
        ("tl::mbarrier_wait(bar, 0);", "deadlock"),
        ("tl::cluster_wait();", "barrier-count"),
        ("tl::cluster_store(s, 1, (unsigned char)1);", "bad-wgmma"),
        ("tl::bulk_load(s, X, 64, bar); O[0] = s[5];", "read-in-flight"),
        ("tl::bulk_load(s, X, 64, bar); s[5] = 0;", "write-in-flight"),
        ("tl::bulk_store(O, s, 64);", "exit-in-flight"),
        ("tl::bulk_store(O, s, 64); tl::bulk_commit(); s[9] = 1; tl::bulk_wait<0>();", "write-under-asynchronous-read"),
    ],
)
def test_misuse_is_reported(run_body, both_modes, only_emulated, body, kind):
    x, y = np.zeros(4096, "u1"), np.zeros(4096, "u1")
    text = f"""
      unsigned char* s = tl::shared_memory();
      uint64_t* bar = (uint64_t*)(s + 2048);
      if (threadIdx.x == 0) {{
        for (int i = 0; i < 64; ++i) s[i] = 3;
        tl::fence_proxy_async();
        tl::mbarrier_init(bar, 1);
        tl::fence_mbarrier_init();
        {body}
      }}"""
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True)]
    parameters = "const unsigned char* X, unsigned char* O"
    report = run_body(parameters, text, [x, y], buffers=buffers, mode=both_modes)
    assert [f.kind for f in report.errors][:1] == [kind], report


def test_a_map_that_does_not_fit_its_use(run_body, tensor_map, only_emulated):
    x = np.zeros((16, 64), "f2")
    parameters = "const __grid_constant__ tl::tensor_map X, unsigned char* O, int bytes"
    y = np.zeros(2048, "u1")
    for box, load, kind in (
        ((64, 16), "tl::tma_load(s, &X, bar, 0);", "bad-tensor-map"),
        ((64, 16), "tl::tma_load(s + 64, &X, bar, 0, 0);", "misaligned"),
        ((64, 16), "tl::tma_load(s, (tl::tensor_map*)(s + 8192), bar, 0, 0);", "bad-tensor-map"),
    ):
        args = [tensor_map(x, box), y, 2048]
        buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True, False)]
        report = run_body(parameters, LOAD.format(load=load), args, shared=SHARED, buffers=buffers)
        assert report.errors[0].kind == kind, report


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"address": 24}, "address 0x18; expected a multiple of 16 bytes"),
        ({"strides": (100,)}, "strides of (100,) bytes; expected multiples of 16 bytes"),
        ({"box": (128, 8)}, "rows of 256 bytes; expected at most the swizzle of 128"),
        ({"box": (512, 8), "swizzle": 0}, "box (512, 8); expected extents of 1 to 256"),
        ({"box": (4, 8)}, "rows of 8 bytes; expected a multiple of 16"),
        ({"element_strides": (1, 9)}, "element strides (1, 9); expected 1 to 8"),
        ({"dtype": "int4"}, "elements of type int4; expected one of uint8"),
        ({"dtype": "uint16", "fill": "nan"}, "fill 'nan' of uint16; expected a float type"),
        ({"swizzle": 16}, "swizzle 16; expected 0, 32, 64 or 128"),
        ({"shape": (64, 0)}, "expected extents of 1 to 2^32"),
        ({"strides": ()}, "extents of ranks [1, 2]"),
    ],
)
def test_maps_that_the_hardware_does_not_have(change, said, only_emulated):
    fields = {"address": 4096, "dtype": "float16", "shape": (64, 32), "strides": (128,), "box": (64, 8), "swizzle": 128}
    with pytest.raises(TensorMapError) as caught:
        TensorMap(**{**fields, **change}).check("A")
    assert str(caught.value).startswith("TLR025: the tensor map of A: ")
    assert said in str(caught.value)
