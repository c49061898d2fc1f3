from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tile_runtime.artifact import Artifact
from tile_runtime.cache import Cache
from tile_runtime.device import Device
from tile_runtime.errors import DeviceUnavailable, LoadError
from tile_runtime.manifest import Manifest
from tile_runtime.profiler import do_bench
from tile_runtime_cpu import cpuid
from tile_runtime_cpu.launch import CpuBackend
from tile_runtime_cpu.plugin import DEVICE
from tile_runtime_cpu.profile import hooks, last_level_cache_bytes

Maker = Callable[..., Artifact]


def vector_add_object(folder: Path) -> bytes:
    """C[b, :] = A[b, :] + B[b, :] for blocks b, built as the compiler does: tirx through TVM's LLVM code generator."""
    import tvm
    from tvm import ir
    from tvm import tirx as tir

    def word(value: int) -> Any:
        return tir.const(value, "int64")

    args = tir.Var("args", ir.PointerType(ir.PrimType("int64")))
    dims = tir.Var("dims", ir.PointerType(ir.PrimType("int64")))
    begin, end = tir.Var("begin", "int64"), tir.Var("end", "int64")
    table = tir.decl_buffer((3,), "int64", name="table", data_alignment=8, layout=None)
    block, column = tir.Var("block", "int64"), tir.Var("column", "int64")
    pointers, body = [], []
    for i in range(3):
        pointer = tir.Var(f"p{i}", ir.PointerType(ir.PrimType("float32"), "global"))
        buffer = tir.decl_buffer((word(1 << 40), 64), "float32", name=f"b{i}", data_alignment=4, layout=None)
        load = tir.BufferLoad(table, [word(i)])
        body += [tir.Bind(pointer, tir.reinterpret(pointer.ty, load)), tir.DeclBuffer(buffer, data=pointer)]
        pointers.append(buffer)
    a, b, c = pointers
    total = tir.BufferLoad(a, [block, column]) + tir.BufferLoad(b, [block, column])
    inner = tir.For(column, word(0), word(64), tir.ForKind.VECTORIZED, tir.BufferStore(c, total, [block, column]))
    loop = tir.For(block, begin, end - begin, tir.ForKind.SERIAL, inner)
    body = [tir.DeclBuffer(table, data=args), *body, loop, tir.Return(tir.const(0, "int32"))]
    target = tvm.target.Target({"kind": "llvm"})
    function = tir.PrimFunc([args, dims, begin, end], tir.SeqStmt(body), ret_type=ir.PrimType("int32"))
    function = function.with_attr("global_symbol", "tile_main").with_attr("target", target)
    module = tvm.IRModule({"tile_main": function})
    for lower in (tir.transform.FlattenBuffer(), tir.transform.VectorizeLoop(True), tir.transform.LowerIntrin()):
        module = lower(module)
    built = tvm.get_global_func("target.build.llvm")(module, target)
    built.write_to_file(str(folder / "add.o"), "o")
    return (folder / "add.o").read_bytes()


def rows(name: str, access: str) -> dict[str, Any]:
    return {"name": name, "dtype": "float32", "shape": [["dim", "n"], 64], "access": access}


ADD: dict[str, Any] = {
    "format": 1,
    "name": "add",
    "key": "level two",
    "target": {"kind": "cpu", "arch": "x86-64"},
    "params": [rows("A", "r"), rows("B", "r"), rows("C", "w")],
    "dims": [{"name": "n", "param": "A", "axis": 0}],
    "outputs": ["C"],
    "variants": [
        {
            "launches": [
                {
                    "binary": "add.o",
                    "symbol": "tile_main",
                    "grid": [["dim", "n"], 1, 1],
                    "args": [["param", "A"], ["param", "B"], ["param", "C"]],
                }
            ]
        }
    ],
    "binaries": [{"file": "add.o", "kind": "elf"}],
}

WITHOUT_TVM = """
import sys
import numpy as np
sys.modules["tvm"] = sys.modules["tvm_ffi"] = None  # any import of them fails
from tile_runtime.cache import Cache
from tile_runtime_cpu.plugin import DEVICE
kernel = DEVICE.load(Cache(sys.argv[1], enabled=True).find("level one"))
a = np.ones((1000, 64), np.float32)
assert (kernel(a, a) == 2).all()
assert "torch" not in sys.modules
print("good")
"""


