"""The tile compiler: traced tile IR in, artifacts out (`compile`), every step open to inspection (`lower`)."""

from __future__ import annotations

from typing import Any

__all__ = ["compile", "lower"]


def compile(func: Any, target: Any, options: Any = None) -> Any:
    """An artifact for a traced function; see `tile_compiler.compile.compile`. Imports TVM."""
    from importlib import import_module

    return import_module("tile_compiler.compile").compile(func, target, options)


def lower(func: Any, target: Any, options: Any = None) -> Any:
    """The lowered loops of a traced function; see `tile_compiler.compile.lower`. Imports TVM."""
    from importlib import import_module

    return import_module("tile_compiler.compile").lower(func, target, options)
