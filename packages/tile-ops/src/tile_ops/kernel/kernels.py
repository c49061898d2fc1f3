"""Compiles a kernel from its spec. The one place where the library calls the compiler; never imported for a prebuilt one.

A kernel function of a family returns a `T.prim_func`; `tilelang.jit` compiles it, through the cache on disk.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import tilelang
import tilelang.kernel
import tilelang.target
from tile_runtime.artifact import Artifact
from tilelang.autotuner.machine import machine_of
from tilelang.cache_control import without_cache
from tilelang.errors import TileLangError
from tilelang.options import make_options

from .spec import KernelSpec
from .target import Target

_REFUSALS = ("TL203", "TL206")  # UnsupportedOnTarget, SharedMemoryOverflow (docs/errors.md)


def compile_kernel(spec: KernelSpec, target: Target) -> Any:
    """The kernel, loaded. Warm, it comes from the cache without TVM."""
    return _jitted(spec.family, spec.function, target, spec.pass_configs)(**dict(spec.arguments))


def cached(spec: KernelSpec, target: Target) -> bool:
    """Whether `compile_kernel` would find the kernel in the cache on disk."""
    jitted = _jitted(spec.family, spec.function, target, spec.pass_configs)
    return bool(jitted.origin(**dict(spec.arguments)) != "compile")


class Unsupported(Exception):
    """An architecture cannot hold a kernel: too much shared memory, say."""


class Refused(Exception):
    """The compiler refuses a kernel for another reason: what it says."""


def build(spec: KernelSpec, kind: str, arch: str, *, ptx: bool = False) -> Artifact:
    """The kernel with all its variants, for an architecture that need not be here; with `ptx`, for newer ones too.

    Compiled anew, that warnings of slow code come: those of what the kernel cache holds came before. Raises Unsupported, Refused.
    """
    configs = {**dict(spec.pass_configs), **({"tl.embed_ptx": True} if ptx else {})}
    options = make_options(execution="device", pass_configs=configs)
    func = _function(spec.family, spec.function)(**dict(spec.arguments))
    try:
        with without_cache():
            return tilelang.kernel.build(func, tilelang.target.Target(kind, arch), options)
    except TileLangError as error:
        if error.code in _REFUSALS:
            raise Unsupported(error.message) from error
        raise Refused(str(error)) from error


def check_holds(artifact: Artifact, kind: str, arch: str) -> None:
    """Raises Unsupported if blocks of a binary for an older architecture have more shared memory than this one's may."""
    machine = machine_of(tilelang.target.Target(kind, arch))
    assert machine is not None
    sizes = [launch.shared for variant in artifact.manifest.variants for launch in variant.launches]
    most = max(size for size in sizes if isinstance(size, int))
    if most > machine.shared_per_block:
        raise Unsupported(f"a block needs {most} bytes of shared memory, {machine.shared_per_block} are there")


@cache
def _jitted(family: str, name: str, target: Target, pass_configs: tuple[tuple[str, Any], ...]) -> Any:
    return tilelang.jit(
        _function(family, name), target=target.text(), execution=target.execution, pass_configs=dict(pass_configs)
    )


def _function(family: str, name: str) -> Callable[..., Any]:
    found = getattr(importlib.import_module(f"tile_ops.{family}.kernels"), name)
    assert inspect.isfunction(found)
    return found
