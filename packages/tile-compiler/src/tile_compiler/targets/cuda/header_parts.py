"""Which parts of the device header a text needs: those that it does not are left out, as reading them takes time."""

from __future__ import annotations

import re

from tile_compiler.instructions import warpgroup_multiplies

_MULTIPLY = re.compile(r"\bwgmma_m64k\w+(?:<(\d+)\b)?")
_STEP = 8  # widths are multiples of it
_WIDTHS = frozenset(str(n) for instruction in warpgroup_multiplies() for n in instruction.widths)


def header_flags(source: str) -> tuple[str, ...]:
    """Definitions for the device compiler under which the header has what `source` calls, a text without code of the
    user's. Without them it has everything."""
    widths = set(_MULTIPLY.findall(source))
    if not widths <= _WIDTHS:  # a width that the text does not spell, or that does not exist
        return ()
    bits = sum(1 << int(n) // _STEP - 1 for n in widths)
    return (f"--define-macro=TL_WGMMA_WIDTHS={bits:#x}u",)
