"""What names a kernel: the function that writes it and the numbers that it is written for."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Scalar = bool | int | float | str | None


@dataclass(frozen=True)
class KernelSpec:
    """`function` of `tile_ops.<family>.kernels`, called with `arguments` (plain values, sorted by name).

    Equal specs mean equal kernels on a target, so that a spec is the key under which prebuilt kernels are found.
    `pass_configs` are the compiler's options by name.
    """

    family: str
    function: str
    arguments: tuple[tuple[str, Scalar], ...]
    pass_configs: tuple[tuple[str, Scalar], ...] = ()

    @classmethod
    def of(
        cls, family: str, function: str, pass_configs: dict[str, Scalar] | None = None, **arguments: Scalar
    ) -> KernelSpec:
        """The spec of a call of `function` with keyword `arguments`."""
        return cls(family, function, tuple(sorted(arguments.items())), tuple(sorted((pass_configs or {}).items())))

    def key(self, arch: str) -> str:
        """Hexadecimal sha256 that names this kernel, compiled for `arch`, in an index of prebuilt kernels."""
        content: list[Any] = [self.family, self.function, self.arguments, self.pass_configs, arch]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()

    def source_digest(self) -> str:
        """sha256 of the file that writes the kernel: a prebuilt kernel made from other text is not this one."""
        return source_digest(self.family)

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.arguments)
        return f"{self.family}.{self.function}({values})"


@cache
def source_digest(family: str) -> str:
    """sha256 of a family's `kernels.py`."""
    found = importlib.util.find_spec(f"tile_ops.{family}")  # finds the folder without loading kernels.py
    assert found is not None
    assert found.origin is not None
    return hashlib.sha256((Path(found.origin).parent / "kernels.py").read_bytes()).hexdigest()
