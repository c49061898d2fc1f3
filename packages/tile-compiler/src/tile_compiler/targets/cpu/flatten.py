"""N-dimensional buffers -> one flat, typed pointer per piece of memory, indices in int64.

    A[i, j] = B[j]      ->      A[int64(i) * stride + int64(j)] = B[int64(j)]

Index products are int64, because `row * stride` of int32 values passes 2^31 in large tensors. Buffers that share memory
(views, scratch reused by the planner) are given as one `Root`; if they disagree on the element type, the root is
*raw*: its accesses become untyped loads and stores, because LLVM may assume that pointers TVM calls different do not alias.

Sub-byte buffers in global memory are packed along the last dimension. Here they are indexed in elements, rows padded
to whole bytes; `legalize_types.py` splits the index into byte and shift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tvm import ir
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.rewrite import Rewriter, remake_loop
from tilelang.ir.dtypes import dtype_of as dtype_facts

from .expressions import ExpressionRewriter, dtype_of, op_name, scalar_of
from .lowered import LoweredLaunch


def storage_dtype(dtype: str) -> str:
    """The dtype that on-chip memory holds for one element of `dtype`: one byte or more each."""
    scalar, lanes = scalar_of(str(dtype))
    facts = dtype_facts(scalar)
    if scalar == "bool" or (facts.is_float and facts.bits <= 8):
        kept = "uint8"
    elif scalar == "bfloat16":
        kept = "uint16"
    elif scalar == "tfloat32":
        kept = "float32"
    elif facts.bits < 8:
        kept = "int8" if facts.kind == "int" else "uint8"
    else:
        kept = scalar
    return kept if lanes == 1 else f"{kept}x{lanes}"


def storage_bytes(dtype: str) -> int:
    """Bytes of one on-chip element."""
    scalar, lanes = scalar_of(str(dtype))
    return lanes * dtype_facts(storage_dtype(scalar)).itemsize


@dataclass(eq=False)
class Root:
    """A piece of memory: a parameter, overlapping scratch buffers, or a private allocation.

    `flats` holds one flat buffer variable for each element type that is used in it; `packed` says that sub-byte
    elements share bytes, `untyped` that the memory may also be reached through another root. `size` is the number of
    bytes, 0 for a parameter.
    """

    name: str
    scope: str
    packed: bool = False
    untyped: bool = False
    align: int = 0
    offset: int = 0  # scratch: byte offset of the root
    size: int = 0
    flats: dict[str, Any] = field(default_factory=dict)

    @property
    def raw(self) -> bool:
        return self.untyped or len({storage_dtype(d) for d in self.flats}) > 1

    def flat(self, dtype: str) -> Any:
        if dtype not in self.flats:
            suffix = "" if not self.flats else f"_{dtype}"
            length = tir.const(max(1, self.size // storage_bytes(dtype)), "int64")
            self.flats[dtype] = tir.decl_buffer((length,), dtype, self.name + suffix, scope=self.scope, layout=None)
        return self.flats[dtype]


@dataclass(frozen=True)
class Place:
    """Where a buffer lives: its root, and its distance from the root's start in elements."""

    root: Root
    offset: int
    flat: Any


@dataclass
class FlatBody:
    """A launch body over flat buffers. `roots_of` finds the root of a flat buffer variable."""

    body: Any
    params: list[Root]
    scratch: list[Root]
    roots_of: dict[Any, Root]


def flatten(launch: LoweredLaunch) -> FlatBody:
    """Gives every buffer of a launch its flat place and rewrites the body."""
    places: dict[Any, Place] = {}
    params = []
    for buffer in launch.params:
        root = Root(buffer.name, "global", packed=True, untyped=launch.may_alias)
        params.append(root)
        places[buffer] = _place(root, buffer, 0)
    scratch = _overlapping(launch.scratch)
    for root, members in scratch:
        for buffer, offset in members:
            places[buffer] = _place(root, buffer, offset - root.offset)
    body = _Flatten(places).body(launch.body)
    roots = [*params, *(r for r, _ in scratch), *(p.root for p in places.values())]
    roots_of = {flat: root for root in roots for flat in root.flats.values()}
    return FlatBody(body, params, [r for r, _ in scratch], roots_of)


