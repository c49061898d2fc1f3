"""Each kind of finding alone, and that none of them takes the process down."""

from __future__ import annotations

import numpy as np
import pytest

from tile_runtime.errors import ArgumentCountError, ArgumentTypeError, ScalarRangeError
from tile_runtime_cpu import emulator

SHARED = "float* s = (float*)tl::shared_memory(); int t = threadIdx.x;\n"


def only(report, kind):
    assert [f.kind for f in report.errors] == [kind], str(report)
    return report.errors[0]


def test_a_message_names_line_buffer_threads_and_repair(run_body, watched):
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")
    body = SHARED + "s[t] = X[t];\n// O[i] = s[63 - i]\nO[t] = s[63 - t];"
    report = run_body("const float* X, float* O", body, [x, y], 64, 256, buffers=watched(X=x, O=y))
    finding = report.errors[-1]
    assert finding.kind == "race-read-after-write"
    assert finding.text == "O[t] = s[63 - t];"
    assert finding.origin == "O[i] = s[63 - i]"
    assert finding.line == finding.other_line + 2
    assert finding.threads[0] + finding.threads[1] == 63
    assert "add tl::sync_threads()" in str(report)
    with pytest.raises(emulator.EmulationError, match="race-read-after-write"):
        report.check()


def test_out_of_bounds_stops_before_the_store(run_body, watched):
    memory = np.zeros(64, "f4")
    y = memory[:32]
    finding = only(run_body("float* O", "O[threadIdx.x + 1] = 1.0f;", [y], buffers=watched(O=y)), "out-of-bounds")
    assert (finding.buffer, finding.offset, finding.size) == ("O", 128, 4)
    assert "which ends at 128" in finding.message
    assert memory[32] == 0


def test_read_before_a_buffer(run_body, watched):
    x, y = np.ones(32, "f4"), np.zeros(32, "f4")
    report = run_body(
        "const float* X, float* O", "O[threadIdx.x] = X[(int)threadIdx.x - 1];", [x, y], buffers=watched(X=x, O=y)
    )
    finding = only(report, "out-of-bounds")
    assert (finding.buffer, finding.offset) == ("X", -4)
    assert "4 bytes before X" in finding.message


def test_neighbours_in_memory_do_not_hide_an_access_out_of_bounds(run_body, watched):
    memory = np.zeros(64, "f4")
    o1, o2 = memory[:32], memory[32:]
    report = run_body("float* O1", "O1[threadIdx.x + 1] = 1.0f;", [o1], buffers=watched(O1=o1, O2=o2))
    assert only(report, "out-of-bounds").buffer == "O1"
    assert memory[1:32].all() or not memory[32:].any()


def test_one_array_as_input_and_output(run_body):
    x = np.arange(32, dtype="f4")
    run_body("const float* X, float* Y", "Y[threadIdx.x] = X[threadIdx.x] + 1.0f;", [x, x]).check()
    np.testing.assert_array_equal(x, np.arange(32) + 1)
    report = run_body("const float* X, float* Y", "Y[threadIdx.x] = X[threadIdx.x ^ 1] + 1.0f;", [x, x])
    assert {f.kind for f in report.errors} <= {"race-read-after-write", "race-write-after-read"}
    assert report.errors


def test_null_pointer(run_body):
    finding = only(run_body("float* O", "O[threadIdx.x] = 1.0f;", [None], buffers=[]), "out-of-bounds")
    assert "belongs to no buffer" in finding.message


def test_out_of_bounds_of_shared_memory(run_body):
    finding = only(run_body("", SHARED + "s[t + 1] = 1.0f;", [], shared=128), "out-of-bounds")
    assert (finding.buffer, finding.offset) == ("shared memory", 128)


def test_store_to_an_input(run_body, watched):
    x = np.zeros(32, "f4")
    assert only(run_body("float* X", "X[threadIdx.x] = 1.0f;", [x], buffers=watched(X=x)), "read-only").buffer == "X"
    assert not x.any()


def test_uninitialized_reads(run_body, watched):
    y, z = np.zeros(32, "f4"), np.zeros(32, "f4")
    assert only(run_body("", SHARED + "s[t] += 1.0f;", []), "uninitialized-read").buffer == "shared memory"
    report = run_body("float* O, float* O2", "O[threadIdx.x] = O2[threadIdx.x];", [y, z], buffers=watched(O=y, O2=z))
    assert only(report, "uninitialized-read").buffer == "O2"


