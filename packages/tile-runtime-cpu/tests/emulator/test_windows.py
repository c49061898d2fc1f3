"""Bounds of each buffer in shared memory, by the pointer that an access was computed from: every function that takes one."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from tile_runtime_cpu.emulator.program import Program

SHARED = 64 << 10


def program(source, symbol, *tiles):
    """What a compiler would tell of a text: (name, offset, bytes) for each line that asks for shared memory, in order."""
    lines = [n for n, line in enumerate(source.splitlines(), 1) if "tl::shared_memory()" in line]
    assert len(lines) == len(tiles), source
    shared = [
        {
            "name": name,
            "dtype": "uint8",
            "shape": [size],
            "variables": ["i"],
            "offset": offset,
            "element": "i",
            "line": line,
            "bytes": size,
        }
        for line, (name, offset, size) in zip(lines, tiles)
    ]
    tables = {"files": [], "lines": [], "kernels": {symbol: {"rank": 1, "shared": shared, "arrays": []}}}
    return Program(json.dumps(tables).encode())


@pytest.mark.parametrize("mode", ["early", "late"])
def test_the_functions_of_hopper_through_a_window(kernel_file, tensor_map, watched, only_emulated, mode):
    """TMA, mbarriers, wgmma and stores by TMA find their memory through another address of it."""
    m, n, k = 200, 328, 136
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, k)).astype("f2") for rows in (m, n))
    c = np.full((m, n), np.nan, "f2")
    maps = [tensor_map(x, (64, rows), swizzle=128) for x, rows in ((a, 128), (b, 128), (c, 64))]
    module, shared = kernel_file("hopper_persistent.cu"), 3 * 32768 + 2 * 8192 + 64
    tables = program(module.source, "gemm", ("everything", 0, shared))
    buffers = watched(A=a, B=b, O=c)
    module.launch("gemm", (2,), (384,), shared, [*maps, m, n, k], mode=mode, buffers=buffers, program=tables).check()
    np.testing.assert_allclose(c.astype("f8"), a.astype("f8") @ b.astype("f8").T, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("mode", ["early", "late"])
def test_clusters_through_a_window(kernel_file, tensor_map, watched, only_emulated, mode):
    m, n, k = 120, 136, 64
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    c = np.full((m, n), np.nan, "f4")
    args = [tensor_map(a, (64, 64), swizzle=128), tensor_map(b, (64, 64), swizzle=128), c, m, n, k]
    module, shared = kernel_file("hopper_cluster.cu"), 2 * 24576 + 64
    more = {"mode": mode, "buffers": watched(A=a, B=b, O=c), "cluster": (1, 2)}
    tables = program(module.source, "gemm", ("everything", 0, shared))
    module.launch("gemm", (2, 2), (256,), shared, args, program=tables, **more).check()
    np.testing.assert_allclose(c, a.astype("f8") @ b.astype("f8").T, rtol=0, atol=1e-4)


BODY = """
  unsigned char* s = tl::shared_memory();
  unsigned char* t = tl::shared_memory() + 4096;
  int lane = threadIdx.x % 32, r[4] = {0, 0, 0, 0};
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) s[i] = t[i] = 0;
  tl::fence_proxy_async();
  tl::sync_threads();
  if (threadIdx.x < 32) {
    STATEMENT
  }
