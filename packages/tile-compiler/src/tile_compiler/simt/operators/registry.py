"""The tile operators of GPUs: one table, from an operator's class to its twin. The passes know no operator."""

from __future__ import annotations

from typing import Any

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.simt.layout.equations import Rule
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.across import lower_cluster_sync, lower_grid_sync
from tile_compiler.simt.operators.atomic import expand_atomic
from tile_compiler.simt.operators.barrier import lower_arrive, lower_expect, lower_wait
from tile_compiler.simt.operators.bulk_group import lower_bulk_wait, lower_commit
from tile_compiler.simt.operators.cluster_sum import ClusterSum, lower_cluster_sum
from tile_compiler.simt.operators.copy import expand_copy
from tile_compiler.simt.operators.debug import expand_device_assert, expand_print
from tile_compiler.simt.operators.dependent import lower_dependent
from tile_compiler.simt.operators.fence import lower_fence
from tile_compiler.simt.operators.fill import expand_fill
from tile_compiler.simt.operators.gemm import GemmRule, expand_gemm, gemm_rule
from tile_compiler.simt.operators.hints import expand_hint, expand_import_source, expand_prefetch
from tile_compiler.simt.operators.lower_gemm import lower_gemm
from tile_compiler.simt.operators.lower_reduce import lower_reduce
from tile_compiler.simt.operators.reduce import expand_reduce, reduce_rule
from tile_compiler.simt.operators.registers import lower_set_max_nreg
from tile_compiler.simt.operators.scan import expand_scan, lower_scan
from tile_compiler.simt.operators.sync import lower_sync
from tile_compiler.simt.operators.tma_copy import lower_tma_copy, tma_rule
from tile_compiler.simt.operators.twin import RuleSite, Twin, nothing
from tile_compiler.simt.operators.wgmma.wait import lower_wait_wgmma
from tilelang import ops


def _gemm_rule(op: ops.Gemm, site: RuleSite) -> Rule:
    return gemm_rule(op, site.span, site.unknown, site.threads, site.ctx)


def _lower_gemm(op: ops.Gemm, low: Lowering) -> Any:
    assert isinstance(low.rule, GemmRule)
    return lower_gemm(op, low.rule.choice, low)


TWINS: dict[type[ops.TileOp], Twin] = {
    ops.AnnotateLayout: Twin(lower=nothing),
    ops.AtomicTile: Twin(expand_atomic),
    ops.BulkCommit: Twin(lower=lower_commit),
    ops.BulkWait: Twin(lower=lower_bulk_wait),
    ClusterSum: Twin(lower=lower_cluster_sum, title=lambda op: f"sum of {op.blocks} blocks"),
    ops.ClusterSync: Twin(lower=lower_cluster_sync),
    ops.Copy: Twin(expand_copy),
    ops.DependentLaunch: Twin(lower=lower_dependent),
    ops.DeviceAssert: Twin(expand_device_assert),
    ops.FenceProxyAsync: Twin(lower=lower_fence),
    ops.Fill: Twin(expand_fill),
    ops.Gemm: Twin(expand_gemm, _gemm_rule, _lower_gemm, lambda op: "T.gemm"),
    ops.GridSync: Twin(lower=lower_grid_sync),
    ops.Hint: Twin(expand_hint),
    ops.ImportSource: Twin(expand_import_source),
    ops.MbarrierArrive: Twin(lower=lower_arrive),
    ops.MbarrierExpectTx: Twin(lower=lower_expect),
    ops.MbarrierWait: Twin(lower=lower_wait),
    ops.Prefetch: Twin(expand_prefetch),
    ops.Print: Twin(expand_print),
    ops.Reduce: Twin(expand_reduce, reduce_rule, lower_reduce, lambda op: f"T.reduce_{op.kind}"),
    ops.SafeValue: Twin(lower=nothing),
    ops.Scan: Twin(expand_scan, None, lower_scan, lambda op: f"T.cum{op.kind}"),
    ops.SetMaxNreg: Twin(lower=lower_set_max_nreg),
    ops.SyncThreads: Twin(lower=lower_sync),
    ops.WaitWgmma: Twin(lower=lower_wait_wgmma),
    ops.TmaCopy: Twin(None, tma_rule, lower_tma_copy, lambda op: "TMA copy"),
}


def register(operator: type[ops.TileOp], twin: Twin) -> None:
    """Tell GPU targets how an operator is done. Subclasses of `operator` without a twin of their own use it too."""
    TWINS[operator] = twin


def twin_of(op: ops.TileOp, span: Any = None) -> Twin:
    """The twin of an operator, or of its nearest base class. Raises UnsupportedOnTarget if there is none."""
    found = next((TWINS[c] for c in type(op).__mro__ if c in TWINS), None)
    if found is None:
        raise UnsupportedOnTarget(
            f"this target has no lowering of {op.NAME}",
            at=span,
            repair=f"tile_compiler.simt.operators.registry.register({type(op).__name__}, Twin(...))",
        )
    return found