def test_uninitialized_part_of_a_vector(run_body):
    body = (
        SHARED
        + "if (t != 7) s[t] = 0.0f; tl::sync_warp(); if (t == 1) *(tl::vec<float, 4>*)s = *(tl::vec<float, 4>*)(s + 4);"
    )
    assert only(run_body("", body, []), "uninitialized-read").threads == (1,)


def test_misaligned_vector(run_body, watched):
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")
    body = "if (threadIdx.x == 0) *(tl::vec<float, 4>*)O = *(const tl::vec<float, 4>*)(X + 1);"
    finding = only(run_body("const float* X, float* O", body, [x, y], buffers=watched(X=x, O=y)), "misaligned")
    assert "not a multiple of 16" in finding.message


def test_misaligned_vector_from_registers(run_body, watched):
    if emulator.host_compiler().family == "clang":
        pytest.skip("clang splits such a vector into its elements: NOT found with it")
    y = np.zeros(64, "f4")
    body = "tl::vec<float, 2> v; v[0] = 1.0f; v[1] = threadIdx.x; *(tl::vec<float, 2>*)(O + 1 + 2 * threadIdx.x) = v;"
    assert only(run_body("float* O", body, [y], 8, buffers=watched(O=y)), "misaligned").size == 8


def test_misaligned_ldmatrix_row(run_body):
    finding = only(run_body("", SHARED + "uint32_t r[1]; tl::ldmatrix_x1(r, s + 1);", []), "misaligned")
    assert "ldmatrix" in finding.text


def test_write_after_write_of_different_values(run_body):
    finding = only(run_body("", SHARED + "s[0] = t;", []), "race-write-after-write")
    assert finding.threads == (1, 0)


def test_equal_values_may_be_written_by_several_threads(run_body, watched):
    y = np.zeros(4, "f4")
    body = SHARED + "s[t % 4] = t % 4; tl::sync_threads(); O[t % 4] = s[t % 4];"
    run_body("float* O", body, [y], 64, grid=(3,), buffers=watched(O=y)).check()
    np.testing.assert_array_equal(y, [0, 1, 2, 3])


def test_neighbouring_bytes_belong_to_different_threads(run_body):
    body = "uint8_t* s = tl::shared_memory(); int t = threadIdx.x; for (int i = 0; i < 3; ++i) { s[t] = i; s[t] += 1; }"
    run_body("", body, [], 128).check()


def test_race_on_global_memory_within_a_block(run_body, watched):
    y = np.zeros(64, "f4")
    body = "O[threadIdx.x] = threadIdx.x; O[threadIdx.x] = O[threadIdx.x ^ 32];"
    report = run_body("float* O", body, [y], 64, buffers=watched(O=y))
    assert "race-read-after-write" in {f.kind for f in report.errors} | {"race-write-after-read"}
    assert all(f.buffer == "O" for f in report.errors)


def test_races_between_blocks(run_body, watched):
    x, y = np.zeros(64, "f4"), np.zeros(64, "f4")
    finding = only(
        run_body("float* O", "O[threadIdx.x] = blockIdx.x;", [y], grid=(2,), buffers=watched(O=y)),
        "race-between-blocks",
    )
    assert finding.block == (1, 0, 0)
    body = "if (blockIdx.x == 1) O[threadIdx.x] = O[32 + threadIdx.x]; else O[32 + threadIdx.x] = 1.0f;"
    only(run_body("float* O", body, [y], grid=(2,), buffers=watched(O=y)), "race-between-blocks")
    body = "if (blockIdx.x == 0) O[threadIdx.x] = X[32 + threadIdx.x]; else X[32 + threadIdx.x] = 1.0f;"
    buffers = [(x.ctypes.data, x.nbytes, "X", True), *watched(O=y)]
    finding = only(run_body("float* X, float* O", body, [x, y], grid=(2,), buffers=buffers), "race-between-blocks")
    assert "block (0, 0, 0)" in finding.message


