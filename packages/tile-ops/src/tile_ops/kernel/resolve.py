"""Finds the kernel of a spec: prebuilt, then the cache on disk, then the compiler where it is installed."""

from __future__ import annotations

import importlib.util
import os
from array import array
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from tile_ops.errors import KernelUnavailable
from tile_runtime import registry

from . import prebuilt
from .spec import KernelSpec
from .target import Target


@dataclass
class Resolved:
    """A kernel that is loaded. `launches` counts its calls, so that a test can tell that it was this one that ran."""

    spec: KernelSpec
    target: Target
    origin: str
    kernel: Any
    _count: array[int] = field(default_factory=lambda: array("q", [0]))

    def __call__(self, *arguments: Any) -> None:
        self._count[0] += 1
        self.kernel(*arguments)

    @property
    def launches(self) -> int:
        return self._count[0]

    @property
    def counter(self) -> int:
        """Address of the count, for native code that calls `kernel`; valid as long as this lives."""
        return self._count.buffer_info()[0]

    def prepared(self, *arguments: Any) -> Resolved:
        """The same for calls like this one, counted here too: takes the tensors alone and reads but their addresses, so that
        other views of them do as well, as long as addresses are multiples of what those of `arguments` are."""
        return replace(self, kernel=self.kernel.prepare(*arguments))


_loaded: dict[tuple[KernelSpec, Target], Resolved] = {}


def resolve(spec: KernelSpec, target: Target) -> Resolved:
    """The kernel, loaded once per process. Raises KernelUnavailable with what to install."""
    found = _loaded.get((spec, target))
    if found is None:
        found = _loaded.setdefault((spec, target), _load(spec, target))
    return found


def loaded(spec: KernelSpec, target: Target) -> Resolved | None:
    """The kernel if a call has loaded it already."""
    return _loaded.get((spec, target))


def origin(spec: KernelSpec, target: Target) -> tuple[str, str]:
    """Where `resolve` takes the kernel from ("prebuilt", "cache", "compile" or "unavailable"), and the reason."""
    known = _loaded.get((spec, target))
    if known is not None:
        return known.origin, "loaded in this process"
    shipped, reason = _shipped(spec, target)
    if shipped is not None:
        return "prebuilt", f"{shipped.path.name} for {shipped.arch}"
    if not _can_compile():
        return "unavailable", f"{reason}; {_MISSING}"
    from .kernels import cached

    return ("cache" if cached(spec, target) else "compile"), reason


_MISSING = "install tile-ops[compile], or unset TILE_OPS_COMPILE if it is 0"


def _load(spec: KernelSpec, target: Target) -> Resolved:
    shipped, reason = _shipped(spec, target)
    if shipped is not None:
        return Resolved(spec, target, "prebuilt", registry.device(target.device).load(shipped.load()))
    if not _can_compile():
        raise KernelUnavailable(f"no kernel {spec} for {target}: {reason}, and none can be compiled; {_MISSING}")
    from .kernels import cached, compile_kernel

    where = "cache" if cached(spec, target) else "compile"
    return Resolved(spec, target, where, compile_kernel(spec, target))


def _shipped(spec: KernelSpec, target: Target) -> tuple[prebuilt.Prebuilt | None, str]:
    if target.execution != "device":
        return None, "shipped kernels run on devices only"
    return prebuilt.find(spec, target)


def _can_compile() -> bool:
    return os.environ.get("TILE_OPS_COMPILE", "1") != "0" and _compiler_is_installed()


@lru_cache(maxsize=1)
def _compiler_is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("tilelang", "tvm", "tile_compiler"))
