"""The tile operators: one file each, with its node, its checks, what it reads and writes, and its meaning.

`OPERATORS` maps the IR name of an operator to its class; `parse` reads a call back into one. A user adds an
operator by subclassing `TileOp` in a file of their own and calling `register`.
"""

from __future__ import annotations

from typing import Any

from tilelang.ops.across import AcrossBlocks, ClusterSync, GridSync
from tilelang.ops.atomic import AtomicTile
from tilelang.ops.barrier import BarrierOp, MbarrierArrive, MbarrierExpectTx, MbarrierWait
from tilelang.ops.base import OPERATORS, Machine, ThreadOp, TileOp, parse, register
from tilelang.ops.bulk_group import BulkCommit, BulkWait
from tilelang.ops.copy import Copy
from tilelang.ops.debug import DeviceAssert, Print
from tilelang.ops.dependent import DependentLaunch
from tilelang.ops.fence import FenceProxyAsync
from tilelang.ops.fill import Fill
from tilelang.ops.gemm import Gemm, GemmWarpPolicy
from tilelang.ops.hints import AnnotateLayout, Hint, ImportSource, SafeValue
from tilelang.ops.prefetch import Prefetch
from tilelang.ops.reduce import Reduce
from tilelang.ops.registers import SetMaxNreg
from tilelang.ops.scan import Scan
from tilelang.ops.sync import SyncThreads
from tilelang.ops.tma_copy import TmaCopy
from tilelang.ops.wait_wgmma import WaitWgmma

__all__ = [
    "OPERATORS",
    "AcrossBlocks",
    "AnnotateLayout",
    "AtomicTile",
    "BarrierOp",
    "BulkCommit",
    "BulkWait",
    "ClusterSync",
    "Copy",
    "DependentLaunch",
    "DeviceAssert",
    "FenceProxyAsync",
    "Fill",
    "Gemm",
    "GemmWarpPolicy",
    "GridSync",
    "Hint",
    "ImportSource",
    "Machine",
    "MbarrierArrive",
    "MbarrierExpectTx",
    "MbarrierWait",
    "Prefetch",
    "Print",
    "Reduce",
    "SafeValue",
    "Scan",
    "SetMaxNreg",
    "SyncThreads",
    "ThreadOp",
    "TileOp",
    "TmaCopy",
    "WaitWgmma",
    "parse",
    "register",
]


def operator_of(stmt: Any) -> TileOp | None:
    """The tile operator that a statement evaluates, or None."""
    from tilelang.ir import tile_ir

    node = tile_ir.tile_call(stmt)
    return None if node is None or str(node.op.name) not in OPERATORS else parse(node)
