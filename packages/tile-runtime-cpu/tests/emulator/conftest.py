"""Kernels by hand, their references, and the modes in which each of them must come out right."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tile_runtime_cpu import emulator
from tile_runtime_cpu.emulator import Buffer, EmulatedModule, Report, TensorMap

KERNELS = Path(__file__).parent / "kernels"
HEADERS = {"cuda": '#include "tl_cuda.cuh"\n', "hip": '#include "tl_hip.h"\n'}


#: "cuda": the tests run on a GPU; "record": in the emulator, and their launches are kept for one (on_device.py).
DEVICE = os.environ.get("TILELANG_TEST_DEVICE", "")


@functools.cache
def _on_device() -> Any:
    spec = importlib.util.spec_from_file_location("on_device", Path(__file__).parent / "on_device.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["on_device"] = module  # where its dataclasses look for their module
    spec.loader.exec_module(module)
    return module


@functools.cache
def _compiled(source: str, arch: str = "") -> EmulatedModule:
    if DEVICE and "tl_hip.h" in source:
        pytest.skip("a HIP kernel; the tests run on a CUDA device")
    if DEVICE == "cuda":
        return _on_device().DeviceModule(source)
    module = emulator.compile(source, include_dirs=[], arch=arch)
    return _on_device().Recorder(module, Path(os.environ["TILELANG_TEST_RECORD"])) if DEVICE == "record" else module


@pytest.fixture
def on_device() -> Any:
    """The module that carries launches to a GPU."""
    return _on_device()


@pytest.fixture
def only_emulated() -> None:
    """For tests of what hardware does not tell: findings and counters."""
    if DEVICE:
        pytest.skip("an emulator's report; the tests are for a device")


@pytest.fixture
def only_recorded() -> None:
    """For launches that a device must refuse, which ends what its process can do: only a packed one is carried there."""
    if DEVICE == "cuda":
        pytest.skip("ends the process's context on a device; on_device.py gives each launch a process")


@pytest.fixture(scope="session")
def compile_text() -> Callable[[str], EmulatedModule]:
    """compile_text(text, arch=""): the module, compiled once in this process."""
    return _compiled


@pytest.fixture(scope="session")
def kernel_file() -> Callable[..., EmulatedModule]:
    """kernel_file(name, (old, new), ...): a file of kernels/, each `old` text replaced once."""

    def compile_file(name: str, *changes: tuple[str, str], arch: str = "") -> EmulatedModule:
        text = (KERNELS / name).read_text()
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new, 1)
        return _compiled(text, arch)

    return compile_file


@pytest.fixture(scope="session")
def run_body() -> Callable[..., Report]:
    """run_body(parameters, body, args, threads=32, shared=4096, ...): launches one block of a kernel `k`."""

    def run(
        parameters: str,
        body: str,
        args: list[Any],
        threads: int = 32,
        shared: int = 4096,
        grid: tuple[int, ...] = (1,),
        before: str = "",
        vendor: str = "cuda",
        arch: str = "",
        **options: Any,
    ) -> Report:
        text = (
            f'{HEADERS[vendor]}{before}extern "C" __global__ void __launch_bounds__({threads}) '
            f"k({parameters}) {{\n{body}\n}}\n"
        )
        return _compiled(text, arch).launch("k", grid, (threads,), shared, args, **options)

    return run


@pytest.fixture(params=list(HEADERS))
def run_on_each(request: pytest.FixtureRequest, run_body: Callable[..., Report]) -> Callable[..., Report]:
    """run_body with CUDA's header, then with HIP's."""
    return functools.partial(run_body, vendor=request.param)


@pytest.fixture(scope="session")
def run_wave(run_body: Callable[..., Report]) -> Callable[..., Report]:
    """run_body with HIP's header, in a block of one wave of 64 unless it says otherwise."""

    def run(parameters: str, body: str, args: list[Any], threads: int = 64, **options: Any) -> Report:
        return run_body(parameters, body, args, threads, vendor="hip", **options)

    return run


@pytest.fixture(scope="session")
def tensor_map() -> Callable[..., TensorMap]:
    """tensor_map(array, box, ...): of a C-contiguous or strided array; the box's fastest extent comes first."""

    def describe(array: np.ndarray[Any, Any], box: tuple[int, ...], **more: Any) -> TensorMap:
        shape, strides = array.shape[::-1], array.strides[-2::-1]
        return TensorMap(array.ctypes.data, more.pop("dtype", str(array.dtype)), shape, strides, box, **more)

    return describe


@pytest.fixture(scope="session")
def watched() -> Callable[..., list[Buffer]]:
    """watched(A=a, O=o): buffers by name; those that start with a capital O are outputs, not initialized."""

    def buffers(**arrays: np.ndarray[Any, Any]) -> list[Buffer]:
        outputs = {name: name.startswith("O") for name in arrays}
        return [Buffer(a.ctypes.data, a.nbytes, n, outputs[n], not outputs[n]) for n, a in arrays.items()]

    return buffers
