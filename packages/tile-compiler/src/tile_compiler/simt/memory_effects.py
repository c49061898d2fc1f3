"""What a statement of the final form does to memory that threads share: intervals of bytes, for placing barriers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.operators.nests import is_global, is_shared
from tile_compiler.simt.wgmma_calls import WgmmaCall, wgmma_call
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

Interval = tuple[float, float]
EVERYTHING: Interval = (-math.inf, math.inf)


@dataclass(frozen=True)
class Effect:
    """`kind`: read, write, async (a `cp.async` destination) or atomic; `index` None: all of the buffer.

    bulk: a tile that a bulk store reads until a wait. Of wgmma: matrix (shared memory, read until a wait), accumulate
    and operand (registers, in use until a wait), with the `shape` of the instruction.
    `together`: a warp reads for all of its threads, whoever names the address, which need not be a multiple of `count`.
    `place`: in a tensor, the index of each dimension. `thread`: the only one that does it, where the text says which.
    """

    kind: str
    buffer: Any
    index: Any
    count: int
    together: bool = False
    shape: tuple[str, ...] = ()
    place: tuple[Any, ...] = ()
    thread: tuple[int, ...] | None = None


def effects(stmt: Any, tracked: set[Any], roots: Mapping[Any, Any]) -> list[Effect]:
    """The effects of a statement on `tracked` buffers (views count for their owners)."""
    found: list[Effect] = []

    def note(
        kind: str, buffer: Any, indices: Any, count: int = 1, together: bool = False, shape: tuple[str, ...] = ()
    ) -> None:
        if roots.get(buffer, buffer) not in tracked:
            return
        index = indices[0] if is_shared(buffer) and len(indices) == 1 else None
        if isinstance(index, ir.prim.Ramp):
            index, count = index.base, int(index.lanes)
        place = tuple(indices) if is_global(buffer) else ()
        found.append(Effect(kind, buffer, index, count, together, shape, place))

    def visit(node: Any) -> None:
        if isinstance(node, tir.BufferStore):
            note("write", node.buffer, node.indices)
            for part in (node.value, *node.indices):
                visit(part)
        elif isinstance(node, ir.TensorLoad):
            note("read", node.source, node.indices)
            for part in node.indices:
                visit(part)
        elif is_call(node, "tl.atomic_elem"):
            target = node.args[0].args[0]
            note("atomic", target.source, target.indices)
            visit(node.args[1])
        elif is_call(node, "tirx.call_extern"):
            _called(node, note, visit)
        else:
            for part in _parts(node):
                visit(part)

    visit(stmt)
    return found


def _called(node: Any, note: Any, visit: Any) -> None:
    name = str(node.args[0].value)
    wgmma = wgmma_call(node)
    if wgmma is not None:
        _wgmma(wgmma, note)
        visit(node.args[-1])
        return
    if name.startswith("tl::wgmma_hold"):
        return  # no access: it only names the registers
    for position, argument in enumerate(node.args[1:]):
        if not is_call(argument, "tirx.address_of", "tirx.buffer_data"):
            visit(argument)
            continue
        target = argument.args[0]
        buffer, indices = (target.source, target.indices) if isinstance(target, ir.TensorLoad) else (target, ())
        bits = dtype_of(tile_ir.dtype_name(buffer)).bits
        if name.startswith("tl::cp_async<"):
            width = int(name[13:-1]) * 8 // bits
            note("async" if position == 0 else "read", buffer, indices, width)
        elif name.startswith("tl::tma_load"):  # who waits for its mbarrier comes after it
            continue
        elif name.startswith("tl::tma_store"):
            note("bulk", buffer, ())
        elif name.startswith(("tl::ldmatrix", "tl::stmatrix")):
            note("write" if position == 0 else "read", buffer, indices, 128 // bits, True)
        elif name.startswith("tl::add_remote<"):  # what it reads is another block's, behind a barrier of the cluster
            note("write" if position == 0 else "read", buffer, ())
        elif name.startswith(("tl::mma", "tl::mfma", "tl::dot4", "tl::shfl", "tl::transpose_quad")):
            note("write", buffer, ())
        else:  # an extern may do anything with the memory that it is given
            note("read", buffer, ())
            note("write", buffer, ())


def _wgmma(wgmma: WgmmaCall, note: Any) -> None:
    note("accumulate", wgmma.accumulator, (), shape=wgmma.shape)
    if wgmma.a_registers is not None:
        note("operand", wgmma.a_registers, (), shape=wgmma.shape)
    for matrix in wgmma.matrices:
        row = matrix.span // matrix.size
        first = (matrix.index + matrix.advance // matrix.size) // row * row
        note("matrix", matrix.buffer, [first], matrix.reach // matrix.size, True)


def _parts(node: Any) -> list[Any]:
    """The children of a statement or an expression."""
    if isinstance(node, tir.SeqStmt):
        return list(node.seq)
    if isinstance(node, (tir.Bind, tir.Evaluate)):
        return [node.value]
    if isinstance(node, tir.For):
        return [node.min, node.extent, node.body]
    if isinstance(node, tir.While):
        return [node.condition, node.body]
    if isinstance(node, tir.IfThenElse):
        return [node.condition, node.then_case, *([] if node.else_case is None else [node.else_case])]
    if isinstance(node, tir.AttrStmt):
        return [node.body]
    if isinstance(node, ir.Call):
        return list(node.args)
    names = ("a", "b", "value", "condition", "true_value", "false_value", "base", "stride")
    return [getattr(node, n) for n in names if hasattr(node, n) and isinstance(getattr(node, n), ir.Expr)]


def interval(node: Any, ranges: Mapping[Any, Interval]) -> Interval:
    """Bounds of an integer expression when its variables are in `ranges`; swizzles are understood."""
    if isinstance(node, tir.IntImm):
        return (node.value, node.value)
    if isinstance(node, ir.Var):
        return ranges.get(node, EVERYTHING)
    if isinstance(node, ir.prim.Cast):
        return interval(node.value, ranges)
    if is_call(node, "tirx.call_extern") and str(node.args[0].value) == "tl::uniform":
        return interval(node.args[1], ranges)
    kind = type(node).__name__
    if not (hasattr(node, "a") and hasattr(node, "b")):
        return EVERYTHING
    (a, b), (c, d) = interval(node.a, ranges), interval(node.b, ranges)
    if kind == "Add":
        return (a + c, b + d)
    if kind == "Sub":
        return (a - d, b - c)
    if kind == "Mul" and c == d and math.isfinite(c):
        return (min(a * c, b * c), max(a * c, b * c)) if c else (0, 0)
    if kind == "FloorDiv" and c == d and c > 0:
        return (a if math.isinf(a) else a // c, b if math.isinf(b) else b // c)
    if kind == "FloorMod" and c == d and c > 0:
        same = math.isfinite(a) and math.isfinite(b) and a // c == b // c
        return (a % c, b % c) if same else (0, c - 1)
    if kind == "RShift" and c == d and a >= 0 and math.isfinite(b):
        return (int(a) >> int(c), int(b) >> int(c))
    if kind == "BitwiseAnd" and c == d and c >= 0:
        return (0, c if math.isinf(b) or a < 0 else min(b, c))
    if kind == "BitwiseXor" and a >= 0 and 0 <= c and math.isfinite(b) and math.isfinite(d):
        if b < d:
            (a, b), (c, d) = (c, d), (a, b)
        block = 1 << int(d).bit_length()
        return (a // block * block, b // block * block + block - 1)
    return EVERYTHING
