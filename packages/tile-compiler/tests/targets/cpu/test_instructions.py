"""Each declared instruction: what LLVM makes of its text computes its meaning."""

from __future__ import annotations

import ctypes
import dataclasses

import ml_dtypes
import numpy as np
import pytest
import tile_registers
import tvm

import tile_compiler
import tilelang
import tilelang.language as T
from tile_compiler.targets.cpu.features import V3, V4, V4_AMX, V4_BF16_VNNI, CpuFeatures, host_features
from tile_compiler.targets.cpu.instructions.multiply_accumulate import ALL, MultiplyAccumulate
from tile_compiler.targets.cpu.instructions.tile_multiply import TILES, TileShape
from tile_compiler.targets.cpu.library import function_text
from tile_compiler.targets.cpu.llvm_text import Function, vector
from tile_compiler.targets.cpu.tile_kernels import CONFIGURE, RELEASE, TileKernel
from tile_runtime_cpu.elf import Image
from tilelang.interpreter import numerics
from tilelang.ir.dtypes import dtype_of
from tilelang.target import parse


def build(op: MultiplyAccumulate, features: CpuFeatures, folder) -> tuple[Image, str]:
    """`void step(acc, a, b)` on pointers: one instruction."""
    lanes = op.lanes(features)
    f = Function("step", "void", [("acc", "ptr"), ("a", "ptr"), ("b", "ptr")], inline=False)
    acc_at, a_at, b_at = f.args
    acc_type, unit = vector(op.acc_type, lanes), vector(op.unit_type, lanes)
    a = f.splat(f.load(op.unit_type, a_at, 1), lanes)
    f.store(op.write(f, f.load(acc_type, acc_at, 1), a, f.load(unit, b_at, 1)), acc_at, 1)
    f.ret()
    return compiled("\n".join([*f.declarations(), f.text().replace("internal ", "")]), features, folder)


def compiled(functions: str, features: CpuFeatures, folder) -> tuple[Image, str]:
    target = features.target()
    flags = str(tvm.target.Target(target)).replace('"', "\\22")
    text = "\n".join(
        [
            f'target triple = "{target["mtriple"]}"',
            functions,
            "!llvm.module.flags = !{!0}",
            f'!0 = !{{i32 2, !"tvm_target", !"{flags}"}}',
        ]
    )
    (folder / "step.ll").write_text(text)
    module = tvm.runtime.load_module(str(folder / "step.ll"))
    module.write_to_file(str(folder / "step.o"), "o")
    return Image([("step", (folder / "step.o").read_bytes())]), module.inspect_source("asm")


@pytest.mark.parametrize("name", ALL)
def test_instruction_computes_its_meaning(name, features, tmp_path):
    op = ALL[name]
    if not op.available(features):
        pytest.skip(f"needs {op.extra}")
    image, asm = build(op, features, tmp_path)
    if " + " not in op.text and not (name == "i16" and features.vnni):  # there LLVM makes one vpdpwssd of both
        assert op.text[:7] in asm  # of vfmadd213, vfmadd231 LLVM takes which it likes
    rng, lanes = np.random.default_rng(0), op.lanes(features)

    def values(dtype, shape):
        kind = dtype_of(dtype)
        if kind.is_float:
            return numerics.convert(rng.standard_normal(shape), kind)
        return rng.integers(*((0, 256) if dtype == "uint8" else (-128, 128)), shape).astype(kind.as_numpy())

    acc, a, b = values(op.acc, lanes), values(op.a, op.group), values(op.b, (lanes, op.group))
    expected = op.meaning(acc, a, b)
    step = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(image.address("step"))
    step(acc.ctypes.data, a.ctypes.data, b.ctypes.data)
    np.testing.assert_allclose(
        acc, expected, rtol=1e-5 if op.acc == "float32" else 1e-14, atol=1e-6 if op.acc == "float32" else 0
    )


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("features", [V3, V4], ids=["v3", "v4"])
def test_declaration_in_the_form_of_all_targets(name, features):
    """A row times a matrix, each element held once; the same meaning on whole matrices."""
    op, rng = ALL[name], np.random.default_rng(1)
    lanes = op.lanes(features)
    declared = op.declaration(lanes)
    assert (declared.m, declared.n, declared.k) == (1, lanes, op.group)
    assert declared.runs_on("x86-64-v4")
    assert not declared.runs_on("sm_90")
    kinds = [dtype_of(t).as_numpy() for t in (op.acc, op.a, op.b)]
    c, a, b = (rng.integers(0, 9, s).astype(k) for s, k in zip(((1, lanes), (1, op.group), (op.group, lanes)), kinds))
    np.testing.assert_array_equal(declared.compute(c, a, b), (c + a.astype("f8") @ b.astype("f8")).astype(kinds[0]))