"""
LEAVE = [
    ("s[4096 + lane] = 1;", "first", "4096 of first, which has 4096 bytes: where second"),
    ("O[lane] = s[4097 + lane];", "first", "4097 of first, which has 4096 bytes: where second"),
    ("t[-4 + lane] = 1;", "second", "4 bytes before second, which has 4096 bytes: where first"),
    ("tl::ldmatrix_x4(r, s + 3632 + lane * 16);", "first", "4096 of first"),
    ("tl::stmatrix_x4(t - 16 + lane * 16, r);", "second", "16 bytes before second"),
    ("tl::cp_async<16>(s + 3600 + lane * 16, X + lane * 16); tl::cp_async_commit();", "first", "4096 of first"),
    ("tl::atomic_add((int*)(s + 4096), 1);", "first", "4096 of first"),
    ("tl::bulk_load(s + 4080, X, 32, (uint64_t*)(t + 2048));", "first", "4080 of first"),
    ("tl::bulk_store(O, s + 4080, 32);", "first", "4080 of first"),
    ("tl::tma_load(s + 3968, &A, (uint64_t*)(t + 2048), 0, 0);", "first", "3968 of first"),
    ("tl::tma_store(&A, s + 3968, 0, 0);", "first", "3968 of first"),
    (
        "tl::tma_load(s, &A, (uint64_t*)(t + 4096), 0, 0);",
        "second",
        "4096 of second, which has 4096 bytes: where no other",
    ),
    ("tl::mbarrier_init((uint64_t*)(s + 4096), 1);", "first", "4096 of first"),
    ("tl::mbarrier_arrive((uint64_t*)(t - 8));", "second", "8 bytes before second"),
    ("tl::mbarrier_wait((uint64_t*)(t - 8), 0);", "second", "8 bytes before second"),
    ("tl::cp_async_mbarrier_arrive((uint64_t*)(t - 8));", "second", "8 bytes before second"),
]


def launch(run_body, tensor_map, statement, threads=32):
    x, y, a = np.zeros(4096, "u1"), np.zeros(4096, "u1"), np.zeros((16, 16), "f4")
    parameters = "const unsigned char* X, unsigned char* O, const __grid_constant__ tl::tensor_map A"
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True)]
    buffers.append((a.ctypes.data, a.nbytes, "A", True))
    body = BODY.replace("STATEMENT", statement)
    # run_body puts two lines above the body, which begins with an empty one.
    tables = program("\n\n" + body, "k", ("first", 0, 4096), ("second", 4096, 4096))
    args = [x, y, tensor_map(a, (16, 4))]
    return run_body(parameters, body, args, threads, SHARED, buffers=buffers, program=tables)


@pytest.mark.parametrize(("statement", "buffer", "said"), LEAVE)
def test_leaving_a_buffer(run_body, tensor_map, only_emulated, statement, buffer, said):
    (finding,) = launch(run_body, tensor_map, statement).errors
    assert finding.kind == "out-of-bounds"
    assert finding.buffer == buffer
    assert said in finding.message


@pytest.mark.parametrize(("start", "left"), [(0, False), (2048, True)])
def test_an_operand_of_wgmma(run_body, tensor_map, only_emulated, start, left):
    """Rows of 32 bytes, 64 of them: they end where the buffer does, or beyond it."""
    statement = f"""}}
      float d[4] = {{0, 0, 0, 0}};
      uint64_t a = tl::wgmma_descriptor<32>(s + {2048 + start}, 16, 256), b = tl::wgmma_descriptor<32>(t, 16, 256);
      tl::wgmma_fence();
      tl::wgmma_m64k16_f32_f16<8>(d, a, b, false);
      tl::wgmma_commit();
      tl::wgmma_wait<0>();
      if (threadIdx.x == 0) {{ O[0] = d[0] != 0;"""
    errors = launch(run_body, tensor_map, statement, 128).errors
    assert [(f.kind, f.buffer) for f in errors] == ([("out-of-bounds", "first")] if left else [])


def test_a_load_straight_to_lds(run_wave, only_emulated):
    body = """
  int* s = (int*)tl::shared_memory();
  int* t = (int*)(tl::shared_memory() + 512);
  tl::load_to_lds<4>(s + 96, X + threadIdx.x);
  tl::wait_loads<0>();
  t[threadIdx.x] = s[96];"""
    x = np.zeros(64, "i4")
    tables = program("\n\n" + body, "k", ("first", 0, 512), ("second", 512, 512))
    (finding,) = run_wave("const int* X", body, [x], program=tables).errors
    assert (finding.kind, finding.buffer) == ("out-of-bounds", "first")
    assert "636 of first, which has 512 bytes: where second[124:128] is" in finding.message


def test_blocks_in_other_processes_have_their_own_shared_memory(run_body, only_emulated):
    body = """
  int* s = (int*)tl::shared_memory();
  for (int turn = 0; turn < 200; ++turn) {
    s[threadIdx.x] = blockIdx.x * 1000 + turn;
    tl::sync_threads();
    O[blockIdx.x * 32 + threadIdx.x] = s[31 - threadIdx.x];
    tl::sync_threads();
  }"""
    y = np.zeros((16, 32), "i4")
    tables = program("\n\n" + body, "k", ("first", 0, 128))
    report = run_body("int* O", body, [y], grid=(16,), program=tables, processes=3).check()
    assert report.processes == 3
    np.testing.assert_array_equal(y, np.arange(16)[:, None] * 1000 + 199 + np.zeros((16, 32)))
