"""Which tiles of float32 the tensor memory accelerator rounds to tf32 as it brings them."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import is_tile_operator
from tile_compiler.simt.kernel_layouts import KernelLayouts
from tile_compiler.simt.operators.gemm import GemmRule
from tile_compiler.simt.operators.nests import is_shared
from tile_compiler.simt.operators.wgmma.tiling import WarpgroupTiling
from tilelang import ops
from tilelang.ir import tile_ir


def rounded_tiles(kernel: tile_ir.Kernel, layouts: KernelLayouts) -> frozenset[Any]:
    """Shared tiles that bulk copies write and products of tf32 by warpgroups read, and nothing else touches.

    The instruction drops the lower 13 bits of an element. A tensor map of type TFLOAT32 rounds to the nearest tf32, ties to even,
    as the copy goes by: half of the error, and none in the mean.
    """
    products = [rule for rule in layouts.rules if isinstance(rule, GemmRule)]
    used = {r.source for rule in products for r in (rule.op.a, rule.op.b) if is_shared(r.source)}
    used -= {r.source for rule in products if not _of_tf32(rule) for r in (rule.op.a, rule.op.b)}
    if not used:
        return frozenset()

    def known(node: Any) -> Any:
        if not isinstance(node, tir.Evaluate):
            return tile_ir.sequence([])
        op = ops.parse(node.value) if is_tile_operator(node) else None
        into = isinstance(op, ops.TmaCopy) and is_shared(op.dst.source)
        return tile_ir.sequence([]) if into or isinstance(op, ops.Gemm) else node

    rest = tvm_ffi.structural_map(kernel.body, ((tir.Evaluate, tir.AllocBuffer), known))
    return frozenset(used) - set(tile_ir.walk(rest, ir.Var))


def _of_tf32(rule: GemmRule) -> bool:
    tiles = rule.choice.tiles
    return isinstance(tiles, WarpgroupTiling) and tiles.wgmma.a == tiles.wgmma.b == "tfloat32"
