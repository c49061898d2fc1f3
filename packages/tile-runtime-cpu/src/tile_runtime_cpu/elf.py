"""Objects of CPU kernels in this process: `tile_runtime.elf`, with the closed list of imports.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tile_runtime import elf

from .imports import import_address


class Image(elf.Image):
    """Loaded objects; beside `symbols` they may import the names of `imports.IMPORTS`."""

    allowed = "the names of tile_runtime_cpu.imports.IMPORTS (docs/decisions/0003-libm-imports.md)"

    def __init__(self, objects: Sequence[tuple[str, bytes]], symbols: Mapping[str, int] | None = None) -> None:
        super().__init__(objects, symbols, import_address)
