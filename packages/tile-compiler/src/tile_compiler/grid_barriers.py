"""`T.sync_grid`: on CUDA a counter in global memory for each barrier's blocks, elsewhere a kernel before it and one after."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.rewrite import fresh, map_kernels, substitute
from tilelang import ops
from tilelang.ir import tile_ir

ZERO = "tl.zero"  # annotation of an allocation of global scratch: it holds zeros when a call begins


def waits_for_grid(stmt: Any) -> bool:
    """Whether a statement is a barrier of the grid."""
    return isinstance(ops.operator_of(stmt), ops.GridSync)


def has_grid_barriers(kernel: tile_ir.Kernel) -> bool:
    return any(waits_for_grid(n) for n in tile_ir.walk(kernel.body, tir.Evaluate))


def with_counters(func: tir.PrimFunc) -> tir.PrimFunc:
    """Give each kernel with barriers of the grid a counter of the blocks that have come to one.

    before:     kernel: ..; T.tl.sync_grid(); ..
    after:      arrived = alloc_global((1,), uint32, {zero: 1});  kernel: ..; T.tl.sync_grid(arrived[0]); ..
    """
    counters: list[Any] = []

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        if not has_grid_barriers(kernel):
            return kernel
        counter = tir.decl_buffer([1], "uint32", name=f"arrived{len(counters) or ''}", scope="global", layout=None)
        counters.append(tir.AllocBuffer(counter, {ZERO: 1}, span=kernel.span))
        place = tile_ir.region(counter, [(tir.const(0, "int32"), 1)])

        def counted(node: tir.Evaluate) -> Any:
            op = ops.operator_of(node)
            return dataclasses.replace(op, arrived=place).to_stmt(node.span) if isinstance(op, ops.GridSync) else node

        body = tile_ir.map_nodes(kernel.body, (tir.Evaluate, counted))
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    found = map_kernels(func, rule)
    return found.with_body(tile_ir.sequence([*counters, *tile_ir.statements(found.body)])) if counters else func


def split_at_barriers(func: tir.PrimFunc) -> tir.PrimFunc:
    """Cut kernels in two at each barrier of the grid: the second begins when all blocks of the first have ended.

    before:     kernel(bx: 4): x = bx * 2;  S[x] = 1;  T.tl.sync_grid();  B[x] = S[6 - x]
    after:      kernel(bx: 4): x = bx * 2;  S[x] = 1
                kernel(bx: 4): x = bx * 2;  B[x] = S[6 - x]

    Values that memory has no part in are computed again. UnsupportedOnTarget for a barrier inside of a loop or a condition,
    and for one behind which something on chip is used again.
    """
    if not any(map(has_grid_barriers, tile_ir.kernels(func))):
        return func
    stmts: list[Any] = []
    index = 0
    for stmt in tile_ir.statements(func.body):
        kernel = tile_ir.as_kernel(stmt)
        for part in [] if kernel is None else _parts(kernel):
            stmts.append(dataclasses.replace(part, index=index).to_stmt())
            index += 1
        if kernel is None:
            stmts.append(stmt)
    return func.with_body(tile_ir.sequence(stmts))


def _parts(kernel: tile_ir.Kernel) -> Iterator[tile_ir.Kernel]:
    pieces: list[list[Any]] = [[]]
    carried: list[Any] = []  # of earlier pieces, what later ones begin with
    alive: dict[Any, Any] = {}  # what earlier pieces declare, which later ones cannot have
    for stmt in tile_ir.statements(kernel.body):
        if waits_for_grid(stmt):
            pieces.append([])
            continue
        for node in tile_ir.walk(stmt, tir.Evaluate):
            if waits_for_grid(node):
                raise UnsupportedOnTarget(
                    "T.sync_grid inside of a loop or a condition on a target that cuts the kernel there",
                    at=node.span,
                    expected="a barrier between the statements of T.Kernel, or a CUDA device",
                    repair="two kernels, one after the other, in a loop of the host",
                )
        pieces[-1].append(stmt)
    for piece in pieces:
        _refuse_what_is_gone(piece, alive)
        yield _renewed(kernel, [*carried, *piece])
        for stmt in piece:
            if _is_repeated(stmt, alive):
                carried.append(stmt)
            elif isinstance(stmt, (tir.Bind, tir.AllocBuffer, tir.DeclBuffer)):
                alive[stmt.var if isinstance(stmt, tir.Bind) else stmt.buffer] = stmt


def _is_repeated(stmt: Any, alive: dict[Any, Any]) -> bool:
    """Whether a statement holds in later pieces as it stands: a hint, or a value that memory has no part in."""
    if isinstance(ops.operator_of(stmt), (ops.Hint, ops.ImportSource, ops.SafeValue)):
        return True
    if not isinstance(stmt, tir.Bind):
        return False
    memory = any(True for _ in tile_ir.walk(stmt.value, ir.TensorLoad))
    effect = any(str(getattr(n.op, "name", "")) in _EFFECTS for n in tile_ir.walk(stmt.value, ir.Call))
    return not memory and not effect and tile_ir.free_of(stmt.value, alive)


_EFFECTS = ("tirx.call_extern", "tl.atomic_elem")


def _refuse_what_is_gone(piece: list[Any], alive: dict[Any, Any]) -> None:
    for stmt in piece:
        for var in tile_ir.walk(stmt, ir.Var):
            if var in alive:
                raise UnsupportedOnTarget(
                    f"{var.name} is used behind T.sync_grid on a target that cuts the kernel there",
                    at=stmt.span if getattr(stmt, "span", None) is not None else alive[var].span,
                    found=f"{var.name}, which a block keeps on chip or has computed from memory before it",
                    expected="nothing but tensors and T.alloc_global behind the barrier, or a CUDA device",
                    repair="allocate it anew behind the barrier, or keep it in T.alloc_global",
                )


def _renewed(kernel: tile_ir.Kernel, stmts: list[Any]) -> tile_ir.Kernel:
    """A kernel with variables of its own."""
    axes = [var for var, _ in (*kernel.grid, *kernel.threads)]
    own = {var: fresh(var) for var in (*axes, *(s.var for s in stmts if isinstance(s, tir.Bind)))}
    grid = tuple((own[var], extent) for var, extent in kernel.grid)
    threads = tuple((own[var], extent) for var, extent in kernel.threads)
    return tile_ir.Kernel(kernel.index, grid, threads, substitute(tile_ir.sequence(stmts), own), kernel.span)
