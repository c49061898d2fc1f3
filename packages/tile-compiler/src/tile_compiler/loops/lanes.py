"""A loop body executed by several iterations at once: statement by statement, each for all lanes.

The iterations of a parallel loop run in lockstep (docs/internals/tile-ir.md), so uniform control moves outside the
lanes: `for i in lanes: for k: S` is `for k: for i in lanes: S`. A buffer private to an iteration gets a lane axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import depends, pattern
from tile_compiler.loops.conditions import harmless, reads_any
from tile_compiler.ranges import Ranges, reads_memory
from tile_compiler.rewrite import Rewriter, is_call, renewed, substitute
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of


def private_buffers(body: Any) -> list[Any]:
    """The buffers that a body allocates for one iteration."""
    return [n.buffer for n in tile_ir.walk(body, tir.AllocBuffer)]


def stored_buffers(body: Any) -> set[Any]:
    """The buffers that a body stores to."""
    return {n.buffer for n in tile_ir.walk(body, tir.BufferStore)}


def materialise_binds(body: Any, var: Any) -> Any | None:
    """Replace `Bind`s that vary with `var`: indices are inlined, other values get a private buffer.

    before:     v = A[i]; B[i] = v * v
    after:      v_lane = alloc(1, local); v_lane[0] = A[i]; B[i] = v_lane[0] * v_lane[0]

    None when a varying Bind cannot be replaced so (a condition read from memory).
    """
    rewriter = _Binds(var, private_buffers(body))
    new = rewriter.body(body)
    return None if rewriter.failed else new


class _Binds(Rewriter):
    def __init__(self, var: Any, private: list[Any]) -> None:
        self.varying = {var, *private}
        self.values: dict[Any, Any] = {}
        self.failed = False

    def expr(self, node: Any) -> Any:
        return substitute(node, self.values) if self.values else node

    def bind(self, node: tir.Bind) -> Any:
        value = self.expr(node.value)
        if not depends(value, self.varying):
            return super().bind(node)
        dtype = str(value.ty)
        if not reads_memory(value) and dtype_of(dtype).kind != "float":
            self.values[node.var] = value
            return None
        if dtype == "bool":
            self.failed = True
            return node
        holder = tir.decl_buffer((1,), dtype, name=f"{node.var.name}_lane", scope="local", layout=None)
        zero = tir.const(0, "int32")
        self.values[node.var] = tir.BufferLoad(holder, [zero])
        self.varying.add(holder)
        return tir.SeqStmt([tir.AllocBuffer(holder), tir.BufferStore(holder, value, [zero], span=node.span)])


def can_run_in_lanes(body: Any, var: Any) -> bool:
    """Whether a body is made of stores, uniform control and pure expressions only, with types that vectors have."""
    varying = {var, *private_buffers(body)}
    private = set(private_buffers(body))
    for node in tile_ir.walk(body):
        if isinstance(node, (tir.While, tir.AttrStmt, tir.DeclBuffer, tir.Return)):
            return False
        if isinstance(node, tir.Evaluate) and not isinstance(node.value, tir.IntImm):
            return False
        if isinstance(node, tir.For) and (depends(node.min, varying) or depends(node.extent, varying)):
            return False
        if isinstance(node, tir.For) and node.annotations:
            return False
        if isinstance(node, ir.Call) and not tile_ir.only_computes(node):
            return False
        if isinstance(node, (tir.BufferStore, ir.TensorLoad)):
            buffer = node.buffer if isinstance(node, tir.BufferStore) else node.source
            if dtype_of(tile_ir.dtype_name(buffer)).bits < 8 or dtype_of(tile_ir.dtype_name(buffer)).lanes != 1:
                return False
            scope = str(buffer.scope())
            if isinstance(node, tir.BufferStore) and scope in tile_ir.PRIVATE and buffer not in private:
                return False
    return True


def widest_itemsize(body: Any) -> int:
    """The largest element that a body loads, stores or computes with, in bytes (indices and conditions aside)."""
    sizes = [1]
    for node in tile_ir.walk(body):
        if isinstance(node, tir.BufferStore):
            sizes += [_itemsize(n) for n in tile_ir.walk(node.value) if ir.is_prim_expr(n) and not _index_like(n)]
            sizes.append(dtype_of(tile_ir.dtype_name(node.buffer)).itemsize)
    return max(sizes)


def _itemsize(node: Any) -> int:
    return dtype_of(str(node.ty)).itemsize if not str(node.ty).startswith(("void", "handle")) else 1


def _index_like(node: Any) -> bool:
    return not str(node.ty).startswith("float") and not isinstance(node, ir.TensorLoad)


def hoist_invariants(body: Any, var: Any, ranges: Ranges) -> tuple[list[Any], Any]:
    """Loads that are equal in all lanes, bound to variables before the lanes run.

    before:     acc[i, j] = acc[i, j] * scale[i]
    after:      scale_i = scale[i];   acc[i, j] = acc[i, j] * scale_i

    Only for straight-line bodies, and only loads that may be executed unconditionally.
    """
    stmts = tile_ir.statements(body)
    if not all(isinstance(s, tir.BufferStore) for s in stmts):
        return [], body
    stored = stored_buffers(body)
    binds: list[Any] = []

    def rule(node: Any, mutator: Any) -> Any:
        if not ir.is_prim_expr(node) or isinstance(node, (ir.Var, tir.IntImm, tir.FloatImm)):
            return node if not isinstance(node, ir.Expr) else mutator.default_mutate(node)
        if depends(node, {var}) or not reads_memory(node):
            return mutator.default_mutate(node)
        if reads_any(node, stored) or not harmless(node, ranges) or is_call(node, "tirx.address_of"):
            return mutator.default_mutate(node)
        for bind in binds:
            if tvm_ffi.structural_equal(bind.value, node):
                return bind.var
        held = tir.Var(_name_of(node), str(node.ty))
        binds.append(tir.Bind(held, node))
        return held

    new = [
        tir.BufferStore(s.buffer, tvm_ffi.structural_mutate(s.value, ((ir.Expr, rule),)), s.indices, span=s.span)
        for s in stmts
    ]
    return binds, tile_ir.sequence(new)


def _name_of(value: Any) -> str:
    loads = list(tile_ir.walk(value, ir.TensorLoad))
    return f"{loads[0].source.name}_row" if loads else "row"


def in_lanes(body: Any, var: Any, base: Any, lanes: int, count: Any = None) -> Any:
    """`body` for the `lanes` iterations `var = base, base + 1, ...`, in lockstep, as vector loops; with `count` for the first so
    many of them:

    for i in T.vectorized(16):
        if i < count: B[base + i] = A[base + i]
    """
    return tile_ir.sequence(_Lanes(var, base, lanes, count).statements(tile_ir.statements(renewed(body))))


def can_end_in_lanes(body: Any, var: Any, least: int) -> bool:
    """Whether vectors of which some lanes are not there can run a body that runs in lanes: all accesses are to neighbours of
    `least` bytes or more, which a mask leaves alone, or the same in all lanes."""
    private = set(private_buffers(body))
    for node in tile_ir.walk(body):
        if isinstance(node, tir.BufferStore) and node.buffer not in private:
            if pattern(node.buffer, list(node.indices), var) != "contiguous" or _bytes(node.buffer) < least:
                return False
        elif isinstance(node, ir.TensorLoad) and node.source not in private:
            along = pattern(node.source, list(node.indices), var)
            if along == "strided" or (along == "contiguous" and _bytes(node.source) < least):
                return False
    return True


def _bytes(buffer: Any) -> int:
    """Of an element; 0 where several share one."""
    return dtype_of(tile_ir.dtype_name(buffer)).bits // 8


class _Lanes(Rewriter):
    def __init__(self, var: Any, base: Any, lanes: int, count: Any = None) -> None:
        self.var, self.base, self.lanes, self.count = var, base, lanes, count
        self.expanded: dict[Any, Any] = {}

    def statements(self, stmts: list[Any]) -> list[Any]:
        out: list[Any] = []
        run: list[Any] = []
        for s in stmts:
            if isinstance(s, tir.BufferStore):
                run.append(s)
                continue
            if run:
                out.append(self._vector(run))
                run = []
            new = self.stmt(s)
            out += [] if new is None else tile_ir.statements(new)
        if run:
            out.append(self._vector(run))
        return out

    def stmt(self, node: Any) -> Any:
        if isinstance(node, tir.BufferStore):
            return self._vector([node])
        return super().stmt(node)

    def alloc(self, node: tir.AllocBuffer) -> Any:
        shape = [*node.buffer.ty.shape, tir.const(self.lanes, "int32")]
        name, dtype = node.buffer.name, tile_ir.dtype_name(node.buffer)
        wide = tir.decl_buffer(shape, dtype, name=name, scope="local", layout=None)
        self.expanded[node.buffer] = wide
        return tir.AllocBuffer(wide)

    def _vector(self, stores: list[Any]) -> Any:
        lane = tir.Var(self.var.name, self.var.ty)
        here = lane if tile_ir.static(self.base) == 0 else self.base + lane
        body = tile_ir.sequence([_at_lane(s, self.expanded, lane) for s in stores])
        body = substitute(body, {self.var: here})
        if self.count is not None:
            body = tir.IfThenElse(lane < self.count, body, None)
        zero, count = tir.const(0, str(self.var.ty)), tir.const(self.lanes, str(self.var.ty))
        return tir.For(lane, zero, count, tir.ForKind.VECTORIZED, body, span=stores[0].span)


def _at_lane(store: Any, expanded: dict[Any, Any], lane: Any) -> Any:
    """`store` with private buffers indexed by their lane axis."""
    if not expanded:
        return store

    def load(node: Any) -> Any:
        wide = expanded.get(node.source)
        return node if wide is None else tir.BufferLoad(wide, [*node.indices, lane])

    rule: Callable[[Any], Any] = load
    value = tile_ir.map_nodes(store.value, (ir.TensorLoad, rule))
    indices = [tile_ir.map_nodes(i, (ir.TensorLoad, rule)) for i in store.indices]
    wide = expanded.get(store.buffer)
    if wide is None:
        return tir.BufferStore(store.buffer, value, indices, span=store.span)
    return tir.BufferStore(wide, value, [*indices, lane], span=store.span)
