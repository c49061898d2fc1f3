"""How many single elements a thread loads before it stores the first."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import UNROLL, remake_loop
from tile_compiler.simt.operators.nests import is_global
from tilelang.ir import tile_ir

#: Loads of single elements that an unrolled loop has on their way. Of 64, ptxas keeps the addresses of all in registers, and
#: beside accumulators of 192 it spills them.
MOST = 32
#: The same in kernels that multiply without a matrix instruction: beside 128 sums, what products read and the scalars of a walk
#: over parts of k, ptxas spills 64 to 132 bytes of 32.
MOST_BESIDE_PRODUCTS = 16


def limit_loads(loop: Any, most: int = MOST) -> Any:
    """A loop whose steps load single elements of global memory, unrolled by fewer of its steps, so that `most` are loaded at
    once.

    before:     for c in unroll(8): for u in unroll(8): part[u] = A[c * 32 + i, j + u]; tile[c, :8] = part[:8]
    after:      for c in unroll(8, by 4): ...

    As it is: one whose steps have registers of their own, which would become memory indexed at run time.
    """
    if not isinstance(loop, tir.For) or loop.kind != tir.ForKind.UNROLLED:
        return loop
    count, each = tile_ir.static(loop.extent), _loads(loop.body)
    if count is None or count * each <= most or _has_registers(loop):
        return loop
    by = max(n for n in range(1, count) if count % n == 0 and (n * each <= most or n == 1))
    return remake_loop(loop, annotations={**loop.annotations, UNROLL: by})


def _loads(body: Any) -> int:
    """Single elements of global memory that a thread loads in one pass."""
    if isinstance(body, tir.For):
        return (tile_ir.static(body.extent) or 1) * _loads(body.body)
    if isinstance(body, tir.IfThenElse):
        return _loads(body.then_case) + (0 if body.else_case is None else _loads(body.else_case))
    if isinstance(body, tir.SeqStmt):
        return sum(_loads(s) for s in tile_ir.statements(body))
    loads = tile_ir.walk(body, ir.TensorLoad)
    return sum(is_global(n.source) and not isinstance(n.indices[-1], ir.prim.Ramp) for n in loads)


def _has_registers(loop: Any) -> bool:
    """Whether a step decides which element of an array in registers is meant."""
    for node in tile_ir.walk(loop.body, ir.TensorLoad, tir.BufferStore):
        buffer = node.source if isinstance(node, ir.TensorLoad) else node.buffer
        variables = {n for i in node.indices for n in tile_ir.walk(tir.Evaluate(i), ir.Var)}
        if str(buffer.scope()) in tile_ir.PRIVATE and loop.loop_var in variables:
            return True
    return False
