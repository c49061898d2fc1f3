"""The order in which blocks take the tiles of a product, as hints name it."""

from __future__ import annotations

from dataclasses import dataclass


class NoRasterization:
    """Row by row; a hint's `rasterization_plan` is this class itself."""


@dataclass(frozen=True)
class Rasterization2DRow:
    """Panels of so many rows of tiles: `T.use_swizzle(panel_width)`."""

    panel_width: int
