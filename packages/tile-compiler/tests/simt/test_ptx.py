"""`T.ptx`: header functions for known opcodes, inline assembly for others, and their meanings in the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.errors import UnsupportedOnTarget
from tile_runtime import registry
from tile_runtime_cpu.emulator.meanings import NoMeaningError

CUDA = "cuda -arch=sm_80"


def bytewise(a: Any, b: Any, c: Any) -> int:
    """dp4a, written out."""
    lanes = [np.frombuffer(np.int32(x).tobytes(), np.int8).astype(np.int64) for x in (a, b)]
    return int((lanes[0] * lanes[1]).sum()) + int(c)


def choose(a: Any, b: Any, c: Any, table: Any) -> int:
    """lop3: each bit by its row of the table."""
    out = 0
    for bit in range(32):
        row = (int(a) >> bit & 1) << 2 | (int(b) >> bit & 1) << 1 | (int(c) >> bit & 1)
        out |= (int(table) >> row & 1) << bit
    return out


def run(func: Any, execution: str, arguments: list[Any]) -> list[Any]:
    work = [a.copy() for a in arguments]
    tilelang.compile(func, target=CUDA, execution=execution)(*work)
    return work


def device_text(func: Any) -> str:
    """The text, after the device's own compiler has accepted it."""
    kernel = tilelang.compile(func, target=CUDA)
    assert registry.device("cuda") is not None
    return str(kernel.get_kernel_source())


@pytest.mark.parametrize("execution", ["interpret", "emulate"])
def test_a_known_opcode_is_a_function_of_the_header(execution: str) -> None:
    @T.prim_func
    def dots(A: T.Tensor((100,), "int32"), B: T.Tensor((100,), "int32"), C: T.Tensor((100,), "int32")):
        with T.Kernel(2, threads=64) as bx:
            for i in T.Parallel(64):
                if bx * 64 + i < 100:
                    k = bx * 64 + i
                    C[k] = T.ptx("dp4a.s32.s32", A[k], B[k], C[k], dtype="int32", meaning=bytewise)

    rng = np.random.default_rng(1)
    args = [rng.integers(-(2**31), 2**31, 100).astype(np.int32) for _ in range(2)]
    args.append(rng.integers(-(2**20), 2**20, 100).astype(np.int32))
    got = run(dots, execution, args)[2]
    products = args[0].view(np.int8).astype(np.int64) * args[1].view(np.int8)
    np.testing.assert_array_equal(got, args[2] + products.reshape(100, 4).sum(axis=1))
    assert "tl::dp4a(" in device_text(dots)


def chosen_bytes(a: Any, b: Any, chosen: Any) -> int:
    """prmt, written out."""
    pool = np.array([a, b], np.uint32).view(np.uint8)
    digits = [int(chosen) >> 4 * place & 15 for place in range(4)]
    word = [pool[d] if d < 8 else (255 if pool[d - 8] > 127 else 0) for d in digits]
    return int(np.array(word, np.uint8).view(np.uint32)[0])


