"""Functions of the user that rewrite generated text before the device's compiler gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tilelang import fingerprint
from tilelang.errors import InvalidArgument

Rewrite = TypeVar("Rewrite", bound=Callable[[str, Any], str])

_rewrites: dict[str, Callable[[str, Any], str]] = {}


def register_cuda_postproc(rewrite: Rewrite | None) -> Rewrite | None:
    """`@tilelang.register_cuda_postproc` above `def rewrite(code, target): return code`: for every kernel compiled from now on.

    There is one at a time; None takes it away. The cache keeps kernels apart by the function's text. Errors of the
    device's compiler and findings of the emulator count the lines of what the function returned.
    """
    return _registered("cuda", rewrite)


def register_hip_postproc(rewrite: Rewrite | None) -> Rewrite | None:
    """As `register_cuda_postproc`, for HIP text."""
    return _registered("hip", rewrite)


def _registered(kind: str, rewrite: Rewrite | None) -> Rewrite | None:
    _rewrites.pop(kind, None)
    identity = None
    if rewrite is not None:
        identity = fingerprint.of_function(rewrite) if callable(rewrite) else None
        if identity is None:
            raise InvalidArgument(
                f"tilelang.register_{kind}_postproc cannot tell when this function changes",
                found=f"{rewrite!r}",
                expected="a Python function whose text and values can be read, as the cache's keys depend on them",
                repair="def rewrite(code, target): return code.replace(...)",
            )
        _rewrites[kind] = rewrite
    fingerprint.rewritten(kind, identity)
    return rewrite


def rewritten(kind: str, code: str, target: Any) -> str:
    """Generated text as the user wants it. InvalidArgument if the user's function returns something else."""
    if kind not in _rewrites:
        return code
    found = _rewrites[kind](code, target)
    if not isinstance(found, str):
        raise InvalidArgument(
            f"the function of tilelang.register_{kind}_postproc returned no text",
            found=type(found).__name__,
            expected="the source for the device's compiler",
            repair="return code",
        )
    return found
