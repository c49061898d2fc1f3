"""Every declared instruction: its fragments, its text in the header, its meaning against the emulated function."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tile_compiler.instructions import MatrixMove, MatrixMultiply, declared, matrix_moves, runs_on
from tile_compiler.simt.distribution import of_fragment
from tile_compiler.targets.cuda import instructions as cuda
from tile_compiler.targets.cuda.plugin import headers
from tile_compiler.targets.hip import instructions as hip
from tile_compiler.targets.hip.plugin import headers as hip_headers
from tilelang.interpreter import numerics
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Fragment

emulator = pytest.importorskip("tile_runtime_cpu.emulator")
WAVES = 2


def label(instruction: Any) -> str:
    return str(instruction.name.removeprefix("tl::"))


def places(fragment: Fragment) -> tuple[Any, Any]:
    """(lanes, registers) of all elements."""
    grid = np.indices(fragment.shape)
    lane, register = (np.broadcast_to(x, fragment.shape) for x in fragment(*grid))
    return lane, register


def words(matrices: Any, fragment: Fragment, dtype: str, lanes: int) -> Any:
    """Matrices [wave, i, j] as the 32-bit registers [wave * lane, register] of their lanes, low bits first."""
    held = np.zeros((len(matrices), lanes, fragment.local_size), matrices.dtype)
    held[(slice(None), *places(fragment))] = matrices
    held = held.reshape(-1, fragment.local_size)
    if dtype_of(dtype).bits == 4:
        nibbles = held.astype("i1").view("u1") & 15
        held = nibbles[:, 0::2] | nibbles[:, 1::2] << 4
    return np.ascontiguousarray(held).view("u4")


def matrices(registers: Any, fragment: Fragment, dtype: str, lanes: int) -> Any:
    """The reverse of `words`, for types of a byte or more."""
    held = registers.view(dtype_of(dtype).as_numpy()).reshape(-1, lanes, fragment.local_size)
    return held[(slice(None), *places(fragment))]


def random_matrix(rng: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    kind = dtype_of(dtype)
    if kind.is_float:
        return numerics.convert(rng.standard_normal(shape), kind.storage)
    low = -(2 ** (kind.bits - 1)) if kind.is_signed else 0
    values = rng.integers(max(low, -(2**20)), min(low + 2**kind.bits, 2**20), shape)
    return values.astype(kind.as_numpy() if kind.bits >= 8 else np.int8)


@pytest.mark.parametrize("instruction", [d for d in declared() if d.lanes > 1], ids=label)
def test_other_forms_of_an_instruction_are_declarations_too(instruction: MatrixMultiply) -> None:
    """Construction proves that every element is held once."""
    turned = instruction.transposed
    assert (turned.m, turned.n, turned.swapped) == (instruction.n, instruction.m, True)
    assert turned.transposed.a_fragment == instruction.a_fragment
    packed = instruction.packed(2)
    if instruction.lanes == 64:
        assert packed is not None
        assert packed.a_fragment.vector_width(1) == 2 * instruction.a_fragment.vector_width(1)
        assert packed.c_fragment == instruction.c_fragment
    else:
        assert packed is None or packed.k == 2 * instruction.k


def test_a_packed_instruction_pairs_the_same_elements_of_k() -> None:
    """Whatever the order along k, call q multiplies column k of A with row k of B."""
    rng = np.random.default_rng(3)
    for instruction in (d for d in declared() if d.lanes == 64):
        packed = instruction.packed(2)
        assert packed is not None
        a, b = rng.standard_normal((packed.m, packed.k)), rng.standard_normal((packed.k, packed.n))
        total = np.zeros((packed.m, packed.n))
        for q in range(2):
            parts = []
            for matrix, whole, part in (
                (a, packed.a_fragment, instruction.a_fragment),
                (b, packed.b_fragment, instruction.b_fragment),
            ):
                held = np.zeros((64, whole.local_size))
                held[places(whole)] = matrix
                lane, register = places(part)
                parts.append(held[lane, q * part.local_size + register])
            total = instruction.meaning(total, *parts)
        np.testing.assert_allclose(total, a @ b, rtol=1e-2, atol=1e-2)


def test_three_products_of_tf32_lose_little_and_nothing_in_the_mean(rng: np.random.Generator) -> None:
    by_three = next(d for d in cuda.MMA if d.asked_by).meaning
    a, b = (rng.standard_normal(shape).astype("f4") for shape in ((400, 1), (1, 400)))
    exact = a.astype("f8") @ b.astype("f8")
    lost = by_three(np.zeros((400, 400)), a, b) / exact - 1
    assert np.abs(lost).max() < 2**-19
    assert np.sqrt((lost**2).mean()) < 2**-21.9
    assert abs(lost.mean()) < 2**-24


def test_three_products_of_tf32_of_the_largest_numbers_and_of_infinity() -> None:
    by_three = next(d for d in cuda.MMA if d.asked_by).meaning
    largest, b = np.array([[np.finfo("f4").max]], "f4"), np.array([[0.1, -3e-30, 1e-7]], "f4")
    lost = by_three(np.zeros((1, 3)), largest, b) / (largest.astype("f8") @ b.astype("f8")) - 1
    assert np.abs(lost).max() < 2**-19
    with np.errstate(invalid="ignore"):
        assert np.isnan(by_three(np.zeros((1, 3)), np.array([[np.inf]], "f4"), b)).all()


@pytest.mark.parametrize("instruction", [*cuda.MULTIPLY, *cuda.MOVE], ids=label)
def test_text_is_in_the_header(instruction: Any) -> None:
    text = "\n".join(headers().values())
    entry = next(line for line in text.splitlines() if f"({label(instruction)}," in line)
    given = [part for part in entry.split('"') if "." in part]
    if isinstance(instruction, MatrixMove):
        assert instruction.transposed == (given == [".trans"])
        assert f"{label(instruction).split('_')[0]}.sync.aligned.m8n8.x{instruction.count}" in text
    else:
        assert instruction.text.endswith(given[0])
        assert instruction.text.removesuffix(given[0]) in ("", "mma.sync.aligned.")


@pytest.mark.parametrize("instruction", hip.MULTIPLY, ids=label)
def test_builtin_of_the_mnemonic_is_in_the_hip_header(instruction: MatrixMultiply) -> None:
    text = "\n".join(hip_headers().values())
    (entry,) = (line for line in text.splitlines() if re.search(rf"(\(|void ){label(instruction)}[,(]", line))
    if instruction.lanes > 1:
        assert f"__builtin_amdgcn_{instruction.text.removeprefix('v_')}," in entry


@functools.cache
def emulated(header: str, declarations: tuple[MatrixMultiply, ...]) -> Any:
    """A kernel for each multiply: its lanes' registers from memory, one call, C's registers back."""
    kernels = []
    for d in declarations:
        held = ((d.a_fragment, d.a), (d.b_fragment, d.b), (d.c_fragment, d.c))
        counts = [f.local_size * dtype_of(t).bits // 32 for f, t in held]
        a, b, c = (
            f"alignas(8) uint32_t {x}[{n}];\n"
            f"for (int i = 0; i < {n}; ++i) {x}[i] = {x.upper()}[threadIdx.x * {n} + i];\n"
            for x, n in zip("abc", counts)
        )
        back = f"for (int i = 0; i < {counts[2]}; ++i) C[threadIdx.x * {counts[2]} + i] = c[i];\n"
        head = f'extern "C" __global__ void run_{label(d)}(const uint32_t* A, const uint32_t* B, uint32_t* C) {{\n'
        kernels.append(f"{head}{a}{b}{c}{d.name}(c, a, b);\n{back}}}\n")
    return emulator.compile(f'#include "{header}"\n' + "".join(kernels))


@pytest.mark.parametrize(
    ("header", "vendor", "instruction"),
    [
        pytest.param(header, vendor, d, id=f"{header.split('.')[0]}-{label(d)}")
        for header, vendor in (("tl_cuda.cuh", cuda), ("tl_hip.h", hip))
        for d in vendor.MULTIPLY
    ],
)
def test_meaning_agrees_with_the_emulated_function(header: str, vendor: Any, instruction: MatrixMultiply) -> None:
    rng = np.random.default_rng(instruction.k)
    d, threads = instruction, instruction.lanes * WAVES
    a, b, c = (
        random_matrix(rng, dtype, (WAVES, *fragment.shape))
        for dtype, fragment in ((d.a, d.a_fragment), (d.b, d.b_fragment), (d.c, d.c_fragment))
    )
    held = [
        words(matrix, fragment, dtype, d.lanes)
        for matrix, fragment, dtype in ((a, d.a_fragment, d.a), (b, d.b_fragment, d.b), (c, d.c_fragment, d.c))
    ]
    emulated(header, vendor.MULTIPLY).launch(f"run_{label(d)}", (1, 1, 1), (threads, 1, 1), 0, held).check()
    got = matrices(held[2], d.c_fragment, d.c, d.lanes)
    want = np.stack([d.compute(*operands) for operands in zip(c, a, b)])
    if want.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want)
    else:  # one rounding of the accumulator for each step of k
        size = np.abs(c.astype("f8")) + np.abs(a.astype("f8")) @ np.abs(b.astype("f8"))
        error = np.abs(got.astype("f8") - want.astype("f8")) / size
        assert error.max() <= d.k * float(np.finfo(want.dtype).eps)


@pytest.mark.parametrize("move", [m for m in matrix_moves() if not m.store], ids=label)
def test_moved_matrices_are_where_the_declaration_says(move: MatrixMove) -> None:
    rng = np.random.default_rng(move.count)
    memory = rng.integers(0, 2**16, (32, 8)).astype("u2")
    out = np.zeros((32, move.count), "u4")
    source = (
        '#include "tl_cuda.cuh"\nextern "C" __global__ void k(const uint4* X, uint32_t* O) {\n'
        "uint4* s = (uint4*)tl::shared_memory(); s[threadIdx.x] = X[threadIdx.x]; tl::sync_warp();\n"
        f"uint32_t r[{move.count}]; {move.name}(r, s + threadIdx.x);\n"
        f"for (int i = 0; i < {move.count}; ++i) O[threadIdx.x * {move.count} + i] = r[i];\n}}\n"
    )
    source = source.replace("uint4", "tl::vec<uint32_t, 4>")
    emulator.compile(source).launch("k", (1, 1, 1), (32, 1, 1), 512, [memory, out]).check()
    halves = out.view("u2").reshape(32, move.count, 2)
    for q in range(move.count):
        got = halves[:, q][places(move.fragment)]
        np.testing.assert_array_equal(got, memory[8 * q : 8 * q + 8])


# Which element the ISA's figures put into some register of some lane: (instruction, operand, lane, register, element).
FIGURES = [
    ("tl::mma_m16n8k16_f32_f16", "a", 13, 2, (11, 2)),
    ("tl::mma_m16n8k16_f32_f16", "a", 13, 5, (3, 11)),
    ("tl::mma_m16n8k16_f32_f16", "b", 13, 2, (10, 3)),
    ("tl::mma_m16n8k16_f32_f16", "c", 13, 3, (11, 3)),
    ("tl::mma_m8n8k16_s32_s8", "a", 30, 3, (7, 11)),
    ("tl::mma_m16n8k64_s32_s4", "b", 5, 9, (41, 1)),
    ("tl::mfma_32x32x8_f32_f16", "a", 40, 3, (8, 7)),
    ("tl::mfma_32x32x8_f32_f16", "c", 40, 6, (14, 8)),
    ("tl::mfma_16x16x16_f32_f16", "b", 40, 1, (9, 8)),
    ("tl::mfma_16x16x16_f32_f16", "c", 40, 1, (9, 8)),
    ("tl::mfma_16x16x32_i32_i8", "a", 20, 7, (4, 15)),
]


@pytest.mark.parametrize(("name", "operand", "lane", "register", "element"), FIGURES)
def test_fragments_are_those_of_the_manuals(
    name: str, operand: str, lane: int, register: int, element: tuple[int, int]
) -> None:
    fragment = getattr(next(d for d in declared() if d.name == name), f"{operand}_fragment")
    assert fragment(*element) == (lane, register)


def test_architectures() -> None:
    assert runs_on(("sm_80+",), "sm_90a")
    assert not runs_on(("sm_80+",), "sm_75")
    assert not runs_on(("sm_80+",), "gfx942")
    assert runs_on(("gfx90a", "gfx942"), "gfx942")
    assert not runs_on(("gfx90a",), "gfx942")
    mfma = {d.name for d in hip.MULTIPLY if d.runs_on("gfx90a")}
    assert "tl::mfma_16x16x16_i32_i8" in mfma
    assert "tl::mfma_16x16x32_i32_i8" not in mfma


def broken(**changes: Any) -> Callable[[], MatrixMultiply]:
    return lambda: dataclasses.replace(cuda.MULTIPLY[0], **changes)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (broken(lanes=16), "16 lanes"),
        (broken(m=8), "fragment of A has shape"),
        (broken(c_fragment=Fragment((16, 8), lambda i, j: (i, j % 4))), "are both in register"),
        (broken(c_fragment=Fragment((16, 8), lambda i, j: (i, j))), "do not fill"),
        (broken(b_fragment=Fragment((16, 8), lambda k, j: (k // 4 * 8 + j, k % 4 * 2))), "do not fill"),
        (broken(architectures=("hopper",)), "no architecture"),
    ],
)
def test_declarations_check_themselves(make: Callable[[], MatrixMultiply], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        make()


def test_float8_product_of_sm_90_as_two_of_f16(rng: np.random.Generator) -> None:
    """mma.cuh: bytes 2h and 2h + 1 of a lane's words stand for its f16 pairs in product h; the order of k is free."""
    named = {d.name: d for d in declared()}
    byte, half = named["tl::mma_m16n8k32_f32_e4m3"], named["tl::mma_m16n8k16_f32_f16"]
    a, b = rng.integers(-8, 9, (16, 32)), rng.integers(-8, 9, (32, 8))
    total = np.zeros((16, 8), np.int64)
    for h in (0, 1):
        operands = []
        for matrix, of_byte, of_half in ((a, byte.a_fragment, half.a_fragment), (b, byte.b_fragment, half.b_fragment)):
            words = matrix.ravel()[of_fragment(of_byte, 32).held].reshape(32, -1, 4)
            pairs = words[:, :, 2 * h : 2 * h + 2].reshape(32, -1)
            part = np.zeros(of_half.shape, np.int64)
            part.ravel()[of_fragment(of_half, 32).held] = pairs
            operands.append(part)
        total += operands[0] @ operands[1]
    np.testing.assert_array_equal(total, a @ b)


def test_declarations_of_one_shape_share_their_fragments() -> None:
    """They are made and proved once: there are many declarations, and every process needs them."""
    pairs = [d for d in cuda.MMA if (d.m, d.k) == (16, 32) and d.a in ("int8", "uint8")]
    assert len(pairs) == 4
    assert len({id(f) for d in pairs for f in (d.a_fragment, d.b_fragment, d.c_fragment)}) == 3
