"""The iterations of a nest that need no predicates: one question for the block, instead of one for each access."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import depends, extreme
from tile_compiler.ranges import reads_memory
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import is_global
from tile_compiler.simt.operators.parallel import NestRule
from tilelang.ir import tile_ir


def interior(rule: NestRule, low: Lowering) -> list[Any] | None:
    """The conditions under which every global access of a nest is in bounds, in all of its iterations.

    None if they all are in any case, if a part of the condition is not the same for all threads, or if an index is no
    sum of multiples of the loop variables.

        A[by * 128 + i, k * 32 + j] for i, j in T.parallel(128, 32)  ->  by * 128 + 127 < m, k * 32 + 31 < n
    """
    extents = dict(zip(rule.nest.loop_vars, rule.shape))
    inner = {n.loop_var for n in tile_ir.walk(rule.nest.body, tir.For)}
    for var, extent in extents.items():
        low.ranges.iterate(var, 0, tir.const(extent, str(var.ty)))
    found: list[Any] = []
    for access in rule.accesses.wide:
        needed = low.ranges.outside(access.buffer, access.indices)
        if needed and not is_global(access.buffer):
            return None
        for condition in needed:
            if not isinstance(condition, (ir.prim.LT, ir.prim.GE)) or depends(condition, inner):
                return None
            furthest = extreme(condition.a, extents, most=isinstance(condition, ir.prim.LT))
            if furthest is None or reads_memory(condition) or low.varies(condition):
                return None
            part = low.simplify(type(condition)(furthest, condition.b))
            if not any(tvm_ffi.structural_equal(part, other) for other in found):
                found.append(part)
    return found or None
