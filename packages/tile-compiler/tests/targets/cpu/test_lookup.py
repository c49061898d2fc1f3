"""Small tables are looked up by permutations in registers, larger ones in memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tvm import tirx as tir
from tvm.ir import prim

import tile_compiler
import tilelang.language as T
from tile_compiler.targets.cpu.codegen import build_object
from tile_compiler.targets.cpu.features import V3, V4
from tile_compiler.targets.cpu.lowered import LoweredLaunch
from tilelang.target import parse

LOAD, STORE = tir.BufferLoad, tir.BufferStore
COUNT = 45  # whole vectors and narrower ones


def lookup_launch(dtype: str, entries: int, index: str = "uint8") -> LoweredLaunch:
    """out[i] = table[at[i]], with a copy of the table on chip."""
    values, at, out = (
        tir.decl_buffer((n,), d, name)
        for n, d, name in ((entries, dtype, "values"), (COUNT, index, "at"), (COUNT, dtype, "out"))
    )
    table = tir.decl_buffer((entries,), dtype, "table", scope="shared", layout=None)
    i, j = (tir.Var(name, "int32") for name in "ij")
    zero = tir.const(0, "int32")
    fill = tir.For(i, zero, tir.const(entries, "int32"), tir.ForKind.SERIAL, STORE(table, LOAD(values, [i]), [i]))
    found = LOAD(table, [prim.Cast("int32", LOAD(at, [j]))])
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
