"""Whether kernels are kept on disk: `tilelang.disable_cache()`, `enable_cache()`; TILELANG_DISABLE_CACHE=1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_enabled: bool | None = None


def disable_cache() -> None:
    """From here on in this process, compile without reading or writing the kernel cache."""
    global _enabled
    _enabled = False


def enable_cache() -> None:
    """Use the kernel cache again."""
    global _enabled
    _enabled = True


def is_cache_enabled() -> bool:
    """Whether the kernel cache is in use."""
    from tile_runtime.cache import enabled_by_environment

    return enabled_by_environment() if _enabled is None else _enabled


@contextmanager
def without_cache() -> Iterator[None]:
    """Inside as after `disable_cache()`; afterwards as before: asked for, or left to the environment."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before
