"""Each declared instruction: what LLVM makes of its text computes its meaning."""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np
import pytest
import tvm

from tile_compiler.targets.cpu.features import V3, V4, CpuFeatures
from tile_compiler.targets.cpu.instructions.multiply_accumulate import ALL, MultiplyAccumulate
from tile_compiler.targets.cpu.llvm_text import Function, vector
from tile_runtime_cpu.elf import Image
from tilelang.interpreter import numerics
from tilelang.ir.dtypes import dtype_of


def build(op: MultiplyAccumulate, features: CpuFeatures, folder) -> tuple[Image, str]:
    """`void step(acc, a, b)` on pointers: one instruction."""
    lanes = op.lanes(features)
    f = Function("step", "void", [("acc", "ptr"), ("a", "ptr"), ("b", "ptr")], inline=False)
    acc_at, a_at, b_at = f.args
    acc_type, unit = vector(op.acc_type, lanes), vector(op.unit_type, lanes)
    a = f.splat(f.load(op.unit_type, a_at, 1), lanes)
    f.store(op.write(f, f.load(acc_type, acc_at, 1), a, f.load(unit, b_at, 1)), acc_at, 1)
    f.ret()
    target = features.target()
    flags = str(tvm.target.Target(target)).replace('"', "\\22")
    text = "\n".join(
        [
            f'target triple = "{target["mtriple"]}"',
            *f.declarations(),
            f.text().replace("internal ", ""),
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


def test_declarations_check_themselves():
    with pytest.raises(ValueError, match="do not fill"):
        dataclasses.replace(ALL["bf16"], group=4)


def test_levels_and_needs():
    assert not ALL["bf16"].available(V4)
    assert ALL["f32"].available(V3)
    assert ALL["f32"].lanes(V4) == 16
    assert ALL["f64"].lanes(V3) == 4
