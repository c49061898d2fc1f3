"""Groups of bulk stores on a target without them: there is nothing to wait for."""

from __future__ import annotations

from typing import Any

from tile_compiler.tileops.site import Site
from tilelang.ir import tile_ir
from tilelang.ops import BulkCommit, BulkWait


def lower_bulk_group(op: BulkCommit | BulkWait, site: Site) -> Any:
    """`tl.bulk_commit()`, `tl.bulk_wait()` -> nothing"""
    return tile_ir.sequence([])
