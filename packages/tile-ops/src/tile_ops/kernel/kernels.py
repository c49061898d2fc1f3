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

from .spec import KernelSpec
from .target import Target


def compile_kernel(spec: KernelSpec, target: Target) -> Any:
    """The kernel, loaded. Warm, it comes from the cache without TVM."""
    return _jitted(spec.family, spec.function, target, spec.pass_configs)(**dict(spec.arguments))


def cached(spec: KernelSpec, target: Target) -> bool:
    """Whether `compile_kernel` would find the kernel in the cache on disk."""
    jitted = _jitted(spec.family, spec.function, target, spec.pass_configs)
    return bool(jitted.origin(**dict(spec.arguments)) != "compile")


def trace(spec: KernelSpec) -> Any:
    """The traced function of a spec: what `nox -s prebuild` lowers for every architecture."""
    return _function(spec.family, spec.function)(**dict(spec.arguments))


@cache
def _jitted(family: str, name: str, target: Target, pass_configs: tuple[tuple[str, Any], ...]) -> Any:
    return tilelang.jit(
        _function(family, name), target=target.text(), execution=target.execution, pass_configs=dict(pass_configs)
    )


def _function(family: str, name: str) -> Callable[..., Any]:
    found = getattr(importlib.import_module(f"tile_ops.{family}.kernels"), name)
    assert inspect.isfunction(found)
    return found
