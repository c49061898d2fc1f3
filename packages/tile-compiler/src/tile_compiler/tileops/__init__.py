"""Lowering of the tile operators: one file for each file of `tilelang/ops`, found by the operator's class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tile_compiler.tileops.across import lower_cluster_sync, lower_grid_sync
from tile_compiler.tileops.atomic import lower_atomic_tile
from tile_compiler.tileops.barrier import lower_barrier
from tile_compiler.tileops.bulk_group import lower_bulk_group
from tile_compiler.tileops.copy import lower_copy
from tile_compiler.tileops.debug import lower_device_assert, lower_print
from tile_compiler.tileops.dependent import lower_dependent
from tile_compiler.tileops.fence import lower_fence
from tile_compiler.tileops.fill import lower_fill
from tile_compiler.tileops.gemm import lower_gemm
from tile_compiler.tileops.hints import lower_hint
from tile_compiler.tileops.prefetch import lower_prefetch
from tile_compiler.tileops.reduce import lower_reduce
from tile_compiler.tileops.registers import lower_set_max_nreg
from tile_compiler.tileops.scan import lower_scan
from tile_compiler.tileops.site import Site
from tile_compiler.tileops.sync import lower_sync
from tile_compiler.tileops.tma_copy import lower_tma_copy
from tile_compiler.tileops.wait_wgmma import lower_wait_wgmma
from tilelang import ops

Lowering = Callable[[Any, Site], Any]

LOWERINGS: dict[type[ops.TileOp], Lowering] = {
    ops.AnnotateLayout: lower_hint,
    ops.AtomicTile: lower_atomic_tile,
    ops.BulkCommit: lower_bulk_group,
    ops.BulkWait: lower_bulk_group,
    ops.ClusterSync: lower_cluster_sync,
    ops.Copy: lower_copy,
    ops.DependentLaunch: lower_dependent,
    ops.DeviceAssert: lower_device_assert,
    ops.FenceProxyAsync: lower_fence,
    ops.Fill: lower_fill,
    ops.Gemm: lower_gemm,
    ops.GridSync: lower_grid_sync,
    ops.Hint: lower_hint,
    ops.ImportSource: lower_hint,
    ops.MbarrierArrive: lower_barrier,
    ops.MbarrierExpectTx: lower_barrier,
    ops.MbarrierWait: lower_barrier,
    ops.Prefetch: lower_prefetch,
    ops.Print: lower_print,
    ops.Reduce: lower_reduce,
    ops.SafeValue: lower_hint,
    ops.Scan: lower_scan,
    ops.SetMaxNreg: lower_set_max_nreg,
    ops.WaitWgmma: lower_wait_wgmma,
    ops.SyncThreads: lower_sync,
    ops.TmaCopy: lower_tma_copy,
}
"""Operator class -> function (operator, site) -> statement without regions. Passes look a class and its bases up."""


def lowering_of(op: ops.TileOp) -> Lowering | None:
    """The lowering of an operator, or of the nearest base class that has one."""
    return next((LOWERINGS[c] for c in type(op).__mro__ if c in LOWERINGS), None)
