"""The split into roles, and nothing else, happens to a program: every thread executes what the whole program says for it.

Threads are traced one by one, before and after. Before, the kernel's threads skip the statements of the producer, and
the producer skips all others but scalars and control. After, a thread is what its number says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from thread_programs import Program, at, call, load, loop, producer, seq, store, when
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.roles.split_roles import split_roles
from tilelang.ir import tile_ir

THREADS = 64
Trace = list[tuple[Any, ...]]


class Left(Exception):
    """A `break` or `continue`."""

    def __init__(self, continues: bool) -> None:
        super().__init__()
        self.continues = continues


class Thread:
    """One thread's execution: the calls it makes, and what it stores outside of its own variables.

    `role` is what it executes: "all", or "consumer" or "producer" of a program that is still one. Memory has a value at
    every place, the same for all, so that conditions on it are decided.
    """

    def __init__(self, number: int, role: str) -> None:
        self.number, self.role = number, role
        self.values: dict[Any, int] = {}
        self.own: dict[tuple[Any, int], int] = {}
        self.trace: Trace = []
        self.producing = False

    def run(self, func: Any) -> Trace:
        for kernel in tile_ir.kernels(func):
            self.values |= {v: 0 for v, _ in kernel.grid} | {kernel.threads[0][0]: self.number}
            self.execute(kernel.body)
        return self.trace

    @property
    def acts(self) -> bool:
        return self.role == "all" or self.producing == (self.role == "producer")

    def execute(self, node: Any) -> None:
        if isinstance(node, tir.SeqStmt):
            for part in node.seq:
                self.execute(part)
        elif isinstance(node, tir.AttrStmt):
            outer, self.producing = self.producing, self.producing or str(node.attr_key) == "tl.role"
            self.execute(node.body)
            self.producing = outer
        elif isinstance(node, tir.Bind):
            self.values[node.var] = self.value(node.value)
        elif isinstance(node, tir.BufferStore):
            self.stored(node)
        elif isinstance(node, tir.For):
            self.repeated(node)
        elif isinstance(node, tir.IfThenElse):
            case = node.then_case if self.value(node.condition) else node.else_case
            if case is not None:
                self.execute(case)
        elif isinstance(node, tir.Evaluate) and is_call(node.value, "tirx.break_loop", "tirx.continue_loop"):
            raise Left("continue" in str(node.value.op.name))
        elif isinstance(node, tir.Evaluate) and is_call(node.value, "tirx.call_extern") and self.acts:
            name, *arguments = node.value.args
            text = str(name.value).replace(f"tl::sync_threads<1, {THREADS}>", "tl::sync_threads")
            if "register_limit" not in text:
                self.trace.append((text, *(self.value(a) for a in arguments)))

    def stored(self, node: Any) -> None:
        place, value = self.value(node.indices[0]), self.value(node.value)
        if str(node.buffer.scope()) in tile_ir.PRIVATE:
            self.own[node.buffer, place] = value
        elif self.acts:
            self.trace.append(("store", str(node.buffer.name), place, value))

    def repeated(self, node: Any) -> None:
        low = self.value(node.min)
        for number in range(self.value(node.extent)):
            self.values[node.loop_var] = low + number
            try:
                self.execute(node.body)
            except Left as left:
                if not left.continues:
                    break

    def value(self, node: Any) -> Any:
        if isinstance(node, ir.StringImm):
            return str(node.value)
        if isinstance(node, (tir.IntImm, tir.FloatImm)):
            return int(node.value)
        if isinstance(node, ir.Var):
            return self.values.get(node, str(node.name))
        if isinstance(node, ir.TensorLoad):
            place = self.value(node.indices[0])
            if str(node.source.scope()) in tile_ir.PRIVATE:
                return self.own[node.source, place]
            return hash((str(node.source.name), place)) % 5
        if is_call(node, "tirx.address_of"):
            return (str(node.args[0].source.name), self.value(node.args[0].indices[0]))
        if is_call(node, "tirx.call_extern") and str(node.args[0].value) == "tl::uniform":
            return self.value(node.args[1])
        a, b = self.value(node.a), self.value(node.b)
        return int(_OPERATIONS[type(node).__name__](a, b))


_OPERATIONS = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "LT": lambda a, b: a < b,
    "GT": lambda a, b: a > b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}


def splits(func: Any) -> None:
    """Every thread does after the split what the program before says for it; the threads that are new do nothing."""
    after = split_roles(func, SimtContext())
    assert not any(str(getattr(n, "attr_key", "")) == "tl.role" for n in tile_ir.walk(after.body))
    (kernel,) = tile_ir.kernels(after)
    setup = [("tl::sync_threads",)]
    for number in (0, 3, 31, 35, 63, *range(THREADS, int(kernel.num_threads), 15)):
        got = Thread(number, "all").run(after)
        if number < THREADS:
            assert got == Thread(number, "consumer").run(func), f"thread {number}"
        else:
            assert got[:1] == setup
            want = Thread(number, "producer").run(func) if number == THREADS else []
            assert got[1:] == want, f"thread {number}"


class Drawn:
    """A random program: loops, conditions, counters and scalars around statements of both sides."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.program = Program(THREADS)
        self.memory = self.program.tensor(64, "M", "int32")
        self.bar = self.program.mbarrier([1], "bar")
        self.counters = [self.program.private(1, f"count{n}", "int32") for n in range(2)]
        self.scalars: list[Any] = []
        self.names = 0

    def function(self) -> Any:
        start = [store(c, 0, tir.const(0, "int32")) for c in self.counters]
        body = self.block(3)
        last = producer(call("mbarrier_wait", at(self.bar, 0), load(self.counters[0], 0)))
        return self.program.function([*self.program.setup(), *start, *body, last])

    def number(self) -> Any:
        """A value that all threads agree on."""
        kinds = [
            lambda: tir.const(int(self.rng.integers(4)), "int32"),
            lambda: load(self.counters[int(self.rng.integers(2))], 0),
            lambda: load(self.memory, int(self.rng.integers(64))),
        ]
        if self.scalars:
            kinds += [lambda: self.scalars[int(self.rng.integers(len(self.scalars)))]] * 3
        one = kinds[int(self.rng.integers(len(kinds)))]()
        return one + int(self.rng.integers(3)) if self.rng.integers(2) else one

    def condition(self) -> Any:
        a, b = tir.floormod(self.number(), 3), tir.const(int(self.rng.integers(3)), "int32")
        return [a < b, a.equal(b) if hasattr(a, "equal") else tir.EQ(a, b), tir.NE(a, b)][int(self.rng.integers(3))]

    def fresh(self, name: str) -> str:
        self.names += 1
        return f"{name}{self.names}"

    def block(self, depth: int) -> list[Any]:
        known = len(self.scalars)
        found = [s for _ in range(int(self.rng.integers(2, 6))) for s in self.statement(depth)]
        del self.scalars[known:]
        return found

    def statement(self, depth: int) -> list[Any]:
        kind = int(self.rng.integers(8 if depth else 5))
        if kind == 0:
            return [producer(call("tma_load", at(self.bar, 0), self.number()), call("mbarrier_wait", self.number()))]
        if kind == 1:
            mine = tir.floormod(self.program.tx, 32) + self.number()
            return [call("note", self.number()), when(tir.EQ(mine, 3), call("only", mine))]
        if kind == 2:
            counter = self.counters[int(self.rng.integers(2))]
            return [store(counter, 0, tir.floormod(load(counter, 0) + self.number(), 7))]
        if kind == 3:
            var = tir.Var(self.fresh("v"), "int32")
            made = tir.Bind(var, tir.floormod(self.number(), 5))
            self.scalars.append(var)
            return [made]
        if kind == 4:
            return [call("sync_threads")]
        if kind == 5:
            case = self.block(depth - 1)
            other = seq(self.block(depth - 1)) if self.rng.integers(2) else None
            return [tir.IfThenElse(self.condition(), seq(case), other)]
        return [loop(self.fresh("k"), tir.floormod(self.number(), 4), self.turn(depth))]

    def turn(self, depth: int) -> Any:
        def body(k: Any) -> list[Any]:
            self.scalars.append(k)
            leaves = []
            if self.rng.integers(3) == 0:
                name = ["tirx.break_loop", "tirx.continue_loop"][int(self.rng.integers(2))]
                leave = tir.Evaluate(ir.Call(ir.Op.get(name), [], ret_ty="void"))
                leaves = [tir.IfThenElse(self.condition(), leave, None)]
            found = [*self.block(depth - 1), *leaves, *self.block(depth - 1)]
            self.scalars.remove(k)
            return found

        return body


