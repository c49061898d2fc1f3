"""Native code of this package (tile_runtime.shipped_code)."""

from __future__ import annotations

from pathlib import Path

from tile_runtime.shipped_code import ShippedCode

POOL = ShippedCode(Path(__file__).parent, "pool")
PREPARED = ShippedCode(Path(__file__).parent, "prepared")
