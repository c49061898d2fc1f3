"""Small tables are looked up by permutations in registers, larger ones in memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import tirx as tir
from tvm.ir import prim

import tile_compiler
import tilelang
import tilelang.language as T
from tile_compiler.targets.cpu.codegen import build_object
from tile_compiler.targets.cpu.features import V3, V4
from tile_compiler.targets.cpu.lookup_pairs import pair_of_lookups
from tile_compiler.targets.cpu.lowered import LoweredLaunch
from tilelang.target import parse

LOAD, STORE = tir.BufferLoad, tir.BufferStore
COUNT = 45  # whole vectors and narrower ones


def lookup_launch(dtype: str, entries: int, index: str = "uint8", mask: int | None = None) -> LoweredLaunch:
    """out[i] = table[at[i]], or table[at[i] & mask], with a copy of the table on chip."""
    values, at, out = (
        tir.decl_buffer((n,), d, name)
        for n, d, name in ((entries, dtype, "values"), (COUNT, index, "at"), (COUNT, dtype, "out"))
    )
    table = tir.decl_buffer((entries,), dtype, "table", scope="shared", layout=None)
    i, j = (tir.Var(name, "int32") for name in "ij")
    zero = tir.const(0, "int32")
    fill = tir.For(i, zero, tir.const(entries, "int32"), tir.ForKind.SERIAL, STORE(table, LOAD(values, [i]), [i]))
    chosen = LOAD(at, [j])
    chosen = chosen if mask is None else chosen & tir.const(mask, index)
    found = LOAD(table, [prim.Cast("int32", chosen)])
    look = tir.For(j, zero, tir.const(COUNT, "int32"), tir.ForKind.VECTORIZED, STORE(out, found, [j]))
    return LoweredLaunch("tile_main", (values, at, out), (), ((table, 0),), 1024, (), (), tir.SeqStmt([fill, look]))


@pytest.mark.parametrize("entries", [1, 3, 8, 13, 16, 20, 32, 64, 65])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "bfloat16", "uint8"])
def test_every_entry_is_found(run, features, dtype, entries):
    rng = np.random.default_rng(entries)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    values = rng.integers(0, 200, entries).astype(kind)
    at = np.concatenate([np.arange(entries), rng.integers(0, entries, COUNT)])[-COUNT:].astype(np.uint8)
    out = np.zeros(COUNT, kind)
    assert run(lookup_launch(dtype, entries), features, values, at, out) == 0
    np.testing.assert_array_equal(out, values[at])


def test_tables_stay_in_registers():
    asm = build_object([lookup_launch("float32", 16, "int32")], V3).asm
    assert "vperm" in asm
    assert "vblendvps" in asm
    assert "vinsertps" not in asm
    assert "vperm" in build_object([lookup_launch("float32", 16, "int32")], V4).asm
    assert "vpermi2" in build_object([lookup_launch("float32", 32, "int32")], V4).asm


def test_large_tables_stay_in_memory():
    for features, entries in ((V3, 33), (V4, 65)):
        assert ".lookup." not in build_object([lookup_launch("float32", entries, "int32")], features).llvm_ir
        assert "vperm" not in build_object([lookup_launch("float32", entries, "int32")], features).asm


@pytest.mark.parametrize("bound", [False, True])
def test_a_masked_code_is_known_to_be_inside_of_its_table(bound):
    """No condition, and so a vector of lookups; with and without a name for the code."""

    @T.prim_func
    def kernel(A: T.Tensor((1024,), "uint32"), values: T.Tensor((16,), "float32"), B: T.Tensor((1024,), "float32")):
        with T.Kernel(1, threads=1):
            table = T.alloc_shared((16,), "float32")
            T.copy(values, table)
            for i in T.Parallel(1024):
                if bound:
                    code = T.cast((A[i] >> T.uint32(4)) & T.uint32(15), "int32")
                    B[i] = table[code]
                else:
                    B[i] = table[T.cast((A[i] >> T.uint32(4)) & T.uint32(15), "int32")]

    lowered = tile_compiler.lower(kernel, parse("cpu -arch=x86-64-v3"))
    assert "if_then_else" not in lowered.text()
    asm = lowered.asm()
    assert "vperm" in asm
    assert "vinsertps" not in asm


@pytest.mark.parametrize(
    ("entries", "mask"), [(16, 15), (32, 31), (64, 63), (8, 7), (4, 3), (13, 7), (16, 7), (32, 15)]
)
def test_masked_indices(run, features, entries, mask):
    """Whatever the other bits are: registers of a whole table look at no more of them."""
    rng = np.random.default_rng(entries)
    values, at = rng.standard_normal(entries).astype("float32"), rng.integers(0, 2**32, COUNT).astype(np.uint32)
    out = np.zeros(COUNT, "float32")
    assert run(lookup_launch("float32", entries, "uint32", mask), features, values, at, out) == 0
    np.testing.assert_array_equal(out, values[at & mask])


@pytest.mark.parametrize(
    ("features", "entries", "masks"), [(V3, 8, False), (V4, 16, False), (V4, 8, True), (V3, 16, True)]
)
def test_masks_that_registers_make_needless(features, entries, masks):
    """With AVX2 two registers are chosen from by a bit of the index."""
    asm = build_object([lookup_launch("float32", entries, "uint32", entries - 1)], features).asm
    assert any("vpand" in line or "vandps" in line for line in asm.splitlines()) == masks


HALVES = ["float16", "bfloat16", "int16"]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("entries", "mask"), [(16, 15), (32, 31), (2, 1), (1, 0), (13, 7), (16, 7), (64, 63)])
@pytest.mark.parametrize("index", ["uint16", pytest.param("int16", marks=pytest.mark.full), "uint8"])
def test_elements_of_16_bits_by_indices_of_16_bits(run, features, dtype, entries, mask, index):
    """As many entries as a power of two, whatever the other bits of an index are; others, and tables of more than a register."""
    rng = np.random.default_rng(entries)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    values = rng.integers(-200, 200, entries).astype(kind)
    at, out = rng.integers(0, 2**16, COUNT).astype("uint16").astype(index), np.zeros(COUNT, kind)
    assert run(lookup_launch(dtype, entries, index, mask), features, values, at, out) == 0
    np.testing.assert_array_equal(out, values[at.astype("uint16") & mask])


def test_an_index_that_was_cut_counts_as_it_is(run, features):
    """Of a number of 32 bits the lowest 16, of which 13 entries tell all."""
    values, at, out = (
        tir.decl_buffer((n,), d, name) for n, d, name in ((13, "int16", "v"), (32, "uint32", "a"), (32, "int16", "o"))
    )
    i, j = (tir.Var(name, "int32") for name in "ij")
    table, zero = tir.decl_buffer((13,), "int16", "table", scope="shared", layout=None), tir.const(0, "int32")
    fill = tir.For(i, zero, tir.const(13, "int32"), tir.ForKind.SERIAL, STORE(table, LOAD(values, [i]), [i]))
    found = LOAD(table, [prim.Cast("int32", prim.Cast("uint16", LOAD(at, [j])))])
    look = tir.For(j, zero, tir.const(32, "int32"), tir.ForKind.VECTORIZED, STORE(out, found, [j]))
    body = tir.SeqStmt([fill, look])
    launch = LoweredLaunch("tile_main", (values, at, out), (), ((table, 0),), 1024, (), (), body)
    assert "vpermw" in build_object([launch], V4).asm
    rng = np.random.default_rng(0)
    numbers, low = rng.integers(-200, 200, 13).astype("int16"), rng.integers(0, 13, 32)
    given = (low + (rng.integers(0, 2**16, 32) << 16)).astype("uint32")
    got = np.zeros(32, "int16")
    assert run(launch, features, numbers, given, got) == 0
    np.testing.assert_array_equal(got, numbers[low])


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_looked_up_32_at_a_time(dtype):
    asm = build_object([lookup_launch(dtype, 16, "uint16", 15)], V4).asm
    assert "vpermw" in asm
    assert not any(name in asm for name in ("vpermps", "vpermd", "vpmovzxwd", "vpand"))
    for entries, index, features in ((64, "uint16", V4), (16, "uint32", V4), (16, "uint16", V3)):
        assert "vpmovzxwd" in build_object([lookup_launch(dtype, entries, index, entries - 1)], features).asm


def test_codes_of_a_word_are_one_vector():
    """Each loaded word is repeated, shifted by constants and looked up: 32 lanes, though shifts are counted in int32."""

    @T.prim_func
    def kernel(A: T.Tensor((256,), "uint16"), values: T.Tensor((16,), "int16"), B: T.Tensor((1024,), "int16")):
        with T.Kernel(1, threads=1):
            table = T.alloc_shared((16,), "int16")
            T.copy(values, table)
            for v, j in T.Parallel(32, 32):
                code = (A[v * 8 + j // 4] >> T.cast(j % 4 * 4, "uint16")) & T.uint16(15)
                B[v * 32 + j] = table[T.cast(code, "int32")]

    asm = tile_compiler.lower(kernel, parse("cpu -arch=x86-64-v4")).asm()
    assert "vpsrlvw" in asm
    assert "%zmm" in next(line for line in asm.splitlines() if "vpsrlvw" in line)
    assert asm.count("vpinsrw") < 8  # no word is loaded by itself; what converts single float16 has one
    assert "vpgather" not in asm


def repeated_launch(span: int, lanes: int, offset: int) -> LoweredLaunch:
    """out[i, j] = a[i, (j + offset) // span] in vectors of `lanes`."""
    rows, columns = 3, 64
    a = tir.decl_buffer((rows, columns), "float32", "a")
    out = tir.decl_buffer((rows, columns), "float32", "out")
    i, v, j = (tir.Var(name, "int32") for name in "ivj")
    zero, at = tir.const(0, "int32"), v * lanes + j
    store = STORE(out, LOAD(a, [i, prim.FloorDiv(at + offset, tir.const(span, "int32"))]), [i, at])
    body: tir.Stmt = tir.For(j, zero, tir.const(lanes, "int32"), tir.ForKind.VECTORIZED, store)
    for var, count in ((v, columns // lanes), (i, rows)):
        body = tir.For(var, zero, tir.const(count, "int32"), tir.ForKind.SERIAL, body)
    return LoweredLaunch("tile_main", (a, out), (), (), 1024, (), (), body)


@pytest.mark.parametrize(
    ("span", "offset"), [(2, 0), (4, 0), (8, 0), (16, 0), (4, 4), (8, 16), (4, 2), (3, 0), (64, 0)]
)
def test_neighbouring_lanes_that_read_one_element(run, features, span, offset):
    rng = np.random.default_rng(span)
    a, out = rng.standard_normal((3, 64)).astype("float32"), np.zeros((3, 64), "float32")
    assert run(repeated_launch(span, 16, offset), features, a, out) == 0
    np.testing.assert_array_equal(out, a.ravel()[(np.arange(3)[:, None] * 64 + (np.arange(64) + offset) // span)])


def test_they_are_loaded_once():
    for span, offset, repeated in ((4, 0, True), (4, 8, True), (8, 0, True), (4, 2, False), (3, 0, False)):
        asm = build_object([repeated_launch(span, 16, offset)], V4).asm
        assert ("vinsertps" not in asm) == repeated


def pair_kernel(entries: int, mask: int, shift: int, other: int, tables: int = 1) -> Any:
    """B[i] = the table's elements that bits `shift` and up, and `other` and up, of A[i] point to, side by side."""

    def entry(table: Any, word: Any, by: int) -> Any:
        return T.cast(table[T.cast((word >> T.uint32(by)) & T.uint32(mask), "int32")], "uint32")

    @T.prim_func
    def kernel(
        A: T.Tensor((COUNT,), "uint32"), values: T.Tensor((tables, entries), "uint16"), B: T.Tensor((COUNT,), "uint32")
    ):
        with T.Kernel(1, threads=1):
            low, high = (T.alloc_shared((entries,), "uint16") for _ in range(2))
            T.copy(values[0, 0], low)
            T.copy(values[tables - 1, 0], high)
            second = low if tables == 1 else high
            for i in T.Parallel(COUNT):
                B[i] = entry(low, A[i], shift) | (entry(second, A[i], other) << T.uint32(16))

    return kernel


@pytest.mark.parametrize(
    ("entries", "mask", "shift", "other", "tables", "once"),
    [
        (16, 15, 0, 16, 1, True),
        (16, 15, 12, 28, 1, True),
        (4, 3, 6, 22, 1, True),
        (2, 1, 15, 31, 1, True),
        (32, 31, 3, 19, 1, True),
        (64, 63, 3, 19, 1, False),  # too many for a register
        (16, 15, 4, 16, 1, False),  # codes that lie 12 bits apart
        (16, 7, 4, 20, 1, False),  # a table of more than the mask lets through
        (16, 15, 4, 20, 2, False),  # two tables
    ],
)
def test_both_halves_of_a_word_are_looked_up_at_once(entries, mask, shift, other, tables, once):
    rng = np.random.default_rng(shift)
    words = rng.integers(0, 2**32, COUNT, dtype=np.uint32)
    values = rng.integers(0, 2**16, (tables, entries)).astype(np.uint16)
    kernel, out = pair_kernel(entries, mask, shift, other, tables), np.zeros(COUNT, np.uint32)
    tilelang.compile(kernel, target="cpu")(words, values, out)
    expected = values[0][words >> shift & mask] | values[-1][words >> other & mask].astype(np.uint32) << 16
    np.testing.assert_array_equal(out, expected)
    asm = tile_compiler.lower(kernel, parse("cpu -arch=x86-64-v4")).asm()
    assert ("vpermw" in asm) == once
    assert "vpermw" not in tile_compiler.lower(kernel, parse("cpu -arch=x86-64-v3")).asm()


@pytest.mark.parametrize(
    ("through", "words", "once"),
    [("int32", 1, True), ("uint8", 1, True), ("int4", 1, False), ("float32", 1, False), ("int32", 2, False)],
)
def test_indices_of_one_word_that_conversions_keep_are_a_pair(through, words, once):
    """15 as int4 is -1; halves of two words are no pair."""
    table, given = tir.decl_buffer((16,), "uint16", "table"), [tir.Var(f"word_{i}", "uint32") for i in range(words)]

    def entry(word: Any, by: int) -> Any:
        code = prim.RShift(word, tir.const(by, "uint32")) & tir.const(15, "uint32")
        return prim.Cast("uint32", LOAD(table, [prim.Cast("int32", prim.Cast(through, code))]))

    node = entry(given[0], 4) | prim.LShift(entry(given[-1], 20), tir.const(16, "uint32"))
    assert (pair_of_lookups(node) is not None) == once
