"""The families of operators, found by looking at the package's folders."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .kernel import KernelSpec, Target
from .kernel.spec import text_digest


@dataclass(frozen=True)
class Family:
    """A folder of `tile_ops`, such as `normalization`."""

    name: str

    def shipped(self, target: Target) -> tuple[KernelSpec, ...]:
        """The kernels that a wheel of prebuilt ones holds for a target: what the family's plans choose from for usual calls.
        Loads neither the kernels nor the language."""
        configs: Any = importlib.import_module(f"tile_ops.{self.name}.configs")
        return tuple(dict.fromkeys(configs.shipped(target)))  # some configurations share a kernel

    def text_digest(self) -> str:
        """sha256 of the family's `kernels.py`."""
        return text_digest(self.name)


@cache
def families() -> tuple[Family, ...]:
    """All families, by name: the folders with a `kernels.py` and a `configs.py`."""
    folder = Path(__file__).parent
    names = sorted(found.name for found in pkgutil.iter_modules([str(folder)]) if found.ispkg)
    return tuple(Family(n) for n in names if all((folder / n / f).is_file() for f in ("configs.py", "kernels.py")))
