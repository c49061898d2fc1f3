"""Targets: what a kernel is compiled for. A frozen value, from text, a dict or a TVM target."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tilelang.errors import UnknownTarget

# kind as users write it -> (our kind, device runtime)
_KINDS = {"cpu": "cpu", "llvm": "cpu", "c": "cpu", "cuda": "cuda", "hip": "hip", "rocm": "hip"}
_DEVICES = {"cpu": "cpu", "cuda": "cuda", "hip": "rocm"}
_LATER = ("metal", "webgpu", "vulkan", "opencl")
_OPTIONS = {"cpu": ("mcpu", "mattr", "arch"), "cuda": ("arch", "mcpu"), "hip": ("mcpu", "arch")}

# The architecture of a bare "cuda" or "hip" on a machine without such a device; nothing else says so.
DEFAULT_ARCH = {"cuda": "sm_90a", "hip": "gfx942"}


@dataclass(frozen=True)
class Target:
    """`kind` is cpu, cuda or hip; `arch` names the processor ("sm_90a", "gfx942", "znver4"; "" is the host's)."""

    kind: str
    arch: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @property
    def device(self) -> str:
        """The name of the runtime that launches kernels of this target."""
        return _DEVICES[self.kind]

    def __str__(self) -> str:
        flag = "mcpu" if self.kind != "cuda" else "arch"
        parts = [self.kind] + ([f"-{flag}={self.arch}"] if self.arch else [])
        return " ".join(parts + [f"-{k}={v}" for k, v in self.options])


def parse(spec: Any) -> Target:
    """A Target from "cuda -arch=sm_90a", a bare kind, {"kind": "hip", "mcpu": "gfx942"}, JSON text, or a TVM target.

    Raises UnknownTarget.
    """
    if isinstance(spec, Target):
        return spec
    if isinstance(spec, str):
        text = spec.strip()
        if text.startswith("{"):
            try:
                return parse(json.loads(text))
            except json.JSONDecodeError as error:
                raise _unknown(spec, f"it starts like JSON and is none: {error.msg} at column {error.colno}") from None
        words = shlex.split(text)
        if not words:
            raise _unknown(spec)
        options = {}
        for word in words[1:]:
            name, _, value = word.lstrip("-").partition("=")
            options[name] = value
        return _make(words[0], options, spec)
    if isinstance(spec, Mapping):
        options = {str(k): str(v) for k, v in spec.items() if k not in ("kind", "keys", "tag")}
        return _make(str(spec.get("kind", "")), options, spec)
    kind = getattr(getattr(spec, "kind", None), "name", None)  # tvm.target.Target
    if kind is not None:
        attrs = {str(k): str(v) for k, v in dict(getattr(spec, "attrs", {})).items()}
        known = {k: v for k, v in attrs.items() if k in ("arch", "mcpu", "mattr")}
        return _make(str(kind), known, spec)
    raise _unknown(spec)


def _unknown(spec: Any, why: str = "") -> UnknownTarget:
    return UnknownTarget(
        f"{spec!r} is no target",
        found=why or f"{spec!r}",
        expected='"auto", "cpu" (also "llvm", "c"), "cuda", "hip", with options such as "cuda -arch=sm_90a"',
        repair='target="cpu"',
    )


def _make(kind: str, options: dict[str, str], spec: Any) -> Target:
    if kind in _LATER:
        raise UnknownTarget(
            f"target {kind!r} is not in this release",
            found=f"{spec!r}",
            expected="cpu, cuda or hip",
            repair='target="cpu", or TILELANG_TARGET_OVERRIDE=cpu for a whole program',
        )
    if kind not in _KINDS:
        raise _unknown(spec)
    name = _KINDS[kind]
    allowed = _OPTIONS[name]
    surplus = [o for o in options if o not in allowed]
    if surplus:
        raise UnknownTarget(
            f"target {kind!r} has no option {surplus[0]!r}",
            found=f"{spec!r}",
            expected=", ".join(f"-{o}=" for o in allowed),
            repair=f"drop -{surplus[0]}",
        )
    arch = options.pop("arch", "") or options.pop("mcpu", "")
    options.pop("mcpu", None)
    if name == "cuda" and arch and not arch.startswith("sm_"):
        raise UnknownTarget(
            f"{arch!r} is no CUDA architecture",
            found=f"{spec!r}",
            expected='"sm_80", "sm_90a", ...',
            repair='target="cuda -arch=sm_90a"',
        )
    if arch == "sm_70":
        raise UnknownTarget(
            "sm_70 cannot be compiled for",
            found=f"{spec!r}",
            expected="sm_75 or newer: NVRTC 13 and nvcc 13 have dropped Volta",
            repair='target="cuda -arch=sm_75"',
        )
    return Target(name, arch, tuple(sorted(options.items())))


def override() -> str | None:
    """TILELANG_TARGET_OVERRIDE: replaces every target that a program names."""
    return os.environ.get("TILELANG_TARGET_OVERRIDE") or None


def resolve(spec: Any, tensor_device: str | None = None) -> Target:
    """The target to compile for: the override, what the user named, the tensor's device, the `with tvm.target.Target`
    around the call, or what this machine has. A GPU's architecture that nobody named is that of this machine's device,
    DEFAULT_ARCH without one."""
    found = _resolve(spec, tensor_device)
    return found if found.arch or found.kind not in DEFAULT_ARCH else replace(found, arch=_device_arch(found.kind))


@lru_cache(maxsize=len(DEFAULT_ARCH))
def _device_arch(kind: str) -> str:
    """The architecture of the first device of a kind, asked for once."""
    from tile_runtime import registry

    device = _DEVICES[kind]
    if device in registry.names():
        try:
            if registry.device(device).is_available():
                return str(registry.device(device).arch())
        except Exception:  # of a driver that is there and does not work: its kernels will say so when they are called
            pass
    return DEFAULT_ARCH[kind]


def _resolve(spec: Any, tensor_device: str | None) -> Target:
    replaced = override()
    if replaced:
        spec = replaced
    if spec is None or spec == "auto":
        if tensor_device is not None and spec is None:
            return parse({"cuda": "cuda", "hip": "hip", "rocm": "hip"}.get(tensor_device, "cpu"))
        entered = _entered()
        if entered is not None:
            return parse(entered)
        configured = os.environ.get("TILELANG_DEFAULT_TARGET")
        if configured and configured != "auto":
            return parse(configured)
        return parse(_working_device())
    return parse(spec)


def _entered() -> Any:
    """The target of the innermost `with tvm.target.Target(...)`; nobody can be inside one without TVM."""
    tvm = sys.modules.get("tvm")
    return None if tvm is None else tvm.target.Target.current(allow_none=True)


def _working_device() -> str:
    """cuda where a CUDA device works, hip where a ROCm one does, cpu otherwise."""
    from tile_runtime import registry

    for device, kind in (("cuda", "cuda"), ("rocm", "hip")):
        if device in registry.names() and compiler_for(kind) is not None:
            try:
                if registry.device(device).is_available():
                    return kind
            except Exception:
                continue
    return "cpu"


def compiler_for(kind: str) -> Any:
    """The entry point that compiles for a kind of target, or None when nothing installed does."""
    from tile_runtime.entry_points import entry_points

    for entry in entry_points("tile_compiler.targets"):
        if entry.name == kind:
            return entry
    return None
