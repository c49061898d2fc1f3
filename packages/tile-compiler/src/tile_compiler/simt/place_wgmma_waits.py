"""Place the waits for the asynchronous matrix instructions of warpgroups, each as late as it may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import RELEASE, is_call, map_kernels
from tile_compiler.simt.accesses import addressed
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.insert_barriers import Placer
from tile_compiler.simt.memory_effects import Effect
from tile_compiler.simt.operators.nests import address, is_global, run
from tile_compiler.simt.since_barrier import Touch, overlap
from tile_compiler.simt.statement_tree import Node, called, is_barrier, leaves
from tile_compiler.simt.wgmma_calls import wgmma_call
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

DEEPEST = 8  # groups under way that are told apart; older ones count as the oldest of these

WAIT = "tl::wgmma_wait<"

Shape = tuple[str, ...]


@dataclass(frozen=True)
class _Group:
    """What a group of wgmma uses until it is waited for: accumulators by the shape of their instructions, registers of
    A, and bytes of shared memory."""

    accumulators: frozenset[tuple[Any, Shape]] = frozenset()
    operands: frozenset[Any] = frozenset()
    matrices: frozenset[Touch] = frozenset()

    def __or__(self, other: _Group) -> _Group:
        return _Group(
            self.accumulators | other.accumulators,
            self.operands | other.operands,
            self.matrices | other.matrices,
        )


@dataclass
class _Pending:
    """The groups under way, the newest first; `open` has what was issued after the last commit."""

    groups: list[_Group] = field(default_factory=list)
    open: _Group = field(default_factory=_Group)

    def copy(self) -> _Pending:
        return _Pending(list(self.groups), self.open)

    def merge(self, other: _Pending) -> None:
        """What may be under way in either state: a group counts as young as it is in either."""
        count = max(len(self.groups), len(other.groups))
        mine, yours = (g + [_Group()] * (count - len(g)) for g in (self.groups, other.groups))
        self.groups = [a | b for a, b in zip(mine, yours)]
        self.open = self.open | other.open

    def commit(self) -> None:
        self.groups.insert(0, self.open)
        self.open = _Group()
        for late in self.groups[DEEPEST:]:
            self.groups[DEEPEST - 1] = self.groups[DEEPEST - 1] | late
        del self.groups[DEEPEST:]


def place_wgmma_waits(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Wait before registers or shared memory are used that a wgmma under way still needs.

    before:     for k: copy(A[k], s[k % 2]); fence; wgmma(acc, s[k % 2]); commit
                C = acc
    after:      for k: wait<1>; copy(A[k], s[k % 2]); fence; wgmma(acc, s[k % 2]); commit
                wait<0>; hold(acc); C = acc

    Groups end in the order in which they were committed: a wait leaves as many of the newest under way as possible.
    Waited for are uses of an accumulator or of A's registers by anything but a wgmma of the same shape on the same
    accumulator, ordinary stores and copies to shared memory that a wgmma reads, the user's arrivals at mbarriers (unless
    his own wait stands right before one and says what may stay under way), and the end of the kernel. Loops are
    followed as `insert_barriers` does it; where two ways meet, what either has left under way counts. A wait for shared
    memory comes before the barrier in front of the use, as other warps read that memory as well. Waits that are there
    already count. Where a loop's threads load tiles element by element, its products end in their iteration: ptxas moves
    accumulators between registers there, and then runs all products one by one (C7515).
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        if not any(wgmma_call(n) for n in tile_ir.walk(kernel.body, ir.Call)):
            return kernel
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, _Waits(kernel).run(), kernel.span)

    return map_kernels(func, rule)


@dataclass
class _Wait:
    """Before a statement at most `pending` groups may be under way (None: no matter). What has ended by then, or by the
    wait that the statement is, are the accumulators in `ended`."""

    pending: int | None = None
    ended: list[Any] = field(default_factory=list)

    def end(self, state: _Pending, pending: int) -> None:
        """All but the `pending` newest groups end."""
        under_way = {acc for g in state.groups[:pending] for acc, _ in g.accumulators}
        gone = {acc for g in state.groups[pending:] for acc, _ in g.accumulators} - under_way
        self.ended += [acc for acc in gone if acc not in self.ended]
        del state.groups[pending:]


class _Waits(Placer):
    """`waits`: by the node of a statement, what stands before or behind it."""

    def __init__(self, kernel: tile_ir.Kernel) -> None:
        super().__init__(kernel)
        self.waits: dict[int, _Wait] = {}
        self.ends: dict[int, Node] = {}  # by the node of a group or loop: a statement behind its last one
        self.whole: set[int] = set()  # the ends of loops whose iterations leave nothing under way
        for call in filter(None, map(wgmma_call, tile_ir.walk(kernel.body))):
            self.tracked |= {r for r in (call.accumulator, call.a_registers) if r is not None}

    def run(self) -> Any:
        tree, state = self.tree(), _Pending()
        self._visit(tree, state)
        body = tile_ir.statements(self._rebuilt(tree))
        if any(g != _Group() for g in state.groups):
            body.append(run(f"{WAIT}0>", span=self.kernel.span))
        return tile_ir.sequence(body)

    def varies(self, value: Any) -> bool:
        """A wait may stand under any condition: the threads of a warpgroup take the same way to a wgmma."""
        return False

    def part(self, loop: Any) -> bool:
        """Nor does it matter who leaves a loop."""
        return False

    def _visit(self, node: Node, state: Any) -> None:
        if node.kind != "seq":
            super()._visit(node, state)
            return
        for position, part in enumerate(node.parts):
            self._before(node.parts, position, state)
            self._visit(part, state)

    def _ended(self, node: Node, before: Any, after: Any) -> Any:
        """Products are under way behind a loop as its last iteration left them."""
        return after.copy()

    def _group(self, node: Node, state: Any) -> None:
        """T.gemm is done when the work of a group is: others may be waiting for it behind."""
        own, tail = _Pending(), self._tail(node)
        self._visit(node.parts[0], own)
        self._end_all(tail, own)

    def _loop(self, node: Node, state: Any) -> None:
        if _loads_elements(node.stmt):
            self.whole.add(id(self._tail(node)))
        super()._loop(node, state)

    def _tail(self, node: Node) -> Node:
        """A statement behind the last one of a group or loop."""
        if id(node) not in self.ends:
            self.ends[id(node)] = Node("leaf", tile_ir.sequence([]))
            node.parts[0].parts.append(self.ends[id(node)])
        return self.ends[id(node)]

    def _end_all(self, tail: Node, state: _Pending) -> None:
        if any(g != _Group() for g in state.groups):
            self.waits.setdefault(id(tail), _Wait(0)).end(state, 0)

    def _before(self, parts: list[Node], position: int, state: _Pending) -> None:
        """The wait that statement number `position` needs."""
        part = parts[position]
        if id(part) in self.whole:
            self._end_all(part, state)
        inside = self._inside(part)
        issues = any(e.kind == "matrix" for e in inside)
        used = part.effects if issues and part.kind != "leaf" else inside
        for effect in used:
            for pending, group in enumerate(state.groups):
                if self._clashes(effect, group):
                    at = part if self._in_registers(effect) else _in_front_of_barrier(parts, position)
                    wait = self.waits.setdefault(id(at), _Wait())
                    wait.pending = pending if wait.pending is None else min(wait.pending, pending)
                    wait.end(state, pending)
                    break
        told = position > 0 and called(parts[position - 1].stmt).startswith(WAIT)
        if state.groups and part.kind == "leaf" and _releases(part.stmt) and not told:
            self.waits.setdefault(id(part), _Wait()).pending = 0
        wait = self.waits.get(id(part), _Wait())
        if wait.pending is not None:
            wait.end(state, wait.pending)

    def _in_registers(self, effect: Effect) -> bool:
        return self.root(effect.buffer) not in self.offsets

    def _clashes(self, effect: Effect, group: _Group) -> bool:
        """Whether something may not be done while a group is under way."""
        buffer, kind = self.root(effect.buffer), effect.kind
        if not self._in_registers(effect):
            return kind in ("write", "async", "atomic") and any(overlap(self._touch(effect), m) for m in group.matrices)
        if kind == "accumulate":
            others = any(acc.same_as(buffer) and shape != effect.shape for acc, shape in group.accumulators)
            return others or buffer in group.operands
        result = any(acc.same_as(buffer) for acc, _ in group.accumulators)
        return result or (kind == "write" and buffer in group.operands)

    def _do(self, effects: list[Effect], state: Any) -> None:
        """What the condition of a statement reads puts nothing under way; `_before` has seen to what it must wait for."""

    def _leaf(self, node: Node, state: _Pending) -> None:  # type: ignore[override] # another state than the barriers have
        name = called(node.stmt)
        if name == "tl::wgmma_commit":
            state.commit()
        elif name.startswith(WAIT):
            self.waits.setdefault(id(node), _Wait()).end(state, int(name[len(WAIT) : -1]))
        elif leaves(node.stmt) and self.exits:
            self.left_by(node.stmt).append(state.copy())  # type: ignore[arg-type]
        for effect in node.effects:
            buffer = self.root(effect.buffer)
            if effect.kind == "accumulate":
                state.open |= _Group(accumulators=frozenset({(buffer, effect.shape)}))
            elif effect.kind == "operand":
                state.open |= _Group(operands=frozenset({buffer}))
            elif effect.kind == "matrix":
                state.open |= _Group(matrices=frozenset({self._touch(effect)}))

    def _rebuilt(self, node: Node) -> Any:
        if node.kind != "seq":
            return super()._rebuilt(node)
        return tile_ir.sequence([s for p in node.parts for s in self._with_wait(p)])

    def _with_wait(self, node: Node) -> list[Any]:
        wait, stmt = self.waits.get(id(node), _Wait()), self._rebuilt(node)
        holds = [_hold(acc, node.stmt.span) for acc in wait.ended]
        if wait.pending is None:
            return [stmt, *holds]
        return [run(f"{WAIT}{wait.pending}>", span=node.stmt.span), *holds, stmt]


def _releases(stmt: Any) -> bool:
    """Whether other threads, or copies, may use after a statement what this one has used."""
    return any(RELEASE in tile_ir.attrs_of(n) for n in tile_ir.walk(stmt, ir.Call))


def _loads_elements(loop: tir.For) -> bool:
    """Whether a thread has several elements of global memory to load in each iteration, one by one."""
    for inner in tile_ir.walk(loop.body, tir.For):
        passed = addressed(inner.body)
        for n in tile_ir.walk(inner.body, ir.TensorLoad):
            narrow = is_global(n.source) and not any(isinstance(i, tir.Ramp) for i in n.indices)
            if narrow and not any(n.same_as(p) for p in passed):
                return True
    return False


def _in_front_of_barrier(parts: list[Node], position: int) -> Node:
    """The barrier before statement number `position`, if nothing is issued between the two; else the statement."""
    for node in reversed(parts[:position]):
        if is_barrier(node.stmt):
            return node
        if any(
            is_call(n, "tirx.call_extern") and "wgmma" in str(n.args[0].value) for n in tile_ir.walk(node.stmt, ir.Call)
        ):
            break
    return parts[position]


def _hold(registers: Any, span: Any) -> Any:
    count = int(registers.ty.shape[0]) * dtype_of(tile_ir.dtype_name(registers)).bits // 32
    return run(f"tl::wgmma_hold<{count}>", address(registers, 0), span=span)