def test_from_tvm_to_a_launch_in_a_process_without_it(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", enabled=True)
    cache.put("level two", Artifact(Manifest.from_json(ADD), {"add.o": vector_add_object(tmp_path)}))
    cache.link("level one", "level two")
    found = cache.find("level one")
    assert found is not None
    kernel = DEVICE.load(found)

    rng = np.random.default_rng(0)
    for n in (1, 7, 5000):
        a, b = rng.standard_normal((2, n, 64), np.float32)
        np.testing.assert_array_equal(kernel(a, b), a + b)
        c = np.empty_like(a)
        assert kernel(a, b, c) is c
        np.testing.assert_array_equal(c, a + b)
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)
        assert torch.equal(kernel(ta, tb), ta + tb)
        run = kernel.prepare(ta, tb)
        assert torch.equal(run(tb, tb), tb + tb)
    assert kernel(np.zeros((0, 64), np.float32), np.zeros((0, 64), np.float32)).shape == (0, 64)

    environment = {"PYTHONPATH": ":".join(sys.path), "TILELANG_CACHE_DIR": str(tmp_path / "other")}
    command = [sys.executable, "-c", WITHOUT_TVM, str(cache.folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("good\n", 0), done.stderr


def test_scalars_reach_the_kernel(artifact: Maker) -> None:
    params = [
        {"name": "out", "dtype": "float64", "shape": [4]},
        {"name": "x", "kind": "scalar", "dtype": "float16"},
        {"name": "n", "kind": "scalar", "dtype": "int8"},
    ]
    kernel = DEVICE.load(artifact("scalars", params))
    out = np.zeros(4)
    kernel(out, 1.5, 2)
    np.testing.assert_allclose(out, [1.5, 2.0, 2.25, np.exp(4.0)], rtol=1e-6)


def test_workspaces_are_aligned_and_zero_where_asked(artifact: Maker) -> None:
    backend = CpuBackend(artifact("nothing", []).manifest, None)  # type: ignore[arg-type]
    for align in (1, 64, 4096):
        keep, address = backend.workspace(100, True, align)
        assert address % align == 0
        assert not np.asarray(keep).any()
    space = [{"bytes": ["*", ["dim", "n"], 8], "zero": True, "align": 64}]
    params = [{"name": "A", "dtype": "int8", "shape": [["dim", "n"]], "access": "r"}]
    dims = [{"name": "n", "param": "A", "axis": 0}]
    args = [["workspace", 0], ["dim", "n"]]
    DEVICE.load(artifact("fill", params, grid=["dim", "n"], args=args, dims=dims, workspace=space))(
        np.zeros(9, np.int8)
    )


PRINTED = [{"msg": "unused", "dtype": "int8"}, {"msg": "x", "dtype": "float32", "shape": [2, 2]}]
FOUR = [{"name": "A", "dtype": "float32", "shape": [4], "access": "r"}]


def test_prints(artifact: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    DEVICE.load(artifact("prints", FOUR, prints=PRINTED))(np.arange(4, dtype=np.float32))
    assert capsys.readouterr().out == "msg='x' dtype=float32 shape=(2, 2):\n[[0. 1.]\n [2. 3.]]\n"
    DEVICE.load(artifact("prints", FOUR))(np.arange(4, dtype=np.float32))
    assert "print site 1: 4 elements of dtype ?" in capsys.readouterr().out


def test_prints_from_worker_threads(artifact: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = DEVICE.load(artifact("prints", FOUR, grid=64, prints=[{"site": 1, "msg": "y", "dtype": "float32"}]))
    kernel(np.arange(4, dtype=np.float32))
    printed = capsys.readouterr().out.count("msg='y' dtype=float32 shape=(4,):\n[0. 1. 2. 3.]")
    assert 1 <= printed <= 64  # once a range of blocks


def test_a_print_with_its_block() -> None:
    import ctypes

    from tile_runtime_cpu.prints import format_site

    data = np.array([1, 2, 3], np.int64).tobytes() + np.float64(2.5).tobytes()
    buffer = ctypes.create_string_buffer(data, len(data))
    text = format_site({"msg": "z", "dtype": "float64", "block": True}, 0, ctypes.addressof(buffer), 1)
    assert text == "msg='z' BlockIdx=(1, 2, 3) dtype=float64: 2.5"


def test_code_for_another_cpu_is_not_loaded(artifact: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpuid, "features", lambda: frozenset(cpuid.LEVELS["x86-64-v2"]))
    target = {"kind": "cpu", "arch": "x86-64-v3", "features": ["avx512bf16"]}
    with pytest.raises(
        DeviceUnavailable, match=r"TLR005: nothing was compiled for x86-64-v3.*\(x86-64-v2\) lacks avx, avx2"
    ):
        DEVICE.load(artifact("nothing", [], target=target))


def test_artifacts_of_other_kinds_are_refused(artifact: Maker) -> None:
    with pytest.raises(LoadError, match="was compiled for cuda, not for the CPU"):
        DEVICE.load(artifact("nothing", [], target={"kind": "cuda", "arch": "sm_90a"}))
    with pytest.raises(LoadError, match=r"kernels\.o is of kind cubin"):
        DEVICE.load(artifact("nothing", [], binaries=[{"file": "kernels.o", "kind": "cubin"}]))
    with pytest.raises(LoadError, match="no object defines the symbol 'missing'"):
        DEVICE.load(artifact("missing", []))
    params = [{"name": "A", "kind": "tensor", "dtype": "float32", "shape": [64]}]
    mapping = {"param": "A", "dtype": "float32", "box": [32]}
    with pytest.raises(LoadError, match="knows no tensor maps"):
        DEVICE.load(artifact("nothing", params, args=[["tensormap", 0]], tensormaps=[mapping]))


def test_the_device_contract() -> None:
    assert isinstance(DEVICE, Device)
    assert DEVICE.is_available()
    assert DEVICE.arch() == cpuid.level()
    facts = DEVICE.describe()
    assert facts["arch"] == cpuid.level()
    assert {"threads", "pool", "features"} <= set(facts)


def test_profiling(artifact: Maker, tmp_path: Path) -> None:
    assert hooks().cache_bytes >= 1 << 18
    assert last_level_cache_bytes(tmp_path) == 32 << 20
    kernel = DEVICE.load(artifact("nothing", []))
    assert 0 < do_bench(kernel, DEVICE.profile_hooks(), warmup=0.1, rep=1) < 5