def test_atomics_and_plain_accesses_do_not_mix(run_body):
    x = np.zeros(1, "i4")
    run_body("int* X", "tl::atomic_add(X, 1);", [x], grid=(4,)).check()
    assert x[0] == 128
    report = run_body("int* X, int* Y", "tl::atomic_add(X, 1); Y[threadIdx.x] = X[0];", [x, np.zeros(32, "i4")])
    assert {f.kind for f in report.errors} <= {"race-read-after-write", "race-write-after-read"}
    assert report.errors
    only(
        run_body("int* X", "if (blockIdx.x) X[0] = 7; else tl::atomic_add(X, 1);", [x], 1, grid=(2,)),
        "race-between-blocks",
    )


def test_divergence_around_a_collective(run_body):
    body = "float x = threadIdx.x; if (threadIdx.x < 7) x = tl::shfl_xor(x, 1); else tl::sync_warp();"
    report = run_body("", body, [])
    assert "of the same warp is in" in only(report, "divergence").message
    assert report.standing


def test_lane_that_left_before_a_collective(run_body):
    body = "if (threadIdx.x == 3) return; tl::sync_warp();"
    only(run_body("", body, []), "exited-lane")


def test_barrier_that_part_of_the_block_never_reaches(run_body):
    report = run_body("", "if (threadIdx.x < 96)\n  tl::sync_threads();", [], 128)
    finding = only(report, "deadlock")
    assert finding.text == "tl::sync_threads();"
    assert "threads 0-95: wait in tl::sync_threads" in str(report)
    assert "threads 96-127: finished" in str(report)


def test_deadlock_of_named_barriers(run_body):
    body = "if (threadIdx.x < 32) { tl::sync_threads<1, 64>(); } else { tl::sync_threads<2, 64>(); }"
    report = run_body("", body, [], 64)
    only(report, "deadlock")
    assert "(barrier 1)" in str(report)
    assert "(barrier 2)" in str(report)


def test_barrier_with_two_counts(run_body):
    body = "if (threadIdx.x < 32) { tl::sync_threads<1, 64>(); } else { tl::sync_threads<1, 96>(); }"
    only(run_body("", body, [], 96), "barrier-count")


def test_device_assert_and_print(run_body):
    body = 'if (threadIdx.x == 5) tl::print("lane %d has %g\\n", (int)threadIdx.x, 2.5);'
    body += " tl::sync_warp(); tl::device_assert(threadIdx.x < 9, 3);"
    report = run_body("", body, [])
    finding = only(report, "device-assert")
    assert "assertion 3" in finding.message
    assert finding.threads[0] >= 9
    assert report.output == "lane 5 has 2.5\n"


def test_division_by_zero(run_body, watched):
    x, y = np.zeros(32, "i4"), np.zeros(32, "i4")
    body = "O[threadIdx.x] = 5 / X[threadIdx.x];"
    finding = only(run_body("const int* X, int* O", body, [x, y], buffers=watched(X=x, O=y)), "fault")
    assert "arithmetic error" in finding.message


def test_endless_recursion(run_body):
    before = "__device__ int deep(volatile int* p, int n) {"
    before += " volatile int a[64]; a[n % 64] = n; return n < 0 ? 0 : deep(p, n + 1) + a[*p]; }\n"
    x = np.zeros(1, "i4")
    finding = only(run_body("int* X", "X[0] = deep(X, 0);", [x], 1, before=before), "fault")
    assert "memory fault" in finding.message


def test_endless_loop_on_memory(run_body):
    x = np.zeros(1, "i4")
    only(run_body("int* X", "while (*(volatile int*)X == 0) {}", [x], 1, timeout_seconds=0.2), "timeout")


def test_spinning_on_a_flag_of_another_warp(run_body):
    """Ends: a thread that only reads memory gives way to others now and then."""
    body = "volatile int* s = (volatile int*)tl::shared_memory(); if (threadIdx.x == 0) s[0] = 0; tl::sync_threads();\n"
    body += "if (threadIdx.x == 0) while (s[0] == 0) {} if (threadIdx.x == 32) s[0] = 1;"
    report = run_body("", body, [], 64)
    assert "timeout" not in {f.kind for f in report.errors}
    assert report.errors  # a flag without an atomic is a race


def test_checks_can_be_switched_off(run_body, watched):
    y = np.zeros(64, "f4")
    body = SHARED + "s[t] = t; O[t] = s[0];"
    run_body("float* O", body, [y], 64, checks=False, buffers=watched(O=y)).check()


