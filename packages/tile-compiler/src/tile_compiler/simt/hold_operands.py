"""Operands of narrow products that a loop does not change stay in registers, as far as these reach."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import alias_roots, is_tile_operator
from tile_compiler.rewrite import Rewriter, map_kernels
from tile_compiler.simt.annotations import laid_out
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.keep_blocks import by_hand
from tile_compiler.simt.operators.choose_instruction import choose_instruction
from tile_compiler.simt.operators.nests import is_fragment, is_shared, is_whole, static_shape
from tile_compiler.simt.operators.wgmma.tiling import WarpgroupTiling
from tile_compiler.simt.pipeline_schedule import touched
from tile_compiler.simt.roles.registers import SHARED, consumer_share
from tile_compiler.simt.tile_order import is_pipelined
from tilelang import ops
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ir.tile_work import tile_work

SHARE = "tl.disable_held_operands"
# An instruction of 64 rows, n columns and 32 bytes of k reads 2048 bytes of A and 32 n of B at 128 bytes a clock, and computes
# for n / 2 clocks: below 64 columns it waits for shared memory.
BALANCED = 64
CHUNK_BYTES = 128  # of k: the widest swizzle, so that a part begins where every layout has a border
LEAST_STEPS = 4  # of a loop: fewer do not pay for the copy
OTHERS = 16  # registers of a thread that are not for tiles: addresses, parts of sums


def hold_operands(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """A of a product that reads shared memory for longer than it computes comes from registers, where the loop leaves it alone.

    before:     copy(Q, q);  for k in pipelined(n): ... gemm(q[0:64, 0:512], s[0:64, 0:512], c, transpose_b)
    after:      copy(Q, q);  copy(q[0:64, 0:192], held)
                for k in pipelined(n): ... gemm(held, s[0:64, 0:192], c); gemm(q[0:64, 192:512], s[0:64, 192:512], c)

    For wgmma of fewer than 64 columns (`BALANCED`): there A from registers lets the instruction end when its arithmetic does.
    As many columns of k, in chunks of 128 bytes, as leave a thread 16 registers beside its tiles; small operands first, as one
    that is held whole needs its shared memory no longer. The order of the sum stays.

    Not for kernels whose user gives threads roles or waits by hand, for pipelines with an order by hand, or where several blocks
    share a multiprocessor, whose registers are theirs.
    """
    if not ctx.arch.has_wgmma or ctx.options.get(SHARE):
        return func
    works, roots = tile_work(func).launches, alias_roots(func.body)

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        work = works[[k.index for k in tile_ir.kernels(func)].index(kernel.index)]
        shared = sum(t.bytes for t in work.tiles.values() if t.scope == "shared")
        threads = int(kernel.num_threads or 1)
        if by_hand(kernel) or threads < 256 or threads % 128 or 2 * shared <= SHARED:
            return kernel
        free = consumer_share(threads) - OTHERS - _registers_of_tiles(kernel, threads, ctx)
        holder = _Holder(kernel, ctx, roots, free)
        body = holder.body(kernel.body)
        if not holder.made:
            return kernel
        whole = tile_ir.sequence([*(tir.AllocBuffer(tile) for tile in holder.made), body])
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, whole, kernel.span)

    return map_kernels(func, rule)


@dataclass(frozen=True)
class _Operand:
    """A shared tile that is A of `products` in a loop, all of them split over warpgroups by `tiles`."""

    products: tuple[tir.Evaluate, ...]
    tile: Any
    tiles: WarpgroupTiling

    @property
    def chunk(self) -> int:
        """Columns of k that are held or not."""
        return min(self.tiles.k, CHUNK_BYTES * 8 // dtype_of(tile_ir.dtype_name(self.tile)).bits)

    def registers(self, columns: int) -> int:
        """Of a thread, for so many columns: a warpgroup has all columns of its rows."""
        bits = dtype_of(tile_ir.dtype_name(self.tile)).bits
        return self.tiles.m // self.tiles.rows * columns * bits // (32 * self.tiles.wgmma.lanes)


class _Holder(Rewriter):
    """Puts the copies in front of the loops, as long as registers are left. `made`: the fragments that hold operands."""

    def __init__(self, kernel: tile_ir.Kernel, ctx: SimtContext, roots: dict[Any, Any], free: int) -> None:
        self.threads, self.ctx, self.roots, self.free = int(kernel.num_threads or 1), ctx, roots, free
        self.fixed = {*roots, *roots.values(), *laid_out(kernel)}  # buffers whose layout is not the product's to choose
        self.made: list[Any] = []
        self.parts: dict[tir.Evaluate, tuple[Any, int]] = {}  # of a product: what holds its A, and how many columns

    def loop(self, node: tir.For) -> Any:
        copies = [c for operand in self._operands(node) if (c := self._hold(operand)) is not None]
        made = super().loop(node)
        return tile_ir.sequence([*copies, made], node.span) if copies else made

    def evaluate(self, node: tir.Evaluate) -> Any:
        if node not in self.parts:
            return node
        held, columns = self.parts[node]
        op = ops.parse(node.value)
        assert isinstance(op, ops.Gemm)
        span = node.value.span or node.span
        first = replace(op, a=tile_ir.whole(held), b=_columns(op.b, 0, columns))
        if columns == op.k:
            return first.to_stmt(span)
        rest = replace(
            op,
            a=_columns(op.a, columns, op.k - columns),
            b=_columns(op.b, columns, op.k - columns),
            clear_accum=tir.const(False, "bool"),
        )
        return tile_ir.sequence([first.to_stmt(span), rest.to_stmt(span)])

    def _operands(self, loop: tir.For) -> list[_Operand]:
        """What could be held over a loop, the smallest first."""
        notes = loop.annotations or {}
        trips = tile_ir.static(loop.extent)
        by_order = notes.get(tile_ir.PIPELINE_ORDER) or notes.get(tile_ir.PIPELINE_STAGE)
        if not is_pipelined(loop) or by_order or (trips is not None and trips < LEAST_STEPS):
            return []
        written = {self.roots.get(b, b) for b in touched(loop.body)[1]}
        users: dict[Any, list[tuple[tir.Evaluate, WarpgroupTiling | None]]] = {}
        for stmt in tile_ir.walk(loop.body, tir.Evaluate):
            op = ops.parse(stmt.value) if is_tile_operator(stmt) else None
            if isinstance(op, ops.Gemm) and stmt not in self.parts:
                users.setdefault(op.a.source, []).append((stmt, self._tiling(op, stmt)))
        found = []
        for tile, products in users.items():
            tiles = products[0][1]
            alike = all(t is not None and _rows(t) == _rows(tiles) for _, t in products if tiles is not None)
            if tiles is not None and alike and self.roots.get(tile, tile) not in written:
                found.append(_Operand(tuple(stmt for stmt, _ in products), tile, tiles))
        return sorted(found, key=lambda o: o.registers(o.tiles.k))

    def _tiling(self, op: ops.Gemm, stmt: Any) -> WarpgroupTiling | None:
        """How warpgroups share a product whose A may move; None for others."""
        a = op.a
        shape = static_shape(a.source)
        if not is_shared(a.source) or shape is None or len(shape) != 2 or not is_whole(a) or op.transpose_a:
            return None
        if not op.transpose_b or not is_shared(op.b.source) or not self.fixed.isdisjoint((a.source, op.b.source)):
            return (
                None  # parts of fewer than 64 columns begin inside of a swizzled line where k is not the last dimension
            )
        tiles = choose_instruction(op, self.threads, self.ctx, stmt.span).tiles
        return tiles if isinstance(tiles, WarpgroupTiling) and tiles.width < BALANCED else None

    def _hold(self, operand: _Operand) -> Any | None:
        """The copy to registers, if any are free."""
        k, chunk, name, span = operand.tiles.k, operand.chunk, operand.tile.name, operand.products[0].span
        columns = k if operand.registers(k) <= self.free else self.free // operand.registers(chunk) * chunk
        narrow = f"products of {operand.tiles.width} columns wait for shared memory"
        if columns <= 0:
            self.ctx.report.note(
                span, f"{name} is read in each step: {narrow}, and no registers are left to hold any of it"
            )
            return None
        taken = operand.registers(columns)
        self.free -= taken
        self.ctx.report.note(
            span, f"{columns} of {k} columns of {name} stay in {taken} registers of a thread: {narrow} otherwise"
        )
        shape = (operand.tiles.m, columns)
        dtype = tile_ir.dtype_name(operand.tile)
        held = tir.decl_buffer(shape, dtype, name=f"{name}_held", scope="local.fragment", layout=None)
        self.made.append(held)
        self.parts |= dict.fromkeys(operand.products, (held, columns))
        return ops.Copy(_columns(tile_ir.whole(operand.tile), 0, columns), tile_ir.whole(held)).to_stmt(span)


def _rows(tiles: WarpgroupTiling | None) -> tuple[int, ...]:
    """What decides which thread holds which element of A."""
    return () if tiles is None else (tiles.m, tiles.k, tiles.rows, tiles.columns, tiles.copies)


def _columns(region: Any, first: int, count: int) -> Any:
    """A part of an operand along k, its last dimension."""
    *others, k = [(r.min, r.extent) for r in region.region]
    return tile_ir.region(region.source, [*others, (k[0] + first if first else k[0], tir.const(count, "int32"))])


def _registers_of_tiles(kernel: tile_ir.Kernel, threads: int, ctx: SimtContext) -> int:
    """About how many registers of a thread all fragments take: its share of a matrix, times the warpgroups that hold the same
    part, and of a vector what belongs to the rows of its tile, two of a warp's 16."""
    shared_by: dict[Any, int] = {}
    for stmt in tile_ir.walk(kernel.body, tir.Evaluate):
        op = ops.operator_of(stmt)
        tiles = choose_instruction(op, threads, ctx, stmt.span).tiles if isinstance(op, ops.Gemm) else None
        if isinstance(op, ops.Gemm) and isinstance(tiles, WarpgroupTiling):
            shared_by[op.a.source] = tiles.columns * tiles.copies
            shared_by[op.c.source] = tiles.copies
    total = 0
    for node in tile_ir.walk(kernel.body, tir.AllocBuffer):
        shape = static_shape(node.buffer)
        if not is_fragment(node.buffer) or shape is None:
            continue
        lanes = threads // shared_by.get(node.buffer, 1) if len(shape) > 1 else 32
        bits = math.prod(shape) * dtype_of(tile_ir.dtype_name(node.buffer)).bits
        total += -(-bits // (32 * lanes))
    return total