@pytest.mark.parametrize("execution", ["interpret", "emulate"])
def test_bytes_are_chosen_by_a_function_of_the_header(execution: str) -> None:
    @T.prim_func
    def permuted(A: T.Tensor((64,), "uint32"), B: T.Tensor((64,), "uint32"), C: T.Tensor((64,), "uint32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                C[i] = T.ptx("prmt.b32", A[i], B[i], C[i], dtype="uint32", meaning=chosen_bytes)

    rng = np.random.default_rng(1)
    args = [rng.integers(0, 2**32, 64, dtype=np.uint64).astype(np.uint32) for _ in range(3)]
    got = run(permuted, execution, args)[2]
    np.testing.assert_array_equal(got, [chosen_bytes(*words) for words in zip(*args)])
    assert "tl::prmt(" in device_text(permuted)


@pytest.mark.parametrize("execution", ["interpret", "emulate"])
def test_an_unknown_opcode_is_inline_assembly_with_a_meaning(execution: str) -> None:
    @T.prim_func
    def mixed(A: T.Tensor((96,), "uint32"), B: T.Tensor((96,), "uint32"), C: T.Tensor((96,), "uint32")):
        with T.Kernel(1, threads=48):
            for i in T.Parallel(96):
                C[i] = T.ptx("lop3.b32", A[i], B[i], C[i], 0xCA, dtype="uint32", meaning=choose)

    rng = np.random.default_rng(2)
    args = [rng.integers(0, 2**32, 96, dtype=np.uint64).astype(np.uint32) for _ in range(3)]
    a, b, c = args
    np.testing.assert_array_equal(run(mixed, execution, args)[2], (a & b) | (~a & c))
    text = device_text(mixed)
    assert 'asm("lop3.b32 %0, %1, %2, %3, 202;" : "=r"(result) : "r"(a), "r"(b), "r"(c));' in text
    assert text.count("TL_DEVICE") == 1


@pytest.mark.parametrize(
    ("dtype", "opcode", "meaning"),
    [
        ("float32", "fma.rn.f32", lambda a, b, c: np.float32(np.float64(a) * b + c)),
        ("float64", "fma.rn.f64", lambda a, b, c: np.float64(np.longdouble(a) * b + c)),
        ("float16", "fma.rn.f16", lambda a, b, c: np.float16(np.float64(a) * b + c)),
        ("int64", "mad.lo.s64", lambda a, b, c: int(a) * int(b) + int(c)),
    ],
)
def test_operands_of_every_width(dtype: str, opcode: str, meaning: Any) -> None:
    @T.prim_func
    def fused(A: T.Tensor((40,), dtype), B: T.Tensor((40,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(40):
                B[i] = T.ptx(opcode, A[i], A[i], B[i], dtype=dtype, meaning=meaning)

    rng = np.random.default_rng(3)
    args = [(rng.standard_normal(40) * 9).astype(dtype) + np.dtype(dtype).type(1) for _ in range(2)]
    want = run(fused, "interpret", args)[1]
    assert not np.array_equal(want, args[1])
    np.testing.assert_array_equal(run(fused, "emulate", args)[1], want)
    assert opcode in device_text(fused)


def test_an_instruction_with_an_address_and_without_a_result() -> None:
    seen = []

    @T.prim_func
    def prefetch(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            T.ptx("prefetch.global.L2", T.address_of(A[tx]), meaning=seen.append)
            B[tx] = A[tx]

    values = np.random.default_rng(4).standard_normal(64).astype(np.float32)
    np.testing.assert_array_equal(run(prefetch, "emulate", [values, np.zeros(64, np.float32)])[1], values)
    assert len(seen) == 64
    assert 'asm volatile("prefetch.global.L2 [%0];" : : "l"(a) : "memory");' in device_text(prefetch)


def warp_product(opcode: str) -> Any:
    """C (16, 8) += A (16, 32) @ B (32, 8), each lane with the elements that PTX ISA 9.7.14.5 gives it."""

    @T.prim_func
    def product(A: T.Tensor((16, 32), "int8"), B: T.Tensor((32, 8), "int8"), C: T.Tensor((16, 8), "int32")):
        with T.Kernel(1, threads=32):
            lane = T.get_thread_binding()
            a = T.alloc_local((16,), "int8")
            b = T.alloc_local((8,), "int8")
            c = T.alloc_local((4,), "int32")
            for r in T.serial(16):
                a[r] = A[r // 4 % 2 * 8 + lane // 4, r // 8 * 16 + lane % 4 * 4 + r % 4]
            for r in T.serial(8):
                b[r] = B[r // 4 * 16 + lane % 4 * 4 + r % 4, lane // 4]
            for r in T.serial(4):
                c[r] = C[r // 2 * 8 + lane // 4, lane % 4 * 2 + r % 2]
            T.ptx(opcode, c, a, b)
            for r in T.serial(4):
                C[r // 2 * 8 + lane // 4, lane % 4 * 2 + r % 2] = c[r]

    return product


def test_a_matrix_instruction_by_its_opcode() -> None:
    func = warp_product("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
    rng = np.random.default_rng(5)
    args = [rng.integers(-128, 128, shape).astype(np.int8) for shape in ((16, 32), (32, 8))]
    args.append(rng.integers(-(2**20), 2**20, (16, 8)).astype(np.int32))
    want = args[2] + args[0].astype(np.int64) @ args[1].astype(np.int64)
    np.testing.assert_array_equal(run(func, "emulate", args)[2], want)
    assert "tl::mma_m16n8k32_s32_s8(" in device_text(func)


def test_a_matrix_instruction_that_the_architecture_lacks() -> None:
    opcode = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    with pytest.raises(UnsupportedOnTarget, match=rf"T.ptx\('{opcode}'\) on sm_80") as caught:
        tilelang.compile(warp_product(opcode), target=CUDA)
    assert "test_ptx.py" in str(caught.value)
    assert "sm_89" in str(caught.value)


def test_a_matrix_instruction_takes_arrays() -> None:
    @T.prim_func
    def product(C: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                C[i] = T.ptx("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", C[i], C[i], dtype="int32")

    with pytest.raises(UnsupportedOnTarget, match="with 2 operands") as caught:
        tilelang.compile(product, target=CUDA)
    assert "addresses of the lane's arrays: c, a, b" in str(caught.value)


def test_without_a_meaning_the_emulator_says_what_it_needs() -> None:
    @T.prim_func
    def strange(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                A[i] = T.ptx("bfind.s32", A[i], dtype="int32")

    with pytest.raises(
        NoMeaningError, match=r"does not know the instruction bfind.s32; T.ptx\(..., meaning=function\)"
    ):
        run(strange, "emulate", [np.arange(32, dtype=np.int32)])


def test_what_a_meaning_raises_ends_the_launch() -> None:
    def refuses(a: Any) -> int:
        if int(a) == 17:
            raise ZeroDivisionError("seventeen")
        return int(a) + 1

    @T.prim_func
    def strange(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                A[i] = T.ptx("brev.b32", A[i], dtype="int32", meaning=refuses)

    with pytest.raises(ZeroDivisionError, match="seventeen"):
        run(strange, "emulate", [np.arange(32, dtype=np.int32)])
    got = run(strange, "emulate", [np.arange(100, 132, dtype=np.int32)])[0]
    np.testing.assert_array_equal(got, np.arange(101, 133))


def test_an_operand_type_without_a_register_names_line_and_opcode() -> None:
    @T.prim_func
    def strange(A: T.Tensor((32,), "float8_e4m3fn"), B: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = T.ptx("brev.b32", A[i], dtype="int32", meaning=int)

    with pytest.raises(
        UnsupportedOnTarget, match=r"T.ptx\('brev.b32'\) with an operand of type float8_e4m3fn"
    ) as caught:
        tilelang.compile(strange, target=CUDA)
    assert "test_ptx.py" in str(caught.value)
