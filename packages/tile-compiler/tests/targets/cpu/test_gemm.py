"""`emit_gemm` over element types, shapes with remainders and transposed operands, against float64 and int64."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx as tir

from tile_compiler.targets.cpu.codegen import build_object
from tile_compiler.targets.cpu.features import V3, V4_AMX, V4_BF16_VNNI, CpuFeatures
from tile_compiler.targets.cpu.gemm import GemmSpec, Operand, balanced, choose_instruction, emit_gemm, register_tile
from tile_compiler.targets.cpu.gemm_dots import MOST_BYTES_BESIDE_TILES, dots_of
from tile_compiler.targets.cpu.instructions.multiply_accumulate import FMA_F32, VPMADDWD, of_bytes
from tile_compiler.targets.cpu.instructions.tile_multiply import TileMultiply
from tile_compiler.targets.cpu.lowered import LoweredLaunch
from tilelang.interpreter import numerics
from tilelang.ir.dtypes import DType, dtype_of

ZERO = tir.const(0, "int64")

# A, B, C and the tolerance relative to sum |a| |b| (float32 accumulation; then one rounding to C)
TYPES = [
    ("float32", "float32", "float32", 2e-6),
    ("float64", "float64", "float64", 1e-14),
    ("float16", "float16", "float32", 2e-6),
    ("bfloat16", "bfloat16", "float32", 2e-6),
    ("float8_e4m3fn", "float8_e5m2", "float32", 2e-6),
    ("float16", "float8_e4m3fn", "float32", 2e-6),
    ("float32", "bfloat16", "float32", 2e-6),
    ("float16", "float16", "float16", 1e-3),
    ("bfloat16", "bfloat16", "bfloat16", 8e-3),
    ("int8", "int8", "int32", 0),
    ("uint8", "uint8", "int32", 0),
    ("int8", "uint8", "int32", 0),
    ("uint8", "int8", "int32", 0),
    ("int16", "int16", "int32", 0),
    ("int32", "int32", "int32", 0),
    ("int64", "int64", "int64", 0),
    ("int4", "int4", "int32", 0),
    ("uint8", "int4", "int32", 0),
]
IDS = ["-".join(t[:3]) for t in TYPES]


def matrix(rows: int, cols: int, dtype: DType, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return numerics.convert(rng.standard_normal((rows, cols)), dtype)
    codes = rng.integers(0, 1 << min(dtype.bits, 30), (rows, cols)).astype(numerics.code_dtype(dtype))
    return numerics.from_codes(codes, dtype)


def declare(scratch, rows, cols, dtype, turned):
    """A global matrix, an on-chip tile of it, the copy, and the operand. Sub-byte types come as whole bytes."""
    shape = (cols, rows) if turned else (rows, cols)
    stored = "int8" if dtype_of(dtype).bits < 8 else dtype
    extents = [tir.const(n, "int64") for n in shape]
    outside = tir.decl_buffer(extents, stored, "m")
    tile = scratch(dtype, shape)
    i, j = tir.Var("i", "int64"), tir.Var("j", "int64")
    store = tir.BufferStore(tile, tir.Cast(dtype, tir.BufferLoad(outside, [i, j])), [i, j])
    copy = tir.For(i, ZERO, extents[0], tir.ForKind.SERIAL, tir.For(j, ZERO, extents[1], tir.ForKind.VECTORIZED, store))
    return outside, copy, Operand(tile, (ZERO, ZERO), *((1, 0) if turned else (0, 1)))


def gemm_launch(scratch, types, shape, features, turn_a=False, turn_b=False, steps=2) -> LoweredLaunch:
    """C = sum over steps of A @ B, the first step with a run-time `clear`, then C is written out."""
    m, n, k = shape
    a_out, a_copy, a = declare(scratch, m, k, types[0], turn_a)
    b_out, b_copy, b = declare(scratch, k, n, types[1], turn_b)
    c_out, _, c = declare(scratch, m, n, types[2], False)
    step = tir.Var("step", "int64")
    gemm = emit_gemm(GemmSpec(m, n, k, a, b, c, features, scratch, tir.EQ(step, ZERO)))
    i, j = tir.Var("i", "int64"), tir.Var("j", "int64")
    write = tir.For(j, ZERO, tir.const(n, "int64"), tir.ForKind.SERIAL, tir.BufferStore(c_out, c.at(i, j), [i, j]))
    body = tir.SeqStmt(
        [
            a_copy,
            b_copy,
            tir.For(step, ZERO, tir.const(steps, "int64"), tir.ForKind.SERIAL, gemm),
            tir.For(i, ZERO, tir.const(m, "int64"), tir.ForKind.SERIAL, write),
        ]
    )
    return LoweredLaunch("tile_main", (a_out, b_out, c_out), (), tuple(scratch.placed), scratch.size, (), (), body)


def check(run, scratch, types, shape, features, turn_a=False, turn_b=False):
    m, n, k = shape
    a_type, b_type, c_type = (dtype_of(t) for t in types[:3])
    a, b = matrix(m, k, a_type, 0), matrix(k, n, b_type, 1)
    c = np.zeros((m, n), c_type.as_numpy())
    launch = gemm_launch(scratch, types, shape, features, turn_a, turn_b)
    held = [x.astype(np.int8) if t.bits < 8 else x for x, t in ((a, a_type), (b, b_type))]
    assert (
        run(launch, features, *(np.ascontiguousarray(x.T if t else x) for x, t in zip(held, (turn_a, turn_b))), c) == 0
    )
    wide = np.float64 if c_type.is_float else np.int64
    exact = 2 * (a.astype(wide) @ b.astype(wide))
    if not c_type.is_float:
        np.testing.assert_array_equal(c, exact.astype(c.dtype))
        return
    bound = types[3] * 2 * (np.abs(a.astype(wide)) @ np.abs(b.astype(wide))) + 1e-30
    wrong = np.argwhere(np.abs(c.astype(wide) - exact) > bound)
    assert not len(wrong), f"first wrong element {wrong[0]}: {c[tuple(wrong[0])]} for {exact[tuple(wrong[0])]}"


@pytest.mark.parametrize("types", TYPES, ids=IDS)
@pytest.mark.parametrize(
    "shape", [pytest.param((16, 16, 16), marks=pytest.mark.full), (37, 45, 19), (1, 70, 7)], ids=str
)
def test_types_and_remainders(types, shape, run, scratch, host):
    check(run, scratch, types, shape, host)


@pytest.mark.parametrize("types", TYPES, ids=IDS)
def test_lower_levels(types, run, scratch, features):
    check(run, scratch, types, (19, 37, 11), features, turn_b=True)


@pytest.mark.parametrize("types", [t for t in TYPES if isinstance(choose_instruction(*t[:3], V4_AMX), TileMultiply)])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False)])
def test_tile_registers(types, turned, amx, run, scratch):
    for shape in ((32, 32, 64), (70, 41, 77)):
        check(run, scratch, types, shape, V4_AMX, *turned)


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("types", [TYPES[i] for i in (0, 1, 3, 7)], ids=[IDS[i] for i in (0, 1, 3, 7)])
def test_few_rows_by_a_transposed_matrix(types, bits, run, scratch, monkeypatch):
    """Scalar products along K, of vectors of both widths: rows in one block or several, columns and K with a rest."""
    monkeypatch.setattr(CpuFeatures, "lanes", lambda self, width: bits // width)
    for shape in ((1, 16, 64), (1, 37, 150), (2, 7, 150), (3, 4, 131), (4, 18, 128), (5, 3, 140), (8, 9, 150)):
        assert dots_of(spec_of(shape, types), choose_instruction(*types[:3], V3)) is not None
        check(run, scratch, types, shape, V3, turn_b=True)
    assert dots_of(spec_of((9, 16, 512), types), FMA_F32) is None
    assert dots_of(spec_of((4, 16, 3), types), FMA_F32) is None


@pytest.mark.parametrize(
    "types", [t for t in TYPES if t[2] == "int32" and t[0] != "int32"], ids=lambda t: "-".join(t[:3])
)
def test_few_rows_of_bytes_by_a_transposed_matrix(types, run, scratch, features):
    """Where a level has no quads of them widened as they are loaded, beside tile registers one or two rows; integers of 16 bits
    are not."""
    assert dots_of(spec_of((1, 16, 64), types, V4_BF16_VNNI), VPMADDWD) is (
        None if types[0] == "int16" else of_bytes(types[0] == "uint8", V4_BF16_VNNI)
    )
    for shape in ((1, 16, 64), (1, 37, 150), (3, 4, 131), (5, 3, 166), (8, 9, 256)):
        chosen = choose_instruction(*types[:3], features)
        tiles = isinstance(chosen, TileMultiply) and shape[0] > MOST_BYTES_BESIDE_TILES
        assert dots_of(spec_of(shape, types), chosen) is (None if types[0] == "int16" or tiles else VPMADDWD)
        check(run, scratch, types, shape, features, turn_b=True)
    assert dots_of(spec_of((9, 16, 512), types), VPMADDWD) is None
    assert dots_of(spec_of((4, 16, 63), types), VPMADDWD) is None
    beside = [dots_of(spec_of((m, 16, 512), types), choose_instruction(*types[:3], V4_AMX)) for m in (2, 3)]
    assert beside == ([None] * 2 if types[0] == "int16" else [VPMADDWD, None])


def test_few_rows_of_bfloat16_by_a_transposed_matrix(run, scratch, features):
    """In pairs, where there are instructions for these; K with a rest, odd ones too."""
    for shape in ((1, 16, 64), (3, 37, 151), (16, 4, 530), (13, 9, 512)):
        check(run, scratch, TYPES[3], shape, features, turn_b=True)
    own = choose_instruction(*TYPES[3][:3], V4_BF16_VNNI)
    assert dots_of(spec_of((8, 16, 512), TYPES[3]), own) is own
    assert dots_of(spec_of((17, 16, 2048), TYPES[3]), own) is None
    assert dots_of(spec_of((8, 16, 512), TYPES[3]), choose_instruction(*TYPES[3][:3], V4_AMX)) is None


def spec_of(shape, types, features=V3) -> GemmSpec:
    """The product of a matrix by a transposed one."""
    m, n, k = shape
    a, b, c = (tir.decl_buffer(extents, t, "m") for extents, t in zip(((m, k), (n, k), (m, n)), types))
    operands = (Operand(a, (ZERO, ZERO), 0, 1), Operand(b, (ZERO, ZERO), 1, 0), Operand(c, (ZERO, ZERO), 0, 1))
    return GemmSpec(*shape, *operands, features, lambda dtype, shape: None)


@pytest.mark.parametrize("types", TYPES[:5] + TYPES[9:10] + TYPES[16:17], ids=IDS[:5] + IDS[9:10] + IDS[16:17])
@pytest.mark.parametrize("turns", [(True, False), (False, True), (True, True)], ids=["a", "b", "ab"])
@pytest.mark.parametrize("shape", [(33, 50, 35), (64, 64, 32)], ids=str)
def test_transposed_operands(types, turns, shape, run, scratch, host):
    check(run, scratch, types, shape, host, *turns)


def test_transposed_halves_are_not_copied_element_by_element(scratch):
    """Those taken in pairs are interleaved as B is, for tile registers turned then; those that are converted keep their order."""
    body = str(gemm_launch(scratch, TYPES[3], (64, 64, 64), V4_BF16_VNNI, turn_a=True).body)
    assert body.count("tl.interleave.16.2_16_64_") + body.count("tl.interleave.16.2_16_32_") == 2
    for types in TYPES[2:4]:
        other = type(scratch)()
        gemm_launch(other, types, (48, 64, 80), V3, turn_a=True)
        assert any(tuple(map(int, b.ty.shape)) == (80, 48) and str(b.ty.dtype) == "float32" for b, *_ in other.placed)
    for types, features in ((TYPES[9], V4_BF16_VNNI), (TYPES[3], V4_AMX), (TYPES[9], V4_AMX)):
        launch = gemm_launch(type(scratch)(), types, (40, 64, 80), features, turn_a=True)
        assert str(launch.body).count("tl.transpose.32.16_") == 2  # whole squares and the rest
        assert build_object([launch], features).object


@pytest.mark.parametrize("types", [TYPES[3], *TYPES[9:13], TYPES[17]], ids=[IDS[3], *IDS[9:13], IDS[17]])
@pytest.mark.parametrize("shape", [(33, 49, 86), (80, 16, 134), (5, 70, 64)], ids=str)
def test_whole_steps_of_tile_registers_and_what_is_left(types, shape, run, scratch, host):
    """Edges in all three directions; with AMX each block's shape is loaded before it and the whole one after it."""
    check(run, scratch, types, shape, host)
    launch = gemm_launch(type(scratch)(), types, shape, host)
    assert ("tileloadd" in build_object([launch], host).asm) == (host == V4_AMX)