@pytest.mark.parametrize("name", TILES)
def test_tile_instruction_computes_its_meaning(name, host, tmp_path):
    """Everywhere its text assembles; its result is compared, by `tile_registers` where the machine has none."""
    op, declared, rng = TILES[name], TILES[name].declaration(), np.random.default_rng(2)
    kernel = TileKernel(name, TileShape(16, 16, 16), 64, 64, 64).name
    entry = f"""define void @step(ptr %c, ptr %a, ptr %b) {{
      call void @{CONFIGURE}()
      call void @{kernel}(ptr %a, ptr %b, ptr %c, i64 1, i32 0)
      call void @{RELEASE}()
      ret void
    }}"""
    text = function_text({kernel, CONFIGURE, RELEASE}, "") + entry
    image, asm = compiled(text, V4_AMX, tmp_path)
    assert asm.count(f"\t{op.text}\t") == 2  # in the loop and after it
    assert op.available(host) == (host == V4_AMX)
    assert not declared.runs_on("x86-64-v3")
    kinds = [dtype_of(t).as_numpy() for t in (op.acc, op.a, op.b)]
    depth = declared.k
    c, a, b = (
        rng.integers(-9 * (k.kind != "u"), 99, s).astype(k)
        for s, k in zip(((16, 16), (16, depth), (depth, 16)), map(np.dtype, kinds))
    )
    expected = declared.compute(c, a, b)
    np.testing.assert_array_equal(expected, (c + a.astype("f8") @ b.astype("f8")).astype(kinds[0]))
    if not op.available(host):
        image, _ = compiled(tile_registers.in_python(text), V3, tmp_path)
    packed = np.ascontiguousarray(b.reshape(16, op.group, 16).swapaxes(1, 2))
    step = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(image.address("step"))
    step(c.ctypes.data, a.ctypes.data, packed.ctypes.data)
    np.testing.assert_array_equal(c, expected)


def test_shapes_of_tile_registers():
    whole = TileShape().configuration()
    assert (whole[0], list(whole[48:56]), list(whole[16:32:2])) == (1, [16] * 8, [64] * 8)
    edge = TileShape(17, 20, 3)
    held = edge.configuration()
    assert list(held[48:56]) == [16, 16, 1, 1, 16, 1, 3, 3]
    assert list(held[16:32:2]) == [64, 16, 64, 16, 12, 12, 64, 16]
    assert TileShape(16, 32).full
    assert not edge.full


def test_declarations_check_themselves():
    with pytest.raises(ValueError, match="do not fill"):
        dataclasses.replace(TILES["amx_s8s8"], group=2)
    with pytest.raises(ValueError, match="do not fill"):
        dataclasses.replace(ALL["bf16"], group=4)


def test_levels_and_needs():
    assert not ALL["bf16"].available(V4)
    assert ALL["f32"].available(V3)
    assert ALL["f32"].lanes(V4) == 16
    assert ALL["f64"].lanes(V3) == 4


@pytest.mark.parametrize(("dtype", "kind"), [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)])
def test_dot2_by_level(dtype, kind):
    """By the instruction where there is one, in vectors of all widths; by two products elsewhere."""
    count = 45

    @T.prim_func
    def kernel(
        A: T.Tensor((count,), "uint32"),
        B: T.Tensor((count,), "uint32"),
        C: T.Tensor((count,), "float32"),
        D: T.Tensor((count,), "float32"),
    ):
        with T.Kernel(1, threads=1):
            for i in T.Parallel(count):
                D[i] = T.dot2(A[i], B[i], C[i], dtype=dtype)

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((count, 2)).astype(kind) for _ in "ab")
    c = rng.standard_normal(count).astype(np.float32)
    expected = c + (a.astype(np.float64) * b.astype(np.float64)).sum(-1)
    here = host_features()
    for level in (V3, V4, V4_BF16_VNNI):
        name = level.level + ("+bf16+vnni" if level.bf16 else "")
        asm = tile_compiler.lower(kernel, parse(f"cpu -arch={name}")).asm()
        found = [line for line in asm.splitlines() if "vdpbf16ps" in line]
        assert bool(found) == (level.bf16 and dtype == "bfloat16")
        assert not found or all(any(f"%{part}mm" in line for line in found) for part in "xyz")
        if level.vector_bits <= here.vector_bits and (here.bf16 or not level.bf16):
            out = np.zeros(count, np.float32)
            tilelang.compile(kernel, target=parse(f"cpu -arch={name}"))(a.view("u4")[:, 0], b.view("u4")[:, 0], c, out)
            np.testing.assert_allclose(out, expected, rtol=2e-6, atol=2e-6)
