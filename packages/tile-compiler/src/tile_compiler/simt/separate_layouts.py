"""Where two statements need one fragment in different layouts, give one of them a tile of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import is_tile_operator
from tile_compiler.rewrite import Rewriter, is_call, substitute
from tile_compiler.simt.operators.copy import whole_copy
from tile_compiler.simt.operators.nests import is_fragment
from tilelang import ops
from tilelang.ir import tile_ir


@dataclass(frozen=True)
class Separation:
    """`stmt`, a statement that uses `buffer`, and what replaces it; `how` says so in the report."""

    stmt: Any
    buffer: Any
    replacement: Any
    how: str


def separation(stmt: Any, buffer: Any) -> Separation | None:
    """How `stmt` can do without the layout that the fragment `buffer` has elsewhere; None if it cannot.

    A tile operator gets a fragment of its own, copied from and to the shared one; copies between fragments are
    nests. A nest reads and writes a tile in shared memory, where every thread finds every element:

    before:     for i, j in T.parallel(64, 64): p[i, j] = s[j, i]
    after:      for i, j in T.parallel(64, 64): s_exchange[i, j] = s[i, j]
                for i, j in T.parallel(64, 64): p[i, j] = s_exchange[j, i]
    """
    if not is_fragment(buffer):
        return None
    nest = tile_ir.as_parallel(stmt)
    if nest is None:
        return _of_operator(stmt, buffer)
    return _of_nest(stmt, nest, buffer)


def apply(kernel: tile_ir.Kernel, separation: Separation) -> tile_ir.Kernel:
    """The kernel with the separation made."""
    body = _Replace(separation).body(kernel.body)
    return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)


class _Replace(Rewriter):
    def __init__(self, separation: Separation) -> None:
        self.separation = separation

    def stmt(self, node: Any) -> Any:
        if node.same_as(self.separation.stmt):
            return self.separation.replacement
        return super().stmt(node)


def _of_operator(stmt: Any, buffer: Any) -> Separation | None:
    if not is_tile_operator(stmt):
        return None
    op, span = ops.parse(stmt.value), stmt.value.span or stmt.span
    own = _tile(buffer, f"{buffer.name}_own", "local.fragment")
    before = [whole_copy(buffer, own, span)] if _among(op.reads(), buffer) else []
    after = [whole_copy(own, buffer, span)] if _among(op.writes(), buffer) else []
    replaced = substitute(stmt, {buffer: own})
    text = f"{buffer.name} is copied to a fragment of its own"
    return Separation(
        stmt, buffer, tile_ir.sequence([tir.AllocBuffer(own, span=span), *before, replaced, *after]), text
    )


def _among(regions: list[Any], buffer: Any) -> bool:
    return any(r.source.same_as(buffer) for r in regions)


def _of_nest(stmt: Any, nest: tile_ir.ParallelNest, buffer: Any) -> Separation:
    own = _tile(buffer, f"{buffer.name}_exchange", "shared.dyn")
    before = [whole_copy(buffer, own, nest.span)] if _reads(nest, buffer) or not _fills(nest, buffer) else []
    after = [whole_copy(own, buffer, nest.span)] if _writes(nest, buffer) else []
    body = substitute(nest.body, {buffer: own})
    inner = tile_ir.ParallelNest(nest.loop_vars, nest.extents, body, nest.annotations, nest.span).to_stmt()
    allocation = tir.AllocBuffer(own, span=nest.span)
    text = f"{buffer.name} goes through shared memory"
    return Separation(stmt, buffer, tile_ir.sequence([allocation, *before, inner, *after]), text)


def _tile(buffer: Any, name: str, scope: str) -> Any:
    return tir.decl_buffer(list(buffer.ty.shape), tile_ir.dtype_name(buffer), name=name, scope=scope, layout=None)


def _reads(nest: tile_ir.ParallelNest, buffer: Any) -> bool:
    """Whether the nest reads the buffer, or passes an address of it."""
    return any(n.source.same_as(buffer) for n in tile_ir.walk(nest.body, ir.TensorLoad))


def _writes(nest: tile_ir.ParallelNest, buffer: Any) -> bool:
    """Whether the nest may change the buffer: by a store, or through an address."""
    for node in tile_ir.walk(nest.body):
        if isinstance(node, tir.BufferStore) and node.buffer.same_as(buffer):
            return True
        if is_call(node, "tirx.address_of", "tirx.buffer_data"):
            if any(n.same_as(buffer) for n in tile_ir.walk(node, ir.Var)):
                return True
    return False


def _fills(nest: tile_ir.ParallelNest, buffer: Any) -> bool:
    """Whether the nest writes every element: a store at the loop variables, under no condition."""
    extents = {v: tile_ir.static(e) for v, e in zip(nest.loop_vars, nest.extents)}
    for stmt in tile_ir.statements(nest.body):
        if isinstance(stmt, tir.BufferStore) and stmt.buffer.same_as(buffer):
            indices = [i for i in stmt.indices if isinstance(i, ir.Var)]
            if len(set(indices)) == len(stmt.indices):
                return [extents.get(i) for i in indices] == [tile_ir.static(s) for s in buffer.ty.shape]
    return False
