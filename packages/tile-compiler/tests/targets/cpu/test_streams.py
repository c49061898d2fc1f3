"""Few rows on chip by a transposed matrix that is read where it lies: nothing behind it, nothing between its rows."""

from __future__ import annotations

import ctypes
import mmap
import re

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tile_compiler.compile import lower
from tilelang.target import Target

ROWS, COLUMNS, DEPTH = 20, 40, 96
#: Of B, and of the tile of A that meets it.
TYPES = [("float32", "float32"), ("float16", "float32"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")]


def few_rows(dtype: str, tile_dtype: str, clear: bool, rows: int = ROWS, sums: str = "float32"):
    m, n, k, pitch = T.dynamic("m"), T.dynamic("n"), T.dynamic("k"), T.dynamic("pitch")

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.StridedTensor((n, k), (pitch, 1), dtype), C: T.Tensor((m, n), sums)):
        with T.Kernel(T.ceildiv(n, COLUMNS)) as x:
            a = T.alloc_shared((rows, DEPTH), tile_dtype)
            c = T.alloc_fragment((rows, COLUMNS), sums)
            T.copy(C[0, x * COLUMNS], c)
            for step in T.serial(T.ceildiv(k, DEPTH)):
                at = step * DEPTH
                T.copy(A[0, at], a)
                B_tile = B[x * COLUMNS : x * COLUMNS + COLUMNS, at : at + DEPTH]
                T.gemm(a, B_tile, c, transpose_B=True, clear_accum=clear and step == 0)
            T.copy(c, C[0, x * COLUMNS])

    return main


def functions(func, arch: str) -> set[str]:
    return set(re.findall(r"\"tl\.(streams\.\w+|gemm|dots|tiles)\.", lower(func, Target("cpu", arch)).trace.text()))


@pytest.mark.parametrize(("dtype", "tile_dtype"), TYPES)
def test_which_instruction_multiplies(dtype, tile_dtype):
    for arch in ("x86-64-v3", "x86-64-v4", "x86-64-v4+bf16+vnni", "x86-64-v4+bf16+vnni+amx"):
        own = tile_dtype == "bfloat16"
        if own and ("bf16" not in arch or "amx" in arch):
            assert not any(name.startswith("streams") for name in functions(few_rows(dtype, tile_dtype, False), arch))
        else:
            expected = {f"streams.{'bf16' if own else 'f32'}"}
            assert functions(few_rows(dtype, tile_dtype, False), arch) == expected


def test_many_rows_are_not_few():
    assert functions(few_rows("float32", "float32", False, 65), "x86-64-v4") == {"gemm"}
    amx = "x86-64-v4+bf16+vnni+amx"
    assert functions(few_rows("bfloat16", "bfloat16", False, 8), amx) == {"streams.bf16"}
    assert "streams.bf16" not in functions(few_rows("bfloat16", "bfloat16", False, 9), amx)


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize(("dtype", "tile_dtype"), TYPES)
@pytest.mark.parametrize("arch", ["", "x86-64-v3"])
def test_nothing_else_is_read(dtype, tile_dtype, clear, arch):
    kernel = tilelang.compile(few_rows(dtype, tile_dtype, clear), target=Target("cpu", arch))
    for m, n, k in ((20, 40, 96), (1, 1, 1), (7, 41, 97), (13, 75, 200), (20, 3, 31), (19, 82, 128)):
        generator = torch.Generator().manual_seed(m)
        a = torch.randn(m, k, generator=generator).to(getattr(torch, dtype))
        b = guarded(torch.randn(n, k, generator=generator).to(a.dtype))
        c = torch.randn(m, n, generator=generator)
        expected = a.double() @ b.double().T + (0 if clear else c.double())
        kernel(a, b, c)
        assert float((c.double() - expected).abs().max()) < 1e-5 * k


@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"), ("uint8", "int8")])
@pytest.mark.parametrize("arch", ["", "x86-64-v3"])
def test_few_rows_of_bytes(types, arch):
    """In quads where a level multiplies those, any few rows; else by pairs of 16 bits, up to eight."""
    quads = "streams.u8s8" if types[0] == "uint8" else "streams.s8u8"
    levels = {"x86-64-v3": "streams.i16", "x86-64-v4": "streams.i16", "x86-64-v4+bf16+vnni": quads}
    for level, expected in {**levels, "x86-64-v4+bf16+vnni+amx": quads}.items():
        assert functions(few_rows(types[1], types[0], False, 8, "int32"), level) == {expected}
        many = functions(few_rows(types[1], types[0], False, 9, "int32"), level)
        assert (many == {quads}) == (level == "x86-64-v4+bf16+vnni")
        assert "streams.i16" not in many
    kernel = tilelang.compile(few_rows(types[1], types[0], True, 20, "int32"), target=Target("cpu", arch))
    for m, n, k in ((7, 40, 96), (1, 1, 1), (7, 41, 97), (3, 75, 200), (5, 3, 31), (20, 82, 128), (13, 20, 63)):
        generator = torch.Generator().manual_seed(m)
        # Of the tile's type, which converts what it copies, numbers that both have.
        a = torch.randint(0, 128, (m, k), generator=generator).to(getattr(torch, types[1]))
        least, most = (0, 256) if types[1] == "uint8" else (-128, 128)
        b = guarded(torch.randint(least, most, (n, k), generator=generator).to(a.dtype))
        c = torch.randint(-9, 9, (m, n), generator=generator, dtype=torch.int32)
        kernel(a, b, c)
        assert torch.equal(c, (a.double() @ b.double().T).int())


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_the_least_and_the_largest_bytes(dtype, clear):
    """Whose products fill the quads' sums most, on both sides; beside what C had."""
    kernel = tilelang.compile(few_rows(dtype, dtype, clear, 6, "int32"), target="cpu")
    least, most = (0, 255) if dtype == "uint8" else (-128, 127)
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randint(0, 2, (n, 777), generator=generator) * (most - least) + least for n in (6, 33))
    a[0], a[1], b[0], b[1] = least, most, least, most
    a, b = (x.to(getattr(torch, dtype)) for x in (a, b))
    c = torch.randint(-9, 9, (6, 33), generator=generator, dtype=torch.int32)
    expected = a.double() @ b.double().T + (0 if clear else c.double())
    kernel(a, b, c)
    assert torch.equal(c, expected.int())