def test_tile_registers_are_set_up_once_and_left_free(scratch):
    launch = gemm_launch(scratch, TYPES[3], (64, 64, 64), V4_AMX)
    asm = build_object([launch], V4_AMX).asm
    assert (asm.count("\tldtilecfg"), asm.count("\ttilerelease")) == (1, 1)
    assert asm.count("\ttdpbf16ps") == 8  # four in the loop and four after it
    without = gemm_launch(type(scratch)(), TYPES[3], (64, 64, 64), V4_BF16_VNNI)
    assert "ldtilecfg" not in build_object([without], V4_BF16_VNNI).asm


@pytest.mark.parametrize("m", [1, 2, 3, 5, 7, 13, 15, 29])
@pytest.mark.parametrize("n", [1, 16, 33, 130])
def test_every_register_tile(m, n, run, scratch, host):
    check(run, scratch, TYPES[0], (m, n, 9), host)


def test_large_tile(run, scratch, host):
    check(run, scratch, TYPES[0], (512, 512, 512), host)


def test_operands_inside_larger_buffers(run, scratch, host):
    """Origins, an extra leading dimension, and neighbours that must stay untouched."""
    m, n, k = 9, 21, 5
    a_tile, b_tile, c_tile = scratch("float32", (2, 12, 8)), scratch("float32", (8, 40)), scratch("float32", (12, 40))
    one, two = tir.const(1, "int64"), tir.const(2, "int64")
    outside = [tir.decl_buffer(b.ty.shape, "float32", f"g{i}") for i, b in enumerate((a_tile, b_tile, c_tile))]

    def copy(to, source):
        index = [tir.Var(f"i{d}", "int64") for d in range(len(to.ty.shape))]
        body = tir.BufferStore(to, tir.BufferLoad(source, index), index)
        for v, extent in reversed(list(zip(index, to.ty.shape))):
            body = tir.For(v, ZERO, extent, tir.ForKind.SERIAL, body)
        return body

    a, b, c = (
        Operand(a_tile, (one, two, one), 1, 2),
        Operand(b_tile, (two, one), 0, 1),
        Operand(c_tile, (one, two), 0, 1),
    )
    gemm = emit_gemm(GemmSpec(m, n, k, a, b, c, host, scratch, False))
    copies = [copy(t, g) for t, g in zip((a_tile, b_tile, c_tile), outside)]
    body = tir.SeqStmt([*copies, gemm, copy(outside[2], c_tile)])
    launch = LoweredLaunch("tile_main", tuple(outside), (), tuple(scratch.placed), scratch.size, (), (), body)
    arrays = [
        np.random.default_rng(i).standard_normal([int(s) for s in g.ty.shape]).astype("f4")
        for i, g in enumerate(outside)
    ]
    expected = arrays[2].copy()
    expected[1 : 1 + m, 2 : 2 + n] += arrays[0][1, 2 : 2 + m, 1 : 1 + k] @ arrays[1][2 : 2 + k, 1 : 1 + n]
    run(launch, host, *arrays)
    np.testing.assert_allclose(arrays[2], expected, rtol=1e-5, atol=1e-5)


