"""Which memory statements touch, and whether lanes meet there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm import ir
from tvm import tirx as tir

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


def meet(a: Access, b: Access, lanes: Uniformity, moving: set[Any]) -> bool:
    """Whether one lane may read through `a` what another wrote through `b` (or the reverse).

    Equal indices that differ between lanes are each lane's own element, unless they move with a loop in `moving`.
    Two writes do not meet: lanes that write one place without a barrier race anyway.
    """
    if not a.buffer.same_as(b.buffer) or a.write == b.write:
        return False
    if a.indices is None or b.indices is None:
        return True
    if not all(same(x, y) for x, y in zip(a.indices, b.indices)):
        return True
    own = [i for i in a.indices if lanes.differs(i)]
    return not own or any(isinstance(n, ir.Var) and n in moving for i in a.indices for n in tile_ir.walk(i))


def conflicts(first: Any, second: Any, lanes: Uniformity) -> bool:
    """Whether `second` must wait until every lane has done `first`."""
    return any(meet(a, b, lanes, set()) for a in accesses(first) for b in accesses(second))


def conflicts_inside(stmt: Any, lanes: Uniformity) -> bool:
    """Whether lanes meet inside a compound statement."""
    found = accesses(stmt)
    moving = {n.loop_var for n in tile_ir.walk(stmt) if isinstance(n, tir.For)}
    writes = [a for a in found if a.write]
    reads = [a for a in found if not a.write]
    return any(meet(w, r, lanes, moving) for w in writes for r in reads)
