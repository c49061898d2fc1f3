"""Functions that rewrite generated text, by the names that programs of other versions import."""

from __future__ import annotations

from typing import Any

from tilelang.postprocessing import register_cuda_postproc, register_hip_postproc

__all__ = [
    "register_cuda_postproc",
    "register_cuda_postproc_callback",
    "register_hip_postproc",
    "register_hip_postproc_callback",
]


def register_cuda_postproc_callback(func: Any, override: bool = True) -> Any:
    """`tilelang.register_cuda_postproc`; there is one function at a time, so it takes the place of the one before."""
    return register_cuda_postproc(func)


def register_hip_postproc_callback(func: Any, override: bool = True) -> Any:
    """`tilelang.register_hip_postproc`."""
    return register_hip_postproc(func)