def test_hook_sees_the_shared_memory_of_each_block(run_body):
    seen = {}
    body = SHARED + "s[t] = t + 100 * blockIdx.x;"
    hook = lambda block, shared: seen.update({block: shared.view("f4").copy()})  # noqa: E731
    run_body("", body, [], shared=128, grid=(2,), hook=hook).check()
    np.testing.assert_array_equal(seen[1, 0, 0], np.arange(32) + 100)


def test_errors_of_a_hook_reach_the_caller(run_body):
    def hook(block, shared):
        raise KeyError(block)

    with pytest.raises(KeyError):
        run_body("", SHARED + "s[t] = 0;", [], grid=(3,), hook=hook)


def test_arguments_are_checked(run_body):
    x = np.zeros(4, "f4")
    for args, error in [
        ([x], ArgumentCountError),
        ([x, "1"], ArgumentTypeError),
        ([1.5, 1], ArgumentTypeError),
        ([x, 1 << 40], ScalarRangeError),
    ]:
        with pytest.raises(error):
            run_body("float* O, int n", "O[0] = n;", args, 1)


def test_scalar_arguments_of_each_type(run_body):
    y = np.zeros(6, "f8")
    parameters = "double* O, int a, int64_t b, float c, double d, tl::half_t e, const tl::bfloat16_t f"
    body = "O[0] = a; O[1] = b; O[2] = c; O[3] = d; O[4] = (float)e; O[5] = (float)f;"
    run_body(parameters, body, [y, -3, 1 << 40, 0.1, 0.1, 0.1, 0.1], 1).check()
    np.testing.assert_array_equal(y, [-3, 1 << 40, np.float32(0.1), 0.1, np.float16(0.1), 0.10009765625])


def test_what_does_not_compile_is_said(compile_text):
    with pytest.raises(emulator.CompileError, match=r"undeclared_name(.|\n)*try: .*#ifndef TL_HOST"):
        compile_text('#include "tl_cuda.cuh"\nextern "C" __global__ void k(int* X) { X[0] = undeclared_name; }')
    with pytest.raises(emulator.CompileError, match="no __global__"):
        compile_text('#include "tl_cuda.cuh"\n')


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(emulator.NoCompilerError, match="no-such-compiler"):
        emulator.host_compiler()


@pytest.mark.parametrize("arrivals", [1, 2])
def test_a_barrier_that_some_arrive_at_and_that_never_lets_others_pass(run_body, watched, arrivals):
    """One warp of two arrives, or both: nobody has to wait."""
    y = np.zeros(1, "f4")
    body = f"if (threadIdx.x < {32 * arrivals}) tl::arrive_barrier(3, 64);\nif (threadIdx.x == 0) O[0] = 1;"
    report = run_body("float* O", body, [y], 64, buffers=watched(O=y))
    if arrivals == 2:
        report.check()
        return
    finding = only(report, "incomplete-barrier")
    assert "arrives at barrier 3, which never has all its arrivals" in finding.message
    assert finding.text == "if (threadIdx.x < 32) tl::arrive_barrier(3, 64);"


def test_a_warp_may_come_late_to_its_wait(run_body, watched):
    """It lets another one go on, then waits for the wrong phase: in time it passes, late it waits for one that never ends."""
    body = """uint64_t* bar = (uint64_t*)tl::shared_memory();
if (threadIdx.x == 0) {
  tl::mbarrier_init(bar, 1);
  tl::mbarrier_init(bar + 1, 1);
}
tl::sync_threads();
if (threadIdx.x == 0) {
  tl::mbarrier_arrive(bar + 1);
  tl::mbarrier_wait(bar, 1);
  O[0] = 1;
}
if (threadIdx.x == 32) {
  tl::mbarrier_wait(bar + 1, 0);
  tl::mbarrier_arrive(bar);
}"""
    found = []
    for seed in range(1, 40):
        y = np.zeros(1, "f4")
        report = run_body("float* O", body, [y], 64, 64, buffers=watched(O=y), seed=seed)
        found += [f.kind for f in report.errors]
    assert found == ["deadlock"] * len(found)
    assert 0 < len(found) < 39
