"""Printed kernels compile to cubins by NVRTC, with neither a GPU nor a driver, within their resources."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tvm import tirx as tir
from tvm.tirx import Bind, BufferStore, DeclBuffer, IfThenElse, SeqStmt

import tilelang.language as T
from tile_compiler.cfamily.dialect import CUDA
from tile_compiler.cfamily.printer import print_source
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.signature import signature_of
from tile_compiler.targets import registry as targets
from tile_compiler.targets.cuda.arch import cuda_arch
from tile_compiler.targets.cuda.plugin import TARGET, headers
from tile_runtime import registry
from tile_runtime.artifact import Artifact
from tile_runtime.manifest import Manifest
from tilelang.errors import UnknownTarget
from tilelang.ir import tile_ir
from tilelang.target import Target

from . import simt_kernels as simt
from .simt_kernels import Load, at, buffer, call, do, local, number, row, shared, var

ARCHS = ["sm_80", "sm_89", "sm_90a"]
device: Any = registry.device("cuda")


@pytest.mark.parametrize("arch", ["sm_75", *ARCHS])
@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 4), ("float16", 8), ("bfloat16", 2)])
def test_vector_add(arch: str, dtype: str, lanes: int) -> None:
    built = device.build(print_source([simt.vector_add(var("n"), dtype, lanes)], CUDA), arch=arch, headers=headers())
    assert built.data[:4] == b"\x7fELF"
    used = built.resources["add_kernel"]
    assert used["registers"] <= 32
    assert used["spills"] == used["stack"] == used["shared"] == 0


@pytest.mark.parametrize("arch", ARCHS)
def test_gemm(arch: str) -> None:
    kernel, shared_bytes = simt.gemm()
    used = device.build(print_source([kernel], CUDA), arch=arch, headers=headers()).resources["gemm_kernel"]
    assert used["registers"] <= 232
    assert used["spills"] == used["stack"] == 0
    assert shared_bytes <= cuda_arch(arch).shared_per_block
    assert cuda_arch(arch).occupancy(128, used["registers"], shared_bytes) >= 2


def test_every_construct_is_accepted() -> None:
    """What the golden texts of test_printer.py show one by one, compiled at once."""
    i, j, n, f, h = var("i"), var("j"), var("n"), var("f", "float32"), var("h", "float16")
    out, ints = buffer("out", (64,)), buffer("ints", (64,), "int32")
    s, words = buffer("S", (128,), "float16", "shared.dyn"), buffer("words", (64,), "uint32", "shared.dyn")
    frag, tiny = local("frag", 4), local("tiny", 1)
    old, pair = var("old", "int32"), var("pair", "float16x2")
    zero = tir.Broadcast(tir.FloatImm("float32", 0.0), 4)
    values = [
        tir.floordiv(i, j), tir.floormod(i, number(3)), i << j, tir.Cast("int32", f), tir.Cast("int32", tir.Cast("int8", f)),
        tir.popcount(i), tir.clz(i), tir.reinterpret("int32", f), tir.Cast("int32", h), tir.const(-(2**31), "int32") + i,
        tir.reinterpret("int32", pair), tir.Cast("int32", tir.isnan(f)), tir.Min(i, j), tir.abs(i),
    ]  # fmt: skip
    floats = [
        tir.exp(f), tir.exp2(f), tir.sigmoid(f), tir.rsqrt(f), tir.pow(f, f), tir.erf(f), tir.Max(f, f), tir.tanh(f),
        tir.Cast("float32", tir.exp(h) + h * tir.FloatImm("float16", 0.5)), tir.FloatImm("float32", float("-inf")),
        tir.Cast("float32", tir.Cast("float8_e4m3fn", f)), tir.Cast("float32", tir.Cast("bfloat16", f)), tir.log1p(f),
        tir.FloatImm("float32", float("nan")), tir.Cast("float32", tir.Cast("float64", f)), tir.floor(f), tir.nearbyint(f),
    ]  # fmt: skip
    body = SeqStmt(
        [
            shared(s, 128),
            DeclBuffer(words, data=tir.buffer_data(s)),
            tir.AllocBuffer(frag),
            tir.AllocBuffer(tiny),
            Bind(pair, tir.Broadcast(h, 2)),
            Bind(old, call("tl::atomic_add", at(ints, i), number(1), dtype="int32")),
            *(BufferStore(ints, v + old, [number(k)]) for k, v in enumerate(values)),
            *(BufferStore(out, v, [number(k)]) for k, v in enumerate(floats)),
            BufferStore(frag, tir.if_then_else(i < n, Load(out, [row(i * 4, 4)]), zero), [row(number(0), 4)]),
            BufferStore(
                frag, Load(frag, [row(number(0), 4)]) * tir.Broadcast(Load(frag, [number(0)]), 4), [row(number(0), 4)]
            ),
            do("tl::atomic_add_x4", at(out, i * 4), Load(frag, [row(number(0), 4)])),
            BufferStore(tiny, f, [number(0)]),
            BufferStore(words, tir.Cast("uint32", i), [i]),
            do("tl::sync_threads"),
            IfThenElse(
                i < j, BufferStore(out, Load(tiny, [number(0)]) + tir.Cast("float32", Load(words, [i])), [i]), None
            ),
            do("tl::device_assert", i < 64, number(1)),
        ]
    )
    text = print_source([simt.kernel(body, [out, ints], [i, j, n, f, h])], CUDA)
    device.build(text, arch="sm_89", headers=headers())


def simt_function() -> tir.PrimFunc:
    """A whole function as lowering leaves it: `add(A[n], B[n], C[n])`."""
    made = simt.vector_add(var("n"))
    kernel = tile_ir.Kernel(0, made.grid, made.threads, made.body)
    func = tir.PrimFunc([*made.params, *made.scalars], kernel.to_stmt())
    return func.with_attr("global_symbol", "add").with_attr("tl.outputs", [2])


@pytest.mark.parametrize("arch", ARCHS)
def test_target_builds_an_artifact_that_a_runtime_can_read(arch: str) -> None:
    func = simt_function()
    signature, ctx = signature_of(func, func), TARGET.context(Target("cuda", arch), None)
    built = TARGET.build(func, signature, ctx)
    assert built.target == {"kind": "cuda", "arch": arch, "features": []}
    (launch,) = built.launches.values()
    assert launch["symbol"] == "add_kernel"
    assert (launch["block"], launch["shared"]) == ([128, 1, 1], 0)
    assert launch["args"] == [["param", "A"], ["param", "B"], ["param", "C"], ["value", "int32", ["dim", "n"]]]
    assert "registers" in ctx.report.notes[0][1]
    grid = [signature.expression(e) for _, e in tile_ir.kernels(func)[0].grid]
    manifest = {
        "format": 1,
        "name": "add",
        "target": built.target,
        **signature.call,
        "variants": [{"guard": None, "launches": [{**launch, "grid": [*grid, 1, 1][:3]}]}],
        "binaries": [{"file": name, "kind": kind} for name, kind, _ in built.binaries],
        "source": "kernel.cu",
    }
    artifact = Artifact(Manifest.from_json(json.loads(json.dumps(manifest))), {n: c for n, _, c in built.binaries})
    again = Artifact.from_bytes(artifact.to_bytes())
    assert "add_kernel(" in str(again.source)
    assert again.read("kernel.cubin")[:4] == b"\x7fELF"


@T.prim_func
def scaled_sum(A: T.Tensor((1000,), "float32"), B: T.Tensor((1000,), "float32"), C: T.Tensor((1000,), "float32")):
    with T.Kernel(T.ceildiv(1000, 512), threads=128) as bx:
        for i in T.Parallel(512):
            C[bx * 512 + i] = A[bx * 512 + i] * 2.0 + B[bx * 512 + i]


def test_a_kernel_of_the_language_goes_all_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(targets.OWN, "cuda", "tile_compiler.targets.cuda.plugin:TARGET")
    artifact = TARGET.compile(scaled_sum, target=SimpleNamespace(kind="cuda", arch="sm_80"))
    assert artifact.manifest.target.arch == "sm_80"
    assert artifact.read("kernel.cubin")[:4] == b"\x7fELF"
    text = artifact.read("kernel.cu").decode()
    assert "scaled_sum_kernel(" in text
    assert "tl::vec<float, 4>" in text


def test_too_much_shared_memory_is_an_error_before_the_compiler_runs() -> None:
    big = buffer("big", (1 << 17,), "float32", "shared.dyn")
    out = buffer("out", (1,))
    made = SeqStmt([shared(big, 0), BufferStore(out, Load(big, [number(0)]), [number(0)])])
    kernel = tile_ir.Kernel(0, ((var("bx"), number(1)),), ((var("tx"), number(32)),), made)
    func = tir.PrimFunc([out], kernel.to_stmt()).with_attr("global_symbol", "big")
    with pytest.raises(UnsupportedOnTarget, match=r"needs 524288 bytes of shared memory(.|\n)*at most 101376"):
        TARGET.build(func, signature_of(func, func), TARGET.context(Target("cuda", "sm_89"), None))


@pytest.mark.parametrize(
    ("name", "said"),
    [("sm_70", "is too old: CUDA 13 builds for sm_75"), ("sm_42x", "is not known"), ("gfx942", "is not known")],
)
def test_unknown_architectures(name: str, said: str) -> None:
    with pytest.raises(UnknownTarget, match=said):
        cuda_arch(name)


def test_occupancy_of_known_kernels() -> None:
    assert cuda_arch("sm_80").occupancy(128, 128, 0) == 4  # registers: 65536 / (128 * 128)
    assert cuda_arch("sm_80").occupancy(256, 32, 40 << 10) == 4  # shared memory: 164 KiB / 41 KiB
    assert cuda_arch("sm_75").occupancy(1024, 32, 0) == 1  # threads
