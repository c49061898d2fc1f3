"""What a user sees when a call of a CUDA kernel, or the machine, is wrong: the whole text, found, expected, repair."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tile_runtime.artifact import Artifact
from tile_runtime.errors import TileRuntimeError
from tile_runtime.manifest import Manifest
from tile_runtime_cuda import plugin
from tile_runtime_cuda.build import check_arch
from tile_runtime_cuda.driver import Driver
from tile_runtime_cuda.launch import load

from .fake_cuda import OnDevice, OnSecond, RecordingDriver, tensor
from .test_cuda_launch import add_manifest

ALIGNED = ["==", ["floormod", ["address", "A"], 16], 0]


def kernel(library: RecordingDriver | None = None, **more: Any) -> Any:
    manifest = add_manifest(**more)
    manifest["params"][0].pop("align")
    if "guard" in more:
        manifest["variants"][0]["guard"] = manifest.pop("guard")
    made = load(Artifact(Manifest.from_json(manifest), {"k.cubin": b"\x7fELF"}), Driver(library or RecordingDriver()))
    made._namespace["torch_types"].update((OnDevice, OnSecond))  # as if these were torch.Tensor itself
    return made


def columns() -> Any:
    return torch.zeros(64, 2).as_subclass(OnDevice)[:, 0]


def shifted() -> Any:
    memory = torch.zeros(80)
    start = -memory.data_ptr() % 16 // 4 + 1
    return memory[start : start + 64].as_subclass(OnDevice)


def without_driver() -> None:
    plugin.CudaDevice().load(Artifact(Manifest.from_json(add_manifest()), {"k.cubin": b"\x7fELF"}))


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "a CPU tensor": (
        lambda: kernel()(torch.zeros(64), tensor(64), 1.0),
        "TLR016: add.A.device_type is expected to be cuda, but got a torch array on cpu; move it with "
        ".to('cuda'), or compile the "
        "kernel for target 'cpu' (TILELANG_TARGET_OVERRIDE=cpu; without a GPU: TILELANG_EXECUTION=emulate)",
    ),
    "tensors on two devices": (
        lambda: kernel()(tensor(64), tensor(64, kind=OnSecond), 1.0),
        "TLR016: add.B is on cuda:1, the first tensor on cuda:0; move one of them",
    ),
    "scratch on another device": (
        lambda: kernel(workspace=[{"bytes": 64, "zero": False}])(*[tensor(64, kind=OnSecond)] * 2, 1.0),
        "TLR016: add: the tensors are on cuda:1, its scratch memory on the current device; call it inside "
        "torch.cuda.device(1)",
    ),
    "strides": (
        lambda: kernel()(columns(), tensor(64), 1.0),
        "TLR014: add.A.strides is expected to be contiguous, but got strides (2,) for shape (64,); pass "
        "A.contiguous() (torch) or "
        "numpy.ascontiguousarray(A), or declare the parameter as T.StridedTensor",
    ),
    "an address that the only variant does not serve": (
        lambda: kernel(guard=ALIGNED)(shifted(), tensor(64), 1.0, tensor(64)),
        "TLR020: add was not compiled for n = 64, s = 1.0: no variant's guard holds (address(A) % 16 == "
        "0); export the kernel again "
        "with all its variants (kernel.export), or pass aligned copies (.clone())",
    ),
    "an older device": (
        lambda: kernel(RecordingDriver(capability=(8, 0)))(tensor(64), tensor(64), 1.0),
        "TLR005: add was compiled for sm_90a, device 0 is sm_80: compile it for that",
    ),
    "an older driver": (
        lambda: kernel(min_driver=14000),
        "TLR005: add needs a driver for CUDA 14.0; this one supports 13.0: update the driver",
    ),
    "no device": (
        lambda: kernel(RecordingDriver(devices=0)),
        "TLR005: the CUDA driver offers no device to this process",
    ),
    "no driver": (
        without_driver,
        "TLR005: add cannot run: no CUDA driver: libcuda.so.1 cannot be opened. To run it here, set "
        "TILELANG_EXECUTION=emulate, or "
        "compile for the CPU with TILELANG_TARGET_OVERRIDE=cpu",
    ),
    "more shared memory than the device has": (
        lambda: kernel(RecordingDriver(shared_limit=99 << 10), launch={"shared": 200_000})(tensor(64), tensor(64), 1.0),
        "TLR005: add (add_kernel) needs 200000 bytes of shared memory; a block on device 0 (sm_90a) has "
        "101376 at most: use smaller "
        "tiles or fewer stages",
    ),
    "an architecture that is too old": (
        lambda: check_arch("sm_60"),
        "TLR050: sm_60 is too old: the compilers of CUDA 13 build for sm_75 (Turing) and newer; a GPU of "
        "that age runs none of the "
        "kernels here",
    ),
    "no architecture": (
        lambda: check_arch("gfx942"),
        "TLR050: 'gfx942' is no CUDA architecture; expected one such as sm_80 or sm_90a",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_whole_text(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    for name in ("empty", "zeros"):
        monkeypatch.setattr(torch, name, _on_host(getattr(torch, name)))
    if mistake == "no driver":
        monkeypatch.setattr("ctypes.CDLL", _absent)
    call, text = MISTAKES[mistake]
    with pytest.raises(TileRuntimeError) as caught:
        call()
    assert re.sub(r"0x[0-9a-f]+", "0x...", str(caught.value)) == text


def _absent(name: str) -> Any:
    raise OSError(name)


def _on_host(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, device: Any = None, **more: Any) -> Any:
        return make(*args, **more) if device is None else make(*args, **more).as_subclass(OnDevice)

    return made
