"""A Python-embedded language of tiles, and the way from a kernel's text to something that runs.

`import tilelang` loads neither TVM nor torch nor a compiler: names below are resolved when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tilelang import language as language
    from tilelang.autotuner import autotune as autotune
    from tilelang.cache_control import disable_cache as disable_cache
    from tilelang.cache_control import enable_cache as enable_cache
    from tilelang.cache_control import is_cache_enabled as is_cache_enabled
    from tilelang.just_in_time import jit as jit
    from tilelang.kernel import JITKernel as JITKernel
    from tilelang.kernel import compile as compile
    from tilelang.kernel import lower as lower
    from tilelang.math import cdiv as cdiv
    from tilelang.math import next_power_of_2 as next_power_of_2
    from tilelang.options import PassConfigKey as PassConfigKey
    from tilelang.postprocessing import register_cuda_postproc as register_cuda_postproc
    from tilelang.postprocessing import register_hip_postproc as register_hip_postproc
    from tilelang.profiler import Profiler as Profiler
    from tilelang.profiler import TensorSupplyType as TensorSupplyType

# public name -> (module, attribute)
_LAZY = {
    "autotune": ("tilelang.autotuner.decorator", "autotune"),
    "jit": ("tilelang.just_in_time", "jit"),
    "compile": ("tilelang.kernel", "compile"),
    "lower": ("tilelang.kernel", "lower"),
    "load": ("tilelang.kernel", "load"),
    "JITKernel": ("tilelang.kernel", "JITKernel"),
    "PassConfigKey": ("tilelang.options", "PassConfigKey"),
    "Profiler": ("tilelang.profiler", "Profiler"),
    "TensorSupplyType": ("tilelang.profiler", "TensorSupplyType"),
    "cdiv": ("tilelang.math", "cdiv"),
    "next_power_of_2": ("tilelang.math", "next_power_of_2"),
    "disable_cache": ("tilelang.cache_control", "disable_cache"),
    "enable_cache": ("tilelang.cache_control", "enable_cache"),
    "is_cache_enabled": ("tilelang.cache_control", "is_cache_enabled"),
    "register_cuda_postproc": ("tilelang.postprocessing", "register_cuda_postproc"),
    "register_hip_postproc": ("tilelang.postprocessing", "register_hip_postproc"),
    "TileLangError": ("tilelang.errors", "TileLangError"),
}
_MODULES = (
    "autotuner",
    "carver",
    "engine",
    "language",
    "layout",
    "testing",
    "profiler",
    "quantize",
    "math",
    "tools",
    "errors",
    "interpreter",
    "ops",
    "ir",
    "target",
)

__all__ = [*_LAZY, *_MODULES, "tvm"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, attribute = _LAZY[name]
        value = getattr(importlib.import_module(module), attribute)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"tilelang.{name}")
    if name == "tvm":  # `from tilelang import tvm`: the TVM that this package uses
        return importlib.import_module("tvm")
    raise AttributeError(f"module 'tilelang' has no attribute {name!r}")
