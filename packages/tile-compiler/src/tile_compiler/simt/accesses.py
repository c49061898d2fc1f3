"""The memory accesses of a parallel nest: index maps of fragments, vector widths of shared and global memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import depends, linear
from tile_compiler.ranges import Ranges
from tile_compiler.rewrite import is_call
from tile_compiler.simt.operators.nests import is_fragment, is_global, is_shared
from tile_compiler.simt.terms import from_tir
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import IndexExpr, Layout, placeholders

WIDTHS = (128, 64, 32, 16, 8, 4, 2)  # elements
VECTOR_BITS = 128


@dataclass(frozen=True)
class FragmentAccess:
    """One element of a fragment, touched by each iteration: its index in the layout algebra (None: not one)."""

    buffer: Any
    indices: tuple[IndexExpr, ...] | None
    is_write: bool
    span: Any


@dataclass(frozen=True)
class WideAccess:
    """A shared or global element; `widths[axis]` is how many neighbours along a loop axis one access may move.

    For shared memory the buffer's layout may allow fewer. `steps[axis]` says whether the axis walks neighbours.
    """

    buffer: Any
    indices: tuple[Any, ...]
    is_write: bool
    widths: tuple[int, ...]
    steps: tuple[bool, ...]

    def width(self, axis: int, layout: Any) -> int:
        width = self.widths[axis]
        return min(width, layout.vector_width(-1, width)) if isinstance(layout, Layout) and width > 1 else width


@dataclass(frozen=True)
class NestAccesses:
    fragments: tuple[FragmentAccess, ...]
    wide: tuple[WideAccess, ...]

    @property
    def least_width(self) -> int:
        """Neighbours that one thread must do together: those that share a byte which the nest writes."""
        return max((per_byte(a.buffer) for a in self.wide if a.is_write), default=1)


def collect(nest: tile_ir.ParallelNest, ranges: Ranges) -> NestAccesses:
    """Every access in the nest's body."""
    fragments: list[FragmentAccess] = []
    wide: list[WideAccess] = []
    inner = {n.loop_var for n in tile_ir.walk(nest.body, tir.For)}
    bound = {n.var: n.value for n in tile_ir.walk(nest.body, tir.Bind)}
    variables = dict(zip(nest.loop_vars, placeholders(len(nest.loop_vars))))
    passed = addressed(nest.body)

    def note(buffer: Any, indices: Sequence[Any], is_write: bool, span: Any, alone: bool = False) -> None:
        indices = [_resolved(i, bound) for i in indices]
        if is_fragment(buffer):
            exprs = [from_tir(i, variables) for i in indices]
            known = None if any(e is None for e in exprs) else tuple(e for e in exprs if e is not None)
            fragments.append(FragmentAccess(buffer, known, is_write, span))
        elif is_global(buffer) or is_shared(buffer):
            moving = [depends(tir.Evaluate(i), inner) for i in indices]
            rank = len(nest.loop_vars)
            if alone or any(moving):
                widths, steps = (1,) * rank, (False,) * rank
            else:
                found = [neighbours(buffer, indices, v, ranges) for v in nest.loop_vars]
                widths, steps = tuple(w for w, _ in found), tuple(s for _, s in found)
            wide.append(WideAccess(buffer, tuple(indices), is_write, widths, steps))

    for node in tile_ir.walk(nest.body):
        if isinstance(node, ir.TensorLoad):
            note(node.source, node.indices, False, nest.span, any(node.same_as(p) for p in passed))
        elif isinstance(node, tir.BufferStore):
            note(node.buffer, node.indices, True, node.span or nest.span)
        elif is_call(node, "tl.atomic_elem"):
            target = node.args[0].args[0]
            note(target.source, target.indices, True, nest.span)
    return NestAccesses(tuple(fragments), tuple(wide))


def addressed(body: Any) -> list[Any]:
    """The elements whose address is taken: who gets it may go on from there, so they stay in their memory."""
    found = [n.args[0] for n in tile_ir.walk(body, ir.Call) if is_call(n, "tirx.address_of")]
    return [n for n in found if isinstance(n, ir.TensorLoad)]


def _resolved(index: Any, bound: dict[Any, Any]) -> Any:
    """An index with names bound inside the nest replaced by their values."""
    for _ in range(8):
        if not any(n in bound for n in tile_ir.walk(tir.Evaluate(index), ir.Var)):
            break
        index = tile_ir.substitute(index, bound)
    return index


def neighbours(buffer: Any, indices: Sequence[Any], var: Any, ranges: Ranges) -> tuple[int, bool]:
    """(elements along loop variable `var` that one aligned access may move, whether `var` walks neighbours)."""
    if not indices or any(depends(tir.Evaluate(i), {var}) for i in indices[:-1]):
        return 1, False
    found = linear(indices[-1], var)
    if found is None or found[0] != 1:
        return 1, False
    strides = buffer.ty.strides
    if strides and tile_ir.static(strides[-1]) != 1:
        return 1, False
    kind = dtype_of(tile_ir.dtype_name(buffer))
    if kind.lanes > 1:
        return 1, True
    rest = found[1]
    for width in WIDTHS:
        fits = per_byte(buffer) <= width <= VECTOR_BITS // kind.bits
        if fits and aligned(buffer, rest, indices[-1], width, ranges):
            return width, True
    return 1, True


def per_byte(buffer: Any) -> int:
    """Elements that share a byte of memory: 1 for whole bytes and more."""
    kind = dtype_of(tile_ir.dtype_name(buffer))
    return 1 if kind.kind == "bool" else kind.per_byte


def aligned(buffer: Any, first: Any, last: Any, width: int, ranges: Ranges) -> bool:
    """Whether `width` neighbours from index `first` on lie at a multiple of their size, in bounds all or none.

    `last` is the index of the last of them, or one that covers them all.
    """
    size, rank = buffer.ty.shape[-1], len(buffer.ty.shape)
    if not _multiple(first, width, ranges):
        return False
    if is_shared(buffer):
        return True  # its layout answers the rest
    if buffer in ranges.any_address:
        return False
    steps = list(buffer.ty.strides)[:-1] if buffer.ty.strides else ([size] if rank > 1 else [])
    if not all(_multiple(s, width, ranges) for s in steps):
        return False
    if _multiple(size, width, ranges):
        return True
    return ranges.proves(last < size) and ranges.proves(last >= 0)


def _multiple(value: Any, width: int, ranges: Ranges) -> bool:
    number = tile_ir.static(value)
    if number is not None:
        return number % width == 0
    return ranges.proves(tir.floormod(value, tir.const(width, str(value.ty))) == 0)
