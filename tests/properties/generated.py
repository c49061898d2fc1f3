"""Kernels whose text is generated: loaded from a file as any kernel is, and run by plain Python as the reference."""

from __future__ import annotations

import importlib.util
import itertools
import textwrap
from pathlib import Path
from typing import Any

import numpy as np


def indent(text: str, by: int = 4) -> str:
    return textwrap.indent(text, " " * by)


def load(text: str, folder: Path) -> Any:
    """The kernel `main` of a program text."""
    file = folder / "kernel.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(f"kernel_{folder.name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


class PlainPython:
    """`T` of the reference: loops are ranges, variables plain numbers, a tile a copy."""

    serial = unroll = staticmethod(range)

    @staticmethod
    def Pipelined(*bounds: int, num_stages: int = 0) -> range:
        return range(*bounds)

    @staticmethod
    def Parallel(*extents: int) -> Any:
        return range(*extents) if len(extents) == 1 else itertools.product(*map(range, extents))

    grid = Parallel

    @staticmethod
    def alloc_var(dtype: str, init: int) -> int:
        return init

    @staticmethod
    def alloc_shared(shape: tuple[int, ...], dtype: str) -> Any:
        return np.zeros(shape, np.int64)

    @staticmethod
    def copy(source: Any, target: Any) -> None:
        target[...] = source

    @staticmethod
    def if_then_else(condition: bool, then: int, otherwise: int) -> int:
        return then if condition else otherwise
