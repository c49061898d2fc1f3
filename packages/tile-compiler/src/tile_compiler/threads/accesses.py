"""Which memory statements touch, and whether lanes meet there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import linear
from tile_compiler.loops.conditions import same
from tile_compiler.rewrite import is_call
from tilelang.ir import tile_ir

if TYPE_CHECKING:
    from tile_compiler.threads.uniformity import Uniformity


@dataclass(frozen=True)
class Access:
    """One access to memory that lanes share; `indices` is None for an address or a region."""

    buffer: Any
    indices: tuple[Any, ...] | None
    write: bool


def accesses(stmt: Any) -> list[Access]:
    """All accesses below `stmt` to memory that is not private."""
    found: list[Access] = []
    addressed: list[Any] = []
    for node in tile_ir.walk(stmt):
        if isinstance(node, tir.BufferStore):
            found.append(Access(node.buffer, tuple(node.indices), True))
        elif is_call(node, "tirx.address_of", "tvm_access_ptr"):
            if isinstance(node.args[0], ir.TensorLoad):
                addressed.append(node.args[0])
                found.append(Access(node.args[0].source, None, True))
        elif isinstance(node, ir.TensorLoad) and not any(node.same_as(a) for a in addressed):
            found.append(Access(node.source, tuple(node.indices), False))
        elif isinstance(node, ir.TensorRegion):
            found.append(Access(node.source, None, False))
    return [a for a in found if str(a.buffer.scope()) not in tile_ir.PRIVATE]


def meet(a: Access, b: Access, lanes: Uniformity, moving: dict[Any, int | None]) -> bool:
    """Whether lanes meet: one touches through `a` what another touches through `b`, and one of them writes.

    Equal indices that tell lanes apart are each lane's own element. `moving` are the loop variables (with their
    extents, None if unknown) that may differ between the two accesses.
    """
    if not a.buffer.same_as(b.buffer) or not (a.write or b.write):
        return False
    if a.indices is None or b.indices is None:
        return True
    if not all(same(x, y) for x, y in zip(a.indices, b.indices)):
        return True
    if _mentions(a.indices, moving):
        return not any(_apart(index, lanes, moving) for index in a.indices)
    return not any(lanes.differs(index) for index in a.indices)


def _apart(index: Any, lanes: Uniformity, moving: dict[Any, int | None]) -> bool:
    """Whether an index keeps lanes apart while the loops in `moving` run: `8 * tx + k` with k below 8."""
    threads = [v for v in lanes.threads if any(n.same_as(v) for n in tile_ir.walk(index))]
    if len(threads) != 1:
        return False
    step = linear(index, threads[0])
    if step is None:
        return False
    reach, rest = 0, step[1]
    for var, extent in moving.items():
        found = linear(rest, var)
        if found is None or (found[0] and extent is None):
            return False
        reach += abs(found[0]) * ((extent or 1) - 1)
        rest = found[1]
    return reach < abs(step[0]) and not lanes.differs(rest)


def conflicts(first: Any, second: Any, lanes: Uniformity) -> bool:
    """Whether `second` must wait until every lane has done `first`."""
    return any(meet(a, b, lanes, {}) for a in accesses(first) for b in accesses(second))


def conflicts_inside(stmt: Any, lanes: Uniformity) -> bool:
    """Whether lanes meet inside a compound statement."""
    found = accesses(stmt)
    moving = {n.loop_var: tile_ir.static(n.extent) for n in tile_ir.walk(stmt, tir.For)}
    pairs = [(a, b) for i, a in enumerate(found) for b in found[i + 1 :]]
    # One write meets itself only in another iteration: lanes that write one place at once race anyway.
    pairs += [(a, a) for a in found if a.write and a.indices is not None and _mentions(a.indices, moving)]
    return any(meet(a, b, lanes, moving) for a, b in pairs)


def _mentions(indices: tuple[Any, ...], variables: dict[Any, int | None]) -> bool:
    return any(isinstance(n, ir.Var) and n in variables for i in indices for n in tile_ir.walk(i))


def exchanges(store: Any, lanes: Uniformity) -> bool:
    """Whether one store reads what other lanes write by it."""
    found = accesses(store)
    return any(meet(a, b, lanes, {}) for a in found if a.write for b in found if not b.write)
