"""What a call's kernels are for: the tensor's device, or the GPU that the emulator plays."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch

from tile_ops.errors import WrongDevice
from tile_runtime import registry

#: What the emulator plays where TILELANG_DEFAULT_TARGET names no GPU.
EMULATED = "cuda -arch=sm_80"

#: Bytes of the first data cache that CPUs of our levels have: AMD's up to Zen 4 and Intel's up to Skylake, and later ones.
FIRST_CACHES = (32 << 10, 48 << 10)
#: Where Linux tells its size.
_FIRST_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index0/size")

#: Bytes of shared memory that a block may have, by architecture (CUDA programming guide, CDNA 3 instruction set).
SHARED_MEMORY = {"sm_80": 163 << 10, "sm_86": 99 << 10, "sm_89": 99 << 10, "sm_90a": 227 << 10, "gfx942": 64 << 10}


@dataclass(frozen=True)
class Target:
    """`kind` is cpu, cuda or hip; `arch` is "x86-64-v4", "sm_90a", "gfx942"; `execution` as the language has it; `first_cache`
    are the bytes of a CPU's data cache of the first level, of one core."""

    kind: str
    arch: str
    execution: str = "device"
    first_cache: int = field(default=FIRST_CACHES[0], compare=False)  # of a machine: kernels are for its level

    @property
    def device(self) -> str:
        """The runtime that launches such kernels."""
        return {"cpu": "cpu", "cuda": "cuda", "hip": "rocm"}[self.kind]

    def text(self) -> str:
        """As `tilelang.compile(target=...)` reads it. A CPU's level is that of this machine and stays unsaid."""
        return "cpu" if self.kind == "cpu" else f"{self.kind} -{'arch' if self.kind == 'cuda' else 'mcpu'}={self.arch}"

    @property
    def shared_memory(self) -> int:
        """Bytes of it that a block of this GPU may have."""
        return SHARED_MEMORY.get(self.arch, SHARED_MEMORY["sm_86"])

    def has(self, extension: str) -> bool:
        """Whether a CPU has these instructions beyond its level: "bf16", "vnni", "amx"."""
        return extension in self.arch.split("+")

    def runs(self) -> tuple[str, ...]:
        """Architectures whose prebuilt kernels run here, best first."""
        if self.kind == "cpu":
            levels = ("x86-64-v4+bf16+vnni+amx", "x86-64-v4+bf16+vnni", "x86-64-v4", "x86-64-v3")
            return levels[levels.index(self.arch) :] if self.arch in levels else ()
        if self.kind == "hip":
            return (self.arch,)
        number = int("".join(c for c in self.arch if c.isdigit()))
        # A binary for sm_XY runs on the same X with a higher Y; the PTX that lies beside that of sm_89 on anything newer
        # (CUDA programming guide, "Binary Compatibility", "PTX Compatibility").
        older = (
            [f"sm_{n}" for n in (89, 86, 80) if n <= number and n // 10 == number // 10] if number < 90 else ["sm_89"]
        )
        return (self.arch, *(arch for arch in older if arch != self.arch))

    def __str__(self) -> str:
        name = f"cpu ({self.arch})" if self.kind == "cpu" else self.text()
        return name + ("" if self.execution == "device" else ", emulated")


#: What `os.environ` reads, by encoded names: asking it costs a microsecond, which every call would pay.
_ENVIRONMENT: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
#: Where nothing stands as long as kernels run on the device itself: a dictionary and its key.
EXECUTION = (_ENVIRONMENT, b"TILELANG_EXECUTION")
_ON_DEVICE = ("device", "")


def settings() -> tuple[str, str]:
    """What the environment says about the target of a CPU's tensors: TILELANG_EXECUTION, TILELANG_DEFAULT_TARGET."""
    environment, execution_key = EXECUTION
    if execution_key not in environment:
        return _ON_DEVICE
    execution = os.environ["TILELANG_EXECUTION"]
    return execution, os.environ.get("TILELANG_DEFAULT_TARGET", "") if execution == "emulate" else ""


def device_of(*tensors: torch.Tensor | None) -> torch.device:
    """Where these tensors lie. Raises WrongDevice if that is on several devices."""
    device: torch.device | None = None
    for tensor in tensors:
        if tensor is None:
            continue
        if device is None:
            device = tensor.device
        elif tensor.device != device:
            raise WrongDevice(
                f"the operands lie on {device} and {tensor.device}; move them to one device: .to('{device}')"
            )
    assert device is not None
    return device


def target_of(*tensors: torch.Tensor | None) -> Target:
    """The target of a call on these tensors. Raises WrongDevice if they lie on several devices."""
    device = device_of(*tensors)
    execution, named = settings() if device.type == "cpu" else ("device", "")
    return _target(device.type, device.index, execution, named)


def threads_of(x: torch.Tensor) -> int:
    """Threads among which a call on this tensor is shared out, if it lies on a CPU."""
    return torch.get_num_threads() if x.is_cpu else 1


def still_shared_by(x: torch.Tensor, threads: int) -> Callable[[], bool] | None:
    """What tells a call that comes again whether there are as many threads as its plan is for; None where that is all one."""
    return (lambda: torch.get_num_threads() == threads) if x.is_cpu else None


def _first_cache() -> int:
    """Of this machine, as far as FIRST_CACHES goes; the smallest where nobody says ("48K" is what one reads)."""
    try:
        found = int(_FIRST_CACHE.read_text().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return FIRST_CACHES[0]
    return max((size for size in FIRST_CACHES if size <= found), default=FIRST_CACHES[0])


@cache
def _target(kind: str, index: int | None, execution: str, named: str) -> Target:
    if execution == "emulate":
        words = (named if named.startswith(("cuda", "hip")) else EMULATED).split()
        default = "sm_80" if words[0] == "cuda" else "gfx942"
        return Target(words[0], words[1].partition("=")[2] if len(words) > 1 else default, "emulate")
    if kind == "cpu":
        return Target("cpu", registry.device("cpu").arch(), execution, _first_cache())
    if kind == "cuda" and torch.version.hip is not None:
        name = torch.cuda.get_device_properties(index or 0).gcnArchName
        return Target("hip", name.partition(":")[0])
    if kind == "cuda":
        major, minor = torch.cuda.get_device_capability(index)
        return Target("cuda", f"sm_{major}{minor}" + ("a" if major == 9 else ""))
    raise WrongDevice(f"tile_ops runs on cpu and cuda tensors; these are on {kind}")