@pytest.mark.parametrize("seed", range(30))
def test_threads_do_what_the_program_says_for_them(seed: int) -> None:
    splits(Drawn(seed).function())


def test_a_program_without_roles_stays() -> None:
    program = Program(THREADS)
    func = program.function([call("note", program.tx)])
    assert split_roles(func, SimtContext()).same_as(func) or Thread(3, "all").run(split_roles(func, SimtContext())) == [
        ("tl::note", 3)
    ]


def test_the_producer_keeps_no_more_than_it_needs() -> None:
    program = Program(THREADS)
    bar, mine = program.mbarrier([1], "bar"), program.private(1, "mine", "float32")
    count = program.private(1, "count", "int32")
    body = lambda k: [  # noqa: E731
        store(mine, 0, load(mine, 0) + tir.const(1.0, "float32")),
        producer(call("mbarrier_wait", at(bar, 0), load(count, 0) + k)),
        store(count, 0, load(count, 0) + 1),
        loop("j", 9, lambda j: [call("note", j)]),
    ]
    start = [store(mine, 0, tir.const(0.0, "float32")), store(count, 0, tir.const(0, "int32"))]
    func = program.function([*program.setup(), *start, loop("k", 4, body)])
    splits(func)
    (kernel,) = tile_ir.kernels(split_roles(func, SimtContext()))
    branch = next(
        s for s in tile_ir.statements(kernel.body) if isinstance(s, tir.IfThenElse) and s.else_case is not None
    )
    stored = {str(n.buffer.name) for n in tile_ir.walk(branch.else_case) if isinstance(n, tir.BufferStore)}
    assert stored == {"count"}
    assert sum(isinstance(n, tir.For) for n in tile_ir.walk(branch.else_case)) == 1
