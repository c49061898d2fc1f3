"""Which values differ between the lanes of a block, and what kind of work each statement is."""

from __future__ import annotations

import enum
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.threads.accesses import conflicts_inside
from tilelang import ops
from tilelang.ir import tile_ir

EFFECTS = ("tl.atomic_elem", "tirx.call_extern")


class Kind(enum.Enum):
    """BLOCK: done by the whole block together. CONTROL: control around such work. UNIFORM: equal in all lanes, so once is
    enough. LANE: done by each lane."""

    BLOCK = enum.auto()
    CONTROL = enum.auto()
    UNIFORM = enum.auto()
    LANE = enum.auto()


class Uniformity:
    """The variables and private buffers whose values differ between lanes, and the kinds that follow.

    Starts from the thread indices and grows to a fixed point: a private buffer that only one lane may write, or that
    is written inside code that runs for each lane, differs too.
    """

    def __init__(self, kernel: tile_ir.Kernel) -> None:
        self.threads = [var for var, _ in kernel.threads]
        self.varying: set[Any] = set(self.threads)
        self.many = (kernel.num_threads or 1) > 1
        self.unmasked: list[Any] = []
        size = -1
        while size != len(self.varying):
            size = len(self.varying)
            self._visit(kernel.body, False)

    def differs(self, node: Any) -> bool:
        """Whether an expression (or the values in a statement) may differ between lanes."""
        return any(
            (isinstance(n, ir.Var) and n in self.varying) or (self.many and is_call(n, "tl.atomic_elem"))
            for n in tile_ir.walk(node)
        )

    def kind(self, stmt: Any) -> Kind:
        if isinstance(stmt, (tir.SeqStmt, tir.AttrStmt)):
            raise AssertionError("kinds are asked of single statements")
        if tile_ir.as_parallel(stmt) is not None or isinstance(stmt, (tir.AllocBuffer, tir.DeclBuffer)):
            return Kind.BLOCK
        if is_block_operator(stmt):
            return Kind.BLOCK
        if isinstance(stmt, (tir.For, tir.While, tir.IfThenElse)):
            return self._compound(stmt)
        if self.differs(stmt) or (self.many and has_effect(stmt)):
            return Kind.LANE
        return Kind.UNIFORM

    def _compound(self, stmt: Any) -> Kind:
        if contains_block_work(stmt):
            return Kind.CONTROL
        uniform = not self.differs(stmt) and not (self.many and has_effect(stmt))
        if uniform:
            return Kind.UNIFORM
        if conflicts_inside(stmt, self):
            if isinstance(stmt, tir.IfThenElse) or not self.differs(control_of(stmt)):
                return Kind.CONTROL
            if not any(s.same_as(stmt) for s in self.unmasked):
                self.unmasked.append(stmt)
        return Kind.LANE

    def _visit(self, stmt: Any, divergent: bool) -> None:
        """Collect what differs; `divergent`: only some lanes, or each lane by itself, get here."""
        for s in tile_ir.statements(stmt):
            if tile_ir.as_parallel(s) is not None:
                continue
            if isinstance(s, tir.Bind):
                if self.differs(s.value):
                    self.varying.add(s.var)
            elif isinstance(s, tir.BufferStore):
                private = str(s.buffer.scope()) in tile_ir.PRIVATE
                if private and (divergent or self.differs(s)):
                    self.varying.add(s.buffer)
            elif isinstance(s, tir.AttrStmt):
                self._visit(s.body, divergent)
            elif isinstance(s, (tir.For, tir.While, tir.IfThenElse)):
                apart = divergent or self.kind(s) == Kind.LANE or self.differs(control_of(s))
                if isinstance(s, tir.For) and self.differs(control_of(s)):
                    self.varying.add(s.loop_var)
                for body in bodies_of(s):
                    self._visit(body, apart)


def control_of(stmt: Any) -> Any:
    """What decides how often a compound statement's body runs, as one node."""
    if isinstance(stmt, tir.For):
        return tile_ir.sequence([tir.Evaluate(stmt.min), tir.Evaluate(stmt.extent)])
    return tir.Evaluate(stmt.condition)


def bodies_of(stmt: Any) -> list[Any]:
    if isinstance(stmt, tir.IfThenElse):
        return [stmt.then_case] if stmt.else_case is None else [stmt.then_case, stmt.else_case]
    return [stmt.body]


def is_block_operator(stmt: Any) -> bool:
    """A tile operator; printing and asserting are thread-level code."""
    call = tile_ir.tile_call(stmt)
    if call is None or is_call(call, "tl.atomic_elem"):
        return False
    return str(call.op.name) in ops.OPERATORS and str(call.op.name) not in ("tl.print", "tl.device_assert")


def contains_block_work(stmt: Any) -> bool:
    for node in tile_ir.walk(stmt):
        if isinstance(node, tir.Evaluate) and is_block_operator(node):
            return True
        if isinstance(node, tir.For) and tile_ir.as_parallel(node) is not None:
            return True
        if isinstance(node, tir.AllocBuffer) and str(node.buffer.scope()) not in tile_ir.PRIVATE:
            return True
    return False


def has_effect(stmt: Any) -> bool:
    return any(is_call(n, *EFFECTS) for n in tile_ir.walk(stmt, ir.Call))