@pytest.mark.parametrize(("dtype", "tile_dtype"), TYPES)
def test_sums_of_float64_are_made_in_float64(dtype, tile_dtype):
    for arch in ("x86-64-v3", "x86-64-v4+bf16+vnni", "x86-64-v4+bf16+vnni+amx"):
        assert functions(few_rows(dtype, tile_dtype, True, 4, "float64"), arch) <= {"gemm", "dots"}
    kernel = tilelang.compile(few_rows(dtype, tile_dtype, True, 4, "float64"), target="cpu")
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 700, generator=generator).to(getattr(torch, dtype)) for n in (4, 50))
    c = torch.empty(4, 50, dtype=torch.float64)
    kernel(a, b, c)
    assert float((c - a.double() @ b.double().T).abs().max()) < 1e-12


def test_halves_that_are_denormal_or_no_number():
    """As float32, where a half's denormal is none; NaN of one row stays there."""
    kernel = tilelang.compile(few_rows("float16", "float32", True), target="cpu")
    a, b, c = torch.ones(2, 40).half(), torch.full((3, 40), 6e-8).half(), torch.empty(2, 3)
    b[1, 39] = torch.nan
    kernel(a, b, c)
    assert torch.equal(c[:, [0, 2]], torch.full((2, 2), 40 * float(b[0, 0])))
    assert c[:, 1].isnan().all()


def guarded(matrix: torch.Tensor) -> torch.Tensor:
    """The same with NaN between its rows, its last element the last of readable memory."""
    rows, columns = matrix.shape
    item, page, pitch = matrix.element_size(), mmap.PAGESIZE, columns + 3
    size = (rows * pitch - 3) * item
    pages = -(-size // page)
    memory = mmap.mmap(-1, (pages + 1) * page)
    MEMORY.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + pages * page), ctypes.c_size_t(page), 0) == 0
    codes = np.frombuffer(memory, f"uint{8 * item}", rows * pitch - 3, offset=pages * page - size)
    flat = torch.from_numpy(codes).view(matrix.dtype)
    flat.fill_(torch.nan if flat.is_floating_point() else torch.iinfo(flat.dtype).max)
    found = flat.as_strided((rows, columns), (pitch, 1))
    found.copy_(matrix)
    return found


MEMORY: list[mmap.mmap] = []


@pytest.fixture(autouse=True)
def _forgets_memory():
    yield
    MEMORY.clear()
