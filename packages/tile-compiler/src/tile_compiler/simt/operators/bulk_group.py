"""Groups of bulk stores: closing one, waiting for those before."""

from __future__ import annotations

from typing import Any

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.barrier import need_barriers
from tile_compiler.simt.operators.nests import run
from tilelang.ops import BulkCommit, BulkWait


def lower_commit(op: BulkCommit, low: Lowering) -> Any:
    """`tl.bulk_commit()` -> `tl::bulk_commit()`"""
    need_barriers(op, low)
    return run("tl::bulk_commit", span=low.span)


def lower_bulk_wait(op: BulkWait, low: Lowering) -> Any:
    """`tl.bulk_wait(pending=n, read=True)` -> `tl::bulk_wait_read<n>()`"""
    need_barriers(op, low)
    return run(f"tl::bulk_wait{'_read' if op.read else ''}<{op.pending}>", span=low.span)
