"""Hints and declarations leave no code."""

from __future__ import annotations

from typing import Any

from tile_compiler.tileops.site import Site
from tilelang.ir import tile_ir
from tilelang.ops import ImportSource


def lower_hint(op: Any, site: Site) -> Any:
    """`tl.hint`, `tl.annotate_layout`, `tl.safe_value`, `tl.import_source` -> nothing; passes before used them."""
    if isinstance(op, ImportSource):
        site.ctx.sources.append(op.source)
    return tile_ir.sequence([])
