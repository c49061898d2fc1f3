"""What a kernel says of its code on the device, and functions of the user that rewrite its text."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_runtime_cuda.build import BuildError
from tilelang.errors import InvalidArgument

AMPERE = "cuda -arch=sm_80"


def doubled(name: str = "doubled") -> Any:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            t = T.get_thread_binding()
            B[t] = A[t] * 2

    return main.with_attr("global_symbol", name)


@pytest.fixture(scope="module")
def kernel() -> Any:
    return tilelang.compile(doubled(), target=AMPERE)


def test_registers_and_threads(kernel):
    (usage,) = kernel.resource_usage.values()
    assert kernel.n_regs == usage["registers"] > 0
    assert kernel.n_spills == usage["spills"] == 0
    assert kernel.n_max_threads == usage["threads"] == 64
    assert usage["occupancy"]["blocks"] > 0


def test_ptx_as_text_printed_and_in_a_file(kernel, tmp_path, capsys):
    text = kernel.get_ptx()
    assert ".target sm_80" in text
    assert ".entry doubled_kernel" in text
    kernel.show_ptx()
    assert capsys.readouterr().out == text + "\n"
    kernel.export_ptx(tmp_path / "k.ptx")
    assert (tmp_path / "k.ptx").read_text() == text


def test_instructions_as_text_printed_and_in_a_file(kernel, tmp_path, capsys, disassembler):
    text = kernel.get_sass()
    assert "doubled_kernel" in text
    assert "LDG" in text
    kernel.show_sass()
    assert capsys.readouterr().out == text + "\n"
    kernel.export_sass(tmp_path / "k.sass")
    assert (tmp_path / "k.sass").read_text() == text


def test_without_a_disassembler(kernel, monkeypatch):
    monkeypatch.setattr(importlib.import_module("tile_runtime_cuda.listing"), "disassembler", lambda: None)
    with pytest.raises(BuildError, match="pip install nvidia-cuda-nvdisasm"):
        kernel.get_sass()


@pytest.mark.parametrize(("target", "execution"), [("cpu", "device"), (AMPERE, "emulate")])
def test_kernels_without_device_code(target, execution):
    kernel = tilelang.compile(doubled(), target=target, execution=execution)
    for ask in (lambda: kernel.n_regs, kernel.get_sass, *([kernel.get_ptx] if target == "cpu" else [])):
        with pytest.raises(InvalidArgument, match=r"(?s)doubled has no .*a kernel for (cpu|emulate)"):
            ask()


# -- rewriting the text -----------------------------------------------------------------------------------------------


@pytest.fixture
def rewrites() -> Iterator[None]:
    yield
    tilelang.register_cuda_postproc(None)
    tilelang.register_hip_postproc(None)


def run(func: Any, target: str = AMPERE) -> Any:
    a = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    b = np.zeros_like(a)
    kernel = tilelang.compile(func, target=target, execution="emulate")
    kernel(a, b)
    return kernel, b / a


@pytest.mark.parametrize(("target", "register"), [(AMPERE, "cuda"), ("hip -mcpu=gfx942", "hip")])
def test_a_function_of_the_user_has_the_last_word(rewrites, target, register):
    func = doubled("rewritten")
    assert run(func, target)[1] == pytest.approx(2)
    told = []

    def thrice(code, target):
        told.append(str(target))
        return code.replace("2.0f", "3.0f")

    assert getattr(tilelang, f"register_{register}_postproc")(thrice) is thrice
    kernel, factor = run(func, target)
    assert factor == pytest.approx(3)
    assert "3.0f" in kernel.get_kernel_source()
    assert told == [target.partition("=")[2]]
    getattr(tilelang, f"register_{register}_postproc")(None)
    assert run(func, target)[1] == pytest.approx(2)


def test_text_of_another_kind_is_left_alone(rewrites):
    tilelang.register_hip_postproc(lambda code, target: code.replace("2.0f", "5.0f"))
    assert run(doubled("alone"))[1] == pytest.approx(2)


def test_the_name_that_other_programs_import(rewrites):
    from tilelang.engine.callback import register_cuda_postproc_callback

    register_cuda_postproc_callback(lambda code, target: code.replace("2.0f", "4.0f"))
    assert run(doubled("imported"))[1] == pytest.approx(4)


def test_a_function_that_returns_no_text(rewrites):
    tilelang.register_cuda_postproc(lambda code, target: None)
    with pytest.raises(InvalidArgument, match=r"(?s)returned no text.*NoneType"):
        run(doubled("nothing"))


def test_a_function_without_an_identity(rewrites):
    with pytest.raises(InvalidArgument, match="cannot tell when this function changes"):
        tilelang.register_cuda_postproc(object())