def test_register_tiles():
    tile = lambda features, rows: register_tile(FMA_F32, features, rows, 256)  # noqa: E731
    assert tile(V4_BF16_VNNI, 256) == (14, 2)
    assert tile(V4_AMX, 256) == (6, 4)
    assert tile(V3, 256) == (6, 2)
    assert tile(V4_AMX, 2) == tile(V4_BF16_VNNI, 2) == (2, 8)
    in_tensor = lambda features, rows, columns: register_tile(FMA_F32, features, rows, columns, True)  # noqa: E731
    assert in_tensor(V4_AMX, 8, 96) == (8, 3)
    assert in_tensor(V4_AMX, 8, 64) == in_tensor(V4_AMX, 9, 96) == in_tensor(V4_BF16_VNNI, 8, 96) == (6, 4)


def test_instruction_choice():
    choice = lambda *t: choose_instruction(*t, V4_BF16_VNNI).name  # noqa: E731
    assert choice("bfloat16", "bfloat16", "float32") == "bf16"
    assert choice("uint8", "int8", "int32") == "u8s8"
    assert choice("int8", "int8", "int32") == "s8u8"
    assert choice("float16", "float16", "float16") == "f32"
    assert choose_instruction("bfloat16", "bfloat16", "float32", V3).name == "f32"
    assert choose_instruction("bfloat16", "bfloat16", "bfloat16", V4_AMX).name == "amx_bf16"
    assert choose_instruction("bfloat16", "float32", "float32", V4_AMX).name == "f32"
    assert choose_instruction("bool", "int4", "int32", V4_AMX).name == "amx_u8s8"
    assert choose_instruction("int8", "int8", "int64", V4_AMX).name == "i64"
    assert choose_instruction("int8", "int8", "int32", V3).name == "i16"


@pytest.mark.parametrize("total", range(1, 80))
def test_balanced_blocks_cover_all_rows(total):
    parts = balanced(total, 14)
    assert sum(height * count for height, count in parts) == total
    assert all(height <= 14 for height, _ in parts)
    assert len(parts) <= 2