def _place(root: Root, buffer: Any, byte_offset: int) -> Place:
    scalar, _ = scalar_of(str(buffer.ty.dtype))
    if byte_offset % storage_bytes(scalar):
        raise ValueError(f"{buffer.name}: byte offset {byte_offset} is no multiple of its element size")
    return Place(root, byte_offset // storage_bytes(scalar), root.flat(scalar))


def _overlapping(scratch: tuple[tuple[Any, int], ...]) -> list[tuple[Root, list[tuple[Any, int]]]]:
    """Groups scratch buffers whose byte ranges touch the same bytes."""
    groups: list[tuple[Root, list[tuple[Any, int]]]] = []
    end = -1
    for buffer, offset in sorted(scratch, key=lambda item: item[1]):
        if offset >= end:
            groups.append((Root(buffer.name, "shared", align=64, offset=offset), []))
        root, members = groups[-1]
        members.append((buffer, offset))
        end = max(end, offset + _bytes_on_chip(buffer))
        root.size = end - root.offset
    return groups


def _bytes_on_chip(buffer: Any) -> int:
    return storage_bytes(str(buffer.ty.dtype)) * math.prod(int(extent) for extent in buffer.ty.shape)


def widen(node: Any) -> Any:
    """An index expression in int64: the sums and products inside are widened too, so they cannot overflow."""
    if dtype_of(node) == "int64":
        return node
    if isinstance(node, prim.IntImm):
        return tir.const(int(node.value), "int64")
    if isinstance(node, (prim.Add, prim.Sub, prim.Mul)) and not dtype_of(node).startswith("u"):
        return type(node)(widen(node.a), widen(node.b))
    if isinstance(node, prim.Cast) and dtype_of(node.value) == "int64":
        return node.value  # a widened loop variable, narrowed for int32 uses
    return prim.Cast("int64", node)


class _Flatten(Rewriter):
    """The rewriting of statements and, through `_FlattenExpression`, of loads."""

    def __init__(self, places: dict[Any, Place]) -> None:
        self.places = places
        self.expression = _FlattenExpression(self)

    def expr(self, node: Any) -> Any:
        return self.expression(node)

    def alloc(self, node: tir.AllocBuffer) -> Any:
        buffer = node.buffer
        root = Root(buffer.name, "local", size=_bytes_on_chip(buffer))
        self.places[buffer] = _place(root, buffer, 0)
        return tir.AllocBuffer(self.places[buffer].flat, span=node.span)

    def alias(self, node: tir.DeclBuffer) -> Any:
        """A view: another shape or element type of the same memory. Leaves no statement."""
        source = node.data.args[0]
        old = self.places[source]
        byte_offset = old.offset * storage_bytes(str(old.flat.ty.dtype))
        self.places[node.buffer] = _place(old.root, node.buffer, byte_offset)
        return None

    def loop(self, node: tir.For) -> Any:
        if node.kind != tir.ForKind.VECTORIZED or dtype_of(node.loop_var) == "int64":
            return super().loop(node)
        # Vector lanes must be affine in int64; a cast of the lane index would turn loads into gathers.
        wide = tir.Var(node.loop_var.name, "int64")
        self.expression.renamed[node.loop_var] = prim.Cast(dtype_of(node.loop_var), wide)
        body = self.body(node.body)
        return remake_loop(
            node, loop_var=wide, low=widen(self.expr(node.min)), extent=widen(self.expr(node.extent)), body=body
        )

    def store(self, node: tir.BufferStore) -> Any:
        index, flat = self.index(node.buffer, node.indices)
        return tir.BufferStore(flat, self.expr(node.value), [index], span=node.span)

    def index(self, buffer: Any, indices: Any) -> tuple[Any, Any]:
        """(flat index, flat buffer) of an access. Vector lanes may stand in the last index."""
        place = self.places.get(buffer)
        if place is None:
            raise ValueError(f"buffer {buffer.name} is used but never declared")
        scalar, lanes = scalar_of(str(buffer.ty.dtype))
        shape = list(buffer.ty.shape)
        strides = [widen(s) for s in buffer.ty.strides] if len(buffer.ty.strides) else _row_major(shape, scalar, place)
        parts = []
        vector = None
        for i, stride in zip((self.expr(i) for i in indices), strides):
            if isinstance(i, (prim.Ramp, prim.Broadcast)) or scalar_of(dtype_of(i))[1] > 1:
                if not isinstance(i, prim.Ramp) or vector is not None:
                    raise ValueError(f"{buffer.name}: vector indices must be one Ramp")
                vector = (widen(i.stride) * stride, int(i.lanes))
                i = i.base
            parts.append(widen(i) * stride)
        total = tir.const(0, "int64")
        for part in parts:
            total = total + part
        if lanes > 1:  # an element is a short vector: `lanes` scalars side by side
            if vector is not None:
                raise ValueError(f"{buffer.name}: a vector of vectors")
            total, vector = total * lanes, (tir.const(1, "int64"), lanes)
        if place.offset:
            total = total + place.offset
        return (prim.Ramp(total, *vector) if vector else total), place.flat


def _row_major(shape: list[Any], scalar: str, place: Place) -> list[Any]:
    """C-order strides in elements; rows of packed sub-byte elements take whole bytes."""
    per = dtype_facts(scalar).per_byte if place.root.packed else 1
    strides = [tir.const(1, "int64")]
    for axis in range(len(shape) - 1, 0, -1):
        extent = widen(shape[axis])
        if axis == len(shape) - 1 and per > 1:
            extent = prim.FloorDiv(extent + (per - 1), tir.const(per, "int64")) * per
            if isinstance(shape[axis], prim.IntImm):
                extent = tir.const(-(-int(shape[axis]) // per) * per, "int64")
        strides.insert(0, extent * strides[0])
    return strides if shape else []


class _FlattenExpression(ExpressionRewriter):
    def __init__(self, owner: _Flatten) -> None:
        self.owner = owner
        self.renamed: dict[Any, Any] = {}

    def on_var(self, node: Any) -> Any:
        return self.renamed.get(node, node)

    def on_load(self, node: Any) -> Any:
        index, flat = self.owner.index(node.source, node.indices)
        return tir.BufferLoad(flat, [index], span=node.span)

    def on_call(self, node: Any) -> Any:
        if op_name(node) == "buffer_data" and isinstance(node.args[0], ir.Var):
            index, flat = self.owner.index(node.args[0], [tir.const(0, "int64")] * len(node.args[0].ty.shape))
            return tir.address_of(tir.BufferLoad(flat, [index]))
        return super().on_call(node)
