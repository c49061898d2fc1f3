"""Every conversion between element types against the definition (tilelang.interpreter.numerics)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.targets.cpu.codegen import build_object
from tile_compiler.targets.cpu.features import V3, V4_BF16_VNNI
from tile_compiler.targets.cpu.lowered import LoweredLaunch
from tilelang.interpreter import numerics
from tilelang.ir.dtypes import DType, dtype_of

NAMES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("int4", "uint4", "int2", "uint2", "int1", "uint1"),
    *("float16", "bfloat16", "float32", "float64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"),
]


def samples(dtype: DType) -> np.ndarray:
    """Every code of types up to 16 bits; edges, random values and near-ties of the others."""
    rng = np.random.default_rng(1)
    if dtype.kind == "bool":
        return np.array([False, True] * 24)
    if dtype.bits <= 16:
        codes = np.arange(1 << dtype.bits, dtype=numerics.code_dtype(dtype))
        return numerics.from_codes(np.resize(codes, max(48, len(codes))), dtype)
    if dtype.is_float:
        small = np.concatenate([numerics.from_codes(np.arange(256, dtype=np.uint8), dtype_of(n)).astype(np.float64)
                                for n in NAMES if n.startswith("float8")])  # fmt: skip
        small = small[np.isfinite(small)]
        ties = (small[:-1] + small[1:]) / 2
        near = np.concatenate([small, ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)])
        scaled = rng.standard_normal(4000) * 10.0 ** rng.integers(-45, 40, 4000)
        edges = [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            127.5,
            128,
            -128.5,
            255.9,
            2.0**31,
            -(2.0**31),
            2.0**63,
            2.0**64,
            65519,
            65520,
        ]
        integers = rng.integers(-300, 300, 500) + rng.choice([0.0, 0.25, 0.5, 0.75], 500)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.concatenate([near, scaled, edges, integers]).astype(dtype.as_numpy())
    info = np.iinfo(dtype.as_numpy())
    edges = np.array([info.min, info.max, 0, 1, 2**24 + 1, 2**25 + 2, 65519, 65520], dtype=dtype.as_numpy())
    shifted = rng.integers(info.min, info.max, 1000, dtype=dtype.as_numpy()) >> rng.integers(
        0, dtype.bits, 1000
    ).astype(dtype.as_numpy())
    return np.concatenate([edges, shifted])


def same(actual: np.ndarray, expected: np.ndarray, dtype: DType) -> np.ndarray:
    if not dtype.is_float:
        return actual == expected
    a, b = (numerics.to_codes(x, dtype).astype(np.int64) for x in (actual, expected))
    nan = np.isnan(numerics.widen(expected)) & np.isnan(numerics.widen(actual))
    return (a == b) | nan


@pytest.mark.parametrize("target", NAMES)
def test_conversions_to_follow_the_definition(target, elementwise, host):
    """All sources at once would be one huge function; one object per pair is small and builds in 20 ms."""
    wanted = dtype_of(target)
    for source in NAMES:
        if source == target:
            continue
        x = samples(dtype_of(source))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = numerics.convert(x, wanted)
        got = elementwise(lambda v: prim.Cast(target, v), [x], [source], target, host)
        ok = same(got, expected, wanted)
        assert ok.all(), f"{source} -> {target}: {x[~ok][:5]} gave {got[~ok][:5]}, expected {expected[~ok][:5]}"


@pytest.mark.parametrize("target", ["bfloat16", "float8_e4m3fn", "float4_e2m1fn", "int4", "float16"])
def test_scalar_code_and_other_levels_agree(target, elementwise, features):
    x = samples(dtype_of("float32"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = numerics.convert(x, dtype_of(target))
    for vector in (True, False):
        got = elementwise(lambda v: prim.Cast(target, v), [x], ["float32"], target, features, vector=vector)
        ok = same(got, expected, dtype_of(target))
        assert ok.all(), (vector, x[~ok][:5], got[~ok][:5], expected[~ok][:5])


@pytest.mark.parametrize(
    ("features", "lanes", "native"), [(V3, 8, False), (V4_BF16_VNNI, 16, True), (V4_BF16_VNNI, 4, False)]
)
def test_bfloat16_is_rounded_by_an_instruction_where_there_is_one(features, lanes, native):
    """But for vectors that have denormals, which it takes for zeros: `samples` has vectors with and without."""
    x, out = tir.decl_buffer((lanes,), "float32", "x"), tir.decl_buffer((lanes,), "bfloat16", "out")
    i = tir.Var("i", "int32")
    store = tir.BufferStore(out, prim.Cast("bfloat16", tir.BufferLoad(x, [i])), [i])
    loop = tir.For(i, tir.const(0, "int32"), tir.const(lanes, "int32"), tir.ForKind.VECTORIZED, store)
    asm = build_object([LoweredLaunch("tile_main", (x, out), (), (), 64, (), (), loop)], features).asm
    assert ("vcvtneps2bf16" in asm) == native
    assert ("vfpclassps" in asm) == native
