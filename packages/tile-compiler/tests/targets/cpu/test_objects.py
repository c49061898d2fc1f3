"""What is in an object: symbols, imports, size; several launches in one."""

from __future__ import annotations

import pytest
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.targets.cpu.codegen import build_object
from tile_compiler.targets.cpu.features import V3, V4, CpuFeatures
from tile_compiler.targets.cpu.lowered import LoweredLaunch
from tile_runtime.elf_object import UNDEFINED, parse
from tile_runtime_cpu.elf import Image
from tile_runtime_cpu.imports import IMPORTS


def copy_launch(symbol: str, function, dtype: str = "float32", count: int = 256) -> LoweredLaunch:
    a, b = tir.decl_buffer((count,), dtype, "a"), tir.decl_buffer((count,), dtype, "b")
    i = tir.Var("i", "int32")
    store = tir.BufferStore(b, function(tir.BufferLoad(a, [i])), [i])
    body = tir.For(i, tir.const(0, "int32"), tir.const(count, "int32"), tir.ForKind.VECTORIZED, store)
    return LoweredLaunch(symbol, (a, b), (), (), 0, (), (), body)


def undefined(data: bytes) -> set[str]:
    return {s.name for s in parse("k", data).symbols if s.section == UNDEFINED and s.name}


@pytest.mark.parametrize("features", [V3, V4])
def test_objects_import_only_what_the_runtime_gives(features):
    functions = ["exp", "tanh", "sin", "erf", "log1p", "tan", "sinh", "asin", "sigmoid", "rsqrt", "round"]
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        launches = [copy_launch(f"f_{n}", getattr(tir, n), dtype) for n in functions]
        data = build_object(launches, features).object
        assert undefined(data) <= IMPORTS
        Image([("k", data)])


def test_conversions_import_nothing_but_memory_functions():
    for dtype in ("float16", "bfloat16", "float8_e4m3fn", "int4"):
        for wide in ("float64", "float32", "int64"):
            data = build_object([copy_launch("f", lambda x: prim.Cast(dtype, prim.Cast(wide, x)), dtype)], V3).object
            assert undefined(data) <= {"memcpy", "memmove", "memset"}


def test_launches_share_helpers_and_keep_their_symbols():
    built = build_object([copy_launch("first", tir.exp), copy_launch("second", tir.exp)], V4)
    assert built.symbols == ("first", "second")
    image = Image([("k", built.object)])
    assert image.address("first") != image.address("second")
    assert "expf" not in undefined(built.object)
    assert "vfmadd" in built.asm
    assert "fma" in built.llvm_ir


def test_vector_width_follows_the_level():
    assert "%zmm" in build_object([copy_launch("f", tir.exp)], V4).asm
    assert "%zmm" not in build_object([copy_launch("f", tir.exp)], V3).asm


def test_feature_levels_are_checked():
    with pytest.raises(ValueError, match="unknown CPU level"):
        CpuFeatures("znver4")
    with pytest.raises(ValueError, match="need x86-64-v4"):
        CpuFeatures("x86-64-v3", ("avx512bf16",))


def test_scratch_offsets_are_aligned():
    buffer = tir.decl_buffer((4,), "float32", "s", scope="shared")
    with pytest.raises(ValueError, match="multiple of 64"):
        LoweredLaunch("f", (), (), ((buffer, 32),), 64, (), (), tir.Evaluate(0))
