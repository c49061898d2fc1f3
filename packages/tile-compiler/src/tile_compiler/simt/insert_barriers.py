"""Place barriers between accesses of different threads to one place of shared memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import ir, sym
from tvm import tirx as tir

from tile_compiler.loops.affine import period
from tile_compiler.passes.lower_tile_ops import alias_roots
from tile_compiler.ranges import conjuncts
from tile_compiler.rewrite import is_call, map_kernels, remake_loop, substitute
from tile_compiler.simt.beside import Names, beside, same_threads
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.followed_iterations import MANY, followed
from tile_compiler.simt.memory_effects import EVERYTHING, Effect, Interval, effects, interval
from tile_compiler.simt.operators.nests import REGISTERS, is_shared, run
from tile_compiler.simt.owners import NOBODY, Owners, apart, owners
from tile_compiler.simt.plan_shared_memory import OFFSET, shared_bytes
from tile_compiler.simt.since_barrier import SHARED, Group, State, Touch, overlap
from tile_compiler.simt.statement_tree import (
    BLOCK_BARRIERS,
    Node,
    barriers,
    below,
    called,
    copied,
    in_front,
    is_barrier,
    leaves,
    waits,
)
from tile_compiler.simt.uniformity import Uniformity
from tile_compiler.simt.written_again import tracked_buffers
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

ASYNCHRONOUS = ("matrix", "bulk")  # kinds of effects: reads by the asynchronous proxy
CHANGES = ("write", "async", "atomic")

BARRIERS = 16  # that the hardware has; 0 is the block's, groups take the last ones, as users count from the first


def insert_barriers(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Follow the block through its statements; where one conflicts with what came since the last barrier, place one.

    before:     s[tx] = A[tx]; B[tx] = s[63 - tx]
    after:      s[tx] = A[tx]; tl::sync_threads(); B[tx] = s[63 - tx]

    Loops are followed for enough iterations to see every version of a pipelined buffer meet every other, so that
    barriers that iterations need between them are found too. Accesses conflict where different threads touch one
    byte, as far as that can be evaluated. A statement under a condition that threads disagree on gets its barrier
    before the condition. A use of a copy in flight gets a wait as well. What wgmma reads counts as read at its wait too:
    until then it may happen. Ordinary stores to a tile that wgmma reads are followed by a fence of every thread before
    the barrier, as asynchronous work sees memory by another way (PTX ISA, "Async proxy"). A tile
    that a bulk store reads is written again, and its block ends, after a wait of the thread that started the store.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        placer = Placer(kernel)
        body = placer.run()
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


class Placer:
    """Follows a block and finds the barriers, fences and waits that its shared memory needs."""

    def __init__(self, kernel: tile_ir.Kernel) -> None:
        self.kernel = kernel
        self.uniform = Uniformity(kernel)
        self.tracked = tracked_buffers(kernel)
        self.roots = alias_roots(kernel.body)
        self.analyzer = sym.Analyzer()
        self.ranges: dict[Any, Interval] = {}
        self.values: dict[Any, Any] = {}
        self.last: dict[Any, Any] = {}  # of loops in whose last iteration the block is, the variable's value
        self.exits: list[list[State]] = []  # of the loops around: where they are left
        self.cut: list[list[State]] = []  # and where an iteration is left for the next
        self.offsets: dict[Any, int] = {}
        self.sizes: dict[Any, int] = {}
        for node in tile_ir.walk(kernel.body, tir.AllocBuffer):
            if is_shared(node.buffer):
                self.offsets[node.buffer] = int(tile_ir.plain(node.annotations[OFFSET]))
                self.sizes[node.buffer] = shared_bytes(node.buffer)
        self.inner: dict[Any, int] = {}  # loops that are not followed, with their extents
        self.followed: list[Any] = []  # the variables of loops that are followed
        self.depends_on: dict[int, tuple[Any, ...]] = {}  # by effect: those in its index
        self.touches: dict[tuple[Any, ...], Touch] = {}
        self.accesses: list[tuple[Effect, Any]] = []  # by their numbers: effect, index
        self.group: Group | None = None  # whose work is looked at
        self.threads: dict[Group | None, dict[Any, int]] = {None: {v: int(e) for v, e in kernel.threads}}
        self.groups: list[Group | None] = []  # by the numbers of accesses: who does it
        self.owners: dict[int, Owners | None] = {}
        self.met: dict[tuple[int, int], bool] = {}
        for var, extent in (*kernel.grid, *kernel.threads):
            size = tile_ir.static(extent)
            self.ranges[var] = EVERYTHING if size is None else (0, size - 1)
        for node in tile_ir.statements(kernel.body):
            if isinstance(node, tir.Bind) and is_call(node.value, "tirx.call_extern"):
                self.ranges[node.var] = interval(node.value, self.ranges)
        self.names = Names(kernel, self.uniform)
        self.proxied: set[Any] = set()  # buffers that asynchronous work reads

    def run(self) -> Any:
        tree = self.tree()
        self.proxied = {self.root(e.buffer) for e in self._inside(tree) if e.kind in ASYNCHRONOUS}
        state = State()
        self._visit(tree, state)
        end = [run("tl::bulk_wait_read<0>", span=self.kernel.span)] if state.storing else []
        return tile_ir.sequence([*tile_ir.statements(self._rebuilt(tree)), *end])

    def tree(self) -> Node:
        """The kernel's statements; what is known of loops is noted."""
        for node in tile_ir.walk(self.kernel.body, tir.For):
            low, size = tile_ir.static(node.min), tile_ir.static(node.extent)
            if low is not None and size is not None:
                self.ranges[node.loop_var] = (low, low + size - 1)
                if low == 0:
                    self.inner[node.loop_var] = size
        return self._node(self.kernel.body)

    # -- the tree ---------------------------------------------------------------------------------------------

    def _node(self, stmt: Any) -> Node:
        if isinstance(stmt, tir.SeqStmt):
            return Node("seq", stmt, [self._node(s) for s in tile_ir.statements(stmt)])
        group = tile_ir.as_thread_group(stmt)
        if group is not None:
            inner = stmt.body.then_case if isinstance(stmt.body, tir.IfThenElse) else stmt.body
            number = tile_ir.statements(inner)[0]
            self.ranges[number.var] = (0, group[1] - 1)
            self.threads[group] = {number.var: group[1]}
            return Node("group", stmt, [self._list(inner)])
        if isinstance(stmt, tir.AttrStmt):
            return Node("scope", stmt, [self._list(stmt.body)])
        inner = isinstance(stmt, tir.For) and bool(stmt.annotations) and REGISTERS in stmt.annotations
        found = effects(stmt, self.tracked, self.roots)
        if found or waits(stmt):
            if isinstance(stmt, tir.For) and not inner and not self.varies(stmt.extent) and not self.part(stmt):
                self.followed.append(stmt.loop_var)
                return Node("loop", stmt, [self._list(stmt.body)], self._of(stmt.min, stmt.extent))
            if isinstance(stmt, tir.While) and not self.varies(stmt.condition) and not self.part(stmt):
                head, body = self._of(stmt.condition), self._list(stmt.body)
                body.parts.append(Node("again", stmt, [], head))
                return Node("while", stmt, [body], head)
            if isinstance(stmt, tir.IfThenElse) and not self.varies(stmt.condition):
                cases = [stmt.then_case] + ([] if stmt.else_case is None else [stmt.else_case])
                return Node("branch", stmt, [self._list(c) for c in cases], self._of(stmt.condition))
        return Node("leaf", stmt, [], self._by_one(stmt, found))

    def _by_one(self, stmt: Any, found: list[Effect]) -> list[Effect]:
        """The effects of a statement, one thread's where its condition names one."""
        if not isinstance(stmt, tir.IfThenElse) or stmt.else_case is not None:
            return found
        named = {p.a: tile_ir.static(p.b) for p in conjuncts(stmt.condition) if isinstance(p, ir.prim.EQ)}
        numbers = [0 if size == 1 else named.get(var) for var, size in self.threads[None].items()]
        one = tuple(number for number in numbers if number is not None)
        return found if len(one) < len(numbers) else [replace(effect, thread=one) for effect in found]

    def varies(self, value: Any) -> bool:
        """Whether threads may disagree on a condition or a number of iterations: nothing is placed under it."""
        return self.uniform.varies(value)

    def part(self, loop: Any) -> bool:
        """Whether some threads may leave a loop, or an iteration, while others go on: nothing is placed in it."""
        return self.uniform.part(loop)

    def _list(self, stmt: Any) -> Node:
        return Node("seq", stmt, [self._node(s) for s in tile_ir.statements(stmt)])

    def _of(self, *exprs: Any) -> list[Effect]:
        return [e for x in exprs for e in effects(tir.Evaluate(x), self.tracked, self.roots)]

    def _rebuilt(self, node: Node) -> Any:
        stmt, parts = node.stmt, [self._rebuilt(p) for p in node.parts]
        if node.kind == "seq":
            return tile_ir.sequence([p for p in parts if p is not None])
        if node.kind == "loop":
            return remake_loop(stmt, body=parts[0])
        if node.kind == "while":
            return tir.While(stmt.condition, parts[0], span=stmt.span)
        if node.kind == "branch":
            return tir.IfThenElse(stmt.condition, parts[0], parts[1] if len(parts) > 1 else None, span=stmt.span)
        if node.kind == "group":
            body = parts[0]
            if isinstance(stmt.body, tir.IfThenElse):
                body = tir.IfThenElse(stmt.body.condition, body, None, span=stmt.body.span)
            return tir.AttrStmt(stmt.node, stmt.attr_key, stmt.value, body, span=stmt.span)
        if node.kind == "scope":
            return tir.AttrStmt(stmt.node, stmt.attr_key, stmt.value, parts[0], span=stmt.span)
        return None if node.kind == "again" else stmt

    # -- following the block ----------------------------------------------------------------------------------

    def _visit(self, node: Node, state: State) -> None:
        if node.kind == "seq":
            position = 0
            while position < len(node.parts):
                part = node.parts[position]
                for extra in self._needed(part, state):
                    node.parts.insert(in_front(node.parts, position), Node("leaf", extra))
                    position += 1
                instead = self._in_front_of(part, state)
                node.parts[position : position + 1] = instead
                position += len(instead)
        elif node.kind == "scope":
            self._visit(node.parts[0], state)
        elif node.kind == "group":
            self._group(node, state)
        elif node.kind == "loop":
            self._loop(node, state)
        elif node.kind == "while":
            self._do(node.effects, state)
            self.exits.append([state.copy()])
            for _ in range(1 + MANY):
                self._iteration(node, state)
                self.exits[-1].append(state.copy())
            for other in self.exits.pop():
                state.merge(other)
        elif node.kind == "branch":
            self._do(node.effects, state)
            self._branch(node, state)
        elif node.kind == "again":
            self._do(node.effects, state)
        else:
            self._leaf(node, state)

    def _in_front_of(self, node: Node, state: State) -> list[Node]:
        """A statement after its visit. A barrier that a loop needs in its first iteration alone goes in front
        of it, where it does not keep the threads in step in the others."""
        inside = [n for n in below(node) if n.kind in ("loop", "while")]
        deep = any(n.kind in ("loop", "while") for inner in inside for n in below(inner))  # would be followed too often
        flat = node.kind == "loop" and self.group is None and not deep
        again, entered = (copied(node), state.copy()) if flat else (node, state)
        count = barriers(node)
        self._visit(node, state)
        if not flat or barriers(node) == count:
            return [node]
        front = ["tl::fence_proxy_async_shared"] if entered.unfenced else []
        entered.fence()
        entered.barrier()
        self._visit(again, entered)
        if barriers(again) > count:
            return [node]
        vars(state).update(vars(entered))
        return [*(Node("leaf", run(c, span=node.stmt.span)) for c in [*front, self.barrier_of(None)]), again]

    def _group(self, node: Node, state: Any) -> None:
        """The work of a group: what its threads do is ordered among them by a barrier of their own."""
        group = tile_ir.as_thread_group(node.stmt)
        assert group is not None
        outer, self.group = self.group, group
        self._visit(node.parts[0], state.team(group))
        self.group = outer

    def barrier_of(self, group: Group | None) -> str:
        """The call that is the barrier of a group, None: of the block."""
        number = BARRIERS - list(self.threads).index(group)
        return "tl::sync_threads" if group is None else f"tl::sync_threads<{number}, {group[1]}>"

    def _loop(self, node: Node, state: State) -> None:
        stmt = node.stmt
        self._do(node.effects, state)
        size = tile_ir.static(self._value(stmt.extent))
        versions = math.lcm(*(period(e.index, stmt.loop_var) for e in self._inside(node)))
        never = size is None and interval(self._value(stmt.extent), self.ranges)[0] < 1  # an iteration, perhaps
        self.exits.append([state.copy()] if never else [])
        for number in followed(stmt, size, versions, self._value):
            self.values[stmt.loop_var] = self.analyzer.simplify(self._value(stmt.min) + number)
            before = state.copy()
            self._iteration(node, state)
            if size is None:
                self.exits[-1].append(self._ended(node, before, state))
        self.values.pop(stmt.loop_var, None)
        ends = self.exits.pop()
        if size is None:  # one of the iterations that were followed is the last
            vars(state).update(vars(ends.pop()))
        for other in ends:
            state.merge(other)

    def _iteration(self, node: Node, state: State) -> None:
        """One of a loop, the next of which may also begin where this one is cut short."""
        self.cut.append([])
        self._visit(node.parts[0], state)
        for other in self.cut.pop():
            state.merge(other)

    def _ended(self, node: Node, before: State, after: State) -> State:
        """The state behind a loop that ends with an iteration, which `before` was the state in front of. What an iteration
        starts for those that follow it, the last one does not."""
        if not after.flying:
            return after.copy()
        stmt = node.stmt
        self.last[stmt.loop_var] = stmt.min + stmt.extent - 1
        self._iteration(copied(node), before)
        del self.last[stmt.loop_var]
        return before

    def _inside(self, node: Node) -> list[Effect]:
        return [*node.effects, *(e for p in node.parts for e in self._inside(p))]

    def _branch(self, node: Node, state: State) -> None:
        chosen = tile_ir.static(self._value(node.stmt.condition))
        if chosen is None and self.last:
            chosen = tile_ir.static(self.analyzer.simplify(substitute(node.stmt.condition, self.last)))
        if chosen is not None:
            if chosen:
                self._visit(node.parts[0], state)
            elif len(node.parts) > 1:
                self._visit(node.parts[1], state)
            return
        other = state.copy()
        self._visit(node.parts[0], state)
        if len(node.parts) > 1:
            self._visit(node.parts[1], other)
        state.merge(other)

    def _leaf(self, node: Node, state: State) -> None:
        name = called(node.stmt)
        if self._joins(name):
            self._passed(state)
        elif name == "tl::cp_async_commit":
            state.flying = {(touch, age + 1) for touch, age in state.flying}
        elif name.startswith("tl::cp_async_wait<"):
            pending = int(name[18:-1])
            self._written(state, {touch for touch, age in state.flying if age > pending})
            state.flying = {(touch, age) for touch, age in state.flying if age <= pending}
        elif name == "tl::fence_proxy_async_shared":
            state.fence()
        elif name in ("tl::bulk_wait<0>", "tl::bulk_wait_read<0>"):
            state.stored()
        elif name == "tl::wgmma_commit":
            state.reading = {(touch, age + 1) for touch, age in state.reading}
        elif name.startswith("tl::wgmma_wait<"):
            pending = int(name[15:-1])
            state.reads |= {touch for touch, age in state.reading if age > pending}
            state.reading = {(touch, age) for touch, age in state.reading if age <= pending}
        elif leaves(node.stmt) and self.exits:
            self.left_by(node.stmt).append(state.copy())
        self._do(node.effects, state)

    def left_by(self, stmt: Any) -> list[State]:
        """The states at which the loop, or the iteration, is left that a `break` or `continue` leaves."""
        return (self.cut if is_call(stmt.value, "tirx.continue_loop") else self.exits)[-1]

    def _do(self, effects: list[Effect], state: State) -> None:
        """What a statement, or the condition of one, does to memory has happened."""
        for effect in effects:
            touch = self._touch(effect)
            if effect.kind == "async":
                state.flying.add((touch, 0))
            elif effect.kind == "write":
                self._written(state, {touch})
            elif effect.kind == "atomic":
                state.atomics.add(touch)
            else:
                state.reads.add(touch)
                if effect.kind == "matrix":
                    state.reading.add((touch, 0))
                elif effect.kind == "bulk":
                    state.storing.add(touch)

    def _joins(self, name: str) -> bool:
        """Whether a call is a barrier of those whose work is looked at."""
        if self.group is None:
            return name in BLOCK_BARRIERS
        return name.startswith("tl::sync_threads<") and name.endswith(f" {self.group[1]}>")

    def root(self, buffer: Any) -> Any:
        return self.roots.get(buffer, buffer)

    def _written(self, state: State, touches: set[Touch]) -> None:
        state.writes |= touches
        state.unfenced |= {t for t in touches if self.root(self.accesses[t[3]][0].buffer) in self.proxied}

    def _needed(self, node: Node, state: State) -> list[Any]:
        """The synchronization that must come before a statement; the state is as after it."""
        if node.kind in ("seq", "scope"):
            return []
        touches = [(e.kind, self._touch(e)) for e in (self._inside(node) if node.kind == "group" else node.effects)]
        before = [] if node.kind == "group" else state.seen_by_block()
        found = [s for done in [*before, state] for s in self._for(node, touches, done)]
        names = [str(s.value.args[0].value) for s in found]
        if "tl::sync_threads" in names:
            state.barrier()
        return [s for n, s in enumerate(found) if names[n] not in names[n + 1 :]]

    def _for(self, node: Node, touches: list[tuple[str, Touch]], state: State) -> list[Any]:
        """The synchronization that a statement with these effects needs after what a state has seen."""
        out: list[Any] = []
        if any(overlap(t, f) for _, t in touches for f, _ in state.flying):
            out += [run("tl::cp_async_commit", span=node.stmt.span), run("tl::cp_async_wait<0>", span=node.stmt.span)]
            self._written(state, {touch for touch, _ in state.flying})
            state.flying = set()
        if any(kind in CHANGES and overlap(t, s) for kind, t in touches for s in state.storing):
            out.append(run("tl::bulk_wait<0>", span=node.stmt.span))
            state.stored()
        conflict = any(self._conflict(kind, touch, state) for kind, touch in touches)
        if state.unfenced and (conflict or is_barrier(node.stmt)):
            out.append(run("tl::fence_proxy_async_shared", span=node.stmt.span))
            state.fence()
        if conflict:
            out.append(run(self.barrier_of(self.group), span=node.stmt.span))
            self._passed(state)
        return out

    def _passed(self, state: State) -> None:
        """Those whose work is looked at have met."""
        if self.group is None:
            state.barrier()
        else:
            state.own_barrier()

    def _conflict(self, kind: str, touch: Touch, state: State) -> bool:
        against = {
            "read": (state.writes, state.atomics),
            "matrix": (state.writes, state.atomics),
            "bulk": (state.writes, state.atomics),
            "atomic": (state.writes, state.reads),
            "write": (state.writes, state.reads, state.atomics),
            "async": (state.writes, state.reads, state.atomics),
        }[kind]
        late = (state.unfenced, state.fenced) if kind in ASYNCHRONOUS else ()  # by the same thread too
        return any(self._meet(touch, other) for group in against for other in group) or any(
            overlap(touch, other) for group in late for other in group
        )

    def _meet(self, a: Touch, b: Touch) -> bool:
        """Whether different threads may touch one byte."""
        if not overlap(a, b):
            return False
        pair = (a[3], b[3])
        one, other = (self.accesses[number][0].thread for number in pair)
        if one is not None and one == other and self.groups[pair[0]] == self.groups[pair[1]]:
            return False
        if pair not in self.met and a[0] is not SHARED:
            self.met[pair] = not self._apart_in_tensor(*pair)
        if pair not in self.met:
            same = self.groups[a[3]] == self.groups[b[3]]
            mine, yours = (self._owners(a[3]), self._owners(b[3])) if same else (None, None)
            self.met[pair] = mine is None or yours is None or not apart(mine, yours)
        return self.met[pair]

    def _apart_in_tensor(self, a: int, b: int) -> bool:
        """Whether no element of a tensor is touched by different threads in two accesses."""
        one, other = self.accesses[a][0], self.accesses[b][0]
        here = {var: within for var, within in self.ranges.items() if var in self.names.inside}
        if beside(one, other, here, self.names):
            return True
        threads, same = self.threads[self.groups[a]], self.groups[a] == self.groups[b]
        return same and same_threads(one, other, here, self.names, threads, self.inner)

    def _owners(self, number: int) -> Owners | None:
        """Who touches which byte of shared memory in an access."""
        if number not in self.owners:
            effect, index = self.accesses[number]
            start = self.offsets.get(self.roots.get(effect.buffer, effect.buffer))
            size = dtype_of(tile_ir.dtype_name(effect.buffer)).bits // 8
            self.owners[number] = None
            if start is not None and index is not None and not effect.together and size:
                threads = self.threads[self.groups[number]]
                end = max(self.offsets[b] + self.sizes[b] for b in self.offsets)
                found = owners(index, effect.count, size, end - start, threads, self.inner)
                if found is not None:
                    self.owners[number] = np.concatenate([np.full(start, NOBODY, np.int32), found])
        return self.owners[number]

    def _touch(self, effect: Effect) -> Touch:
        """The access of an effect in the present iterations."""
        used = self._loops_of(effect) if self.values else ()
        key = (id(effect), self.group, *(str(self.values.get(v)) for v in used))
        if key not in self.touches:
            index = None if effect.index is None else self._value(effect.index)
            self.touches[key] = (*self._bytes(effect, index), len(self.accesses))
            place = tuple(map(self._value, self.names.resolved(effect.place)))
            self.accesses.append((replace(effect, place=place), index))
            self.groups.append(self.group)
        return self.touches[key]

    def _loops_of(self, effect: Effect) -> tuple[Any, ...]:
        found = self.depends_on.get(id(effect))
        if found is None:
            indices = (*effect.place, *(() if effect.index is None else (effect.index,)))
            names = {v for i in indices for v in tile_ir.walk(tir.Evaluate(self.names.resolved((i,))[0]), ir.Var)}
            found = self.depends_on[id(effect)] = tuple(v for v in self.followed if v in names)
        return found

    def _bytes(self, effect: Effect, index: Any) -> tuple[Any, float, float]:
        root = self.roots.get(effect.buffer, effect.buffer)
        start = self.offsets.get(root)
        if start is None:
            return (root, *EVERYTHING)
        if index is None:
            return (SHARED, start, start + self.sizes[root] - 1)
        low, high = interval(index, self.ranges)
        size = dtype_of(tile_ir.dtype_name(effect.buffer)).bits / 8
        if high < EVERYTHING[1] and effect.kind != "matrix":
            high = high // effect.count * effect.count  # vectors start at multiples of their length
        first = start + (math.floor(low * size) if math.isfinite(low) else low)
        last = start + (math.ceil((high + effect.count) * size) - 1 if math.isfinite(high) else high)
        return (SHARED, max(first, start), min(last, start + self.sizes[root] - 1))

    def _value(self, node: Any) -> Any:
        return self.analyzer.simplify(substitute(node, self.values)) if self.values else node
