"""Random programs of single threads: branches and loops that differ between threads, shared memory, barriers, atomics.

A program is a number of rounds of two phases. In a phase a thread reads what the phase before wrote to shared memory
and writes its own element, so that the threads may run in any order; the reference runs them one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from everywhere import agree
from generated import PlainPython, indent, load
from hypothesis import given
from hypothesis import strategies as st

KERNEL = """\
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((2, {threads}), "int32"), n: T.int32, C: T.Tensor((4,), "int32"), B: T.Tensor((2, {threads}), "int32")):
    with T.Kernel(2, threads={threads}) as bx:
        tx = T.get_thread_binding()
        s = T.alloc_shared(({threads},), "int32")
        t = T.alloc_shared(({threads},), "int32")
        x = T.alloc_var("int32", init=1)
        mine = T.alloc_local((4,), "int32")
        for z in T.serial(4):
            mine[z] = z
        s[tx] = A[bx, tx]
        for r in T.serial(n):
            T.sync_threads()
{first}
            t[tx] = (x + mine[r % 4]) % 1009
            T.sync_threads()
{second}
            s[tx] = (x - mine[1]) % 1009
        B[bx, tx] = s[tx] + x
"""


class Text:
    """Draws the statements of one phase."""

    def __init__(self, draw: Any, shared: str, threads: int) -> None:
        self.draw, self.shared, self.threads = draw, shared, threads
        self.count = 0

    def choose(self, *options: str) -> str:
        return self.draw(st.sampled_from(options))

    def name(self) -> str:
        self.count += 1
        return f"{self.shared}{self.count}"

    def number(self, names: list[str]) -> str:
        """A small non-negative integer expression, which may differ between threads."""
        a, b = self.choose(*names, "tx", "x"), self.choose("tx", "r", "n", "bx", "2")
        element = f"{self.shared}[({a} + {b}) % {self.threads}]"
        return self.choose(
            a, f"({a} + {b}) % 5", f"T.if_then_else({a} > {b}, {a}, 3)", f"({element} % 6)", "mine[2] % 4"
        )

    def condition(self, names: list[str]) -> str:
        a, b = self.number(names), self.number(names)
        return self.choose(f"{a} < {b}", "tx % 3 == 1", f"tx < {self.threads // 2}", "bx == 0", f"{a} > 1 and tx != 2")

    def update(self, names: list[str]) -> str:
        a, b = self.number(names), self.number(names)
        return self.choose(
            f"x = (x * 3 + {a}) % 1009",
            f"mine[({a}) % 4] = ({b} + x) % 1009",
            f"mine[1] += {a} % 7",
            f"y = {a}\nx = (x + y * {b}) % 1009",
            f"T.atomic_add(C[({a}) % 4], {b})",
        )

    def loop(self, names: list[str], depth: int) -> str:
        i = self.name()
        if self.draw(st.booleans()):
            bounds = self.choose("3", "tx % 4", "n", "tx % 3, 5", "bx + 1")
            return f"for {i} in T.serial({bounds}):\n{indent(self.body([*names, i], depth, True))}"
        bound = self.choose("3", "tx % 4", "n", "x % 5")
        body = self.body([*names, i], depth, True)
        bound_name = f"{i}_end"
        return (
            f'{i} = T.alloc_var("int32", init=0)\n{bound_name} = {bound}\n'
            f"while {i} < {bound_name}:\n    {i} = {i} + 1\n{indent(body)}"
        )

    def body(self, names: list[str], depth: int, leaves: bool = False) -> str:
        statements = []
        for _ in range(self.draw(st.integers(1, 3))):
            kind = self.choose("update", "update", "loop", "if") if depth else "update"
            if kind == "loop":
                statements.append(self.loop(names, depth - 1))
            elif kind == "if":
                then = self.body(names, depth - 1, leaves)
                if leaves and self.draw(st.booleans()):
                    then += "\n" + self.choose("break", "continue")
                text = f"if {self.condition(names)}:\n{indent(then)}"
                if self.draw(st.booleans()):
                    text += f"\nelse:\n{indent(self.body(names, depth - 1, leaves))}"
                statements.append(text)
            else:
                statements.append(self.update(names))
        return "\n".join(statements)


class PlainThreads(PlainPython):
    """`T` of the reference, with the atomic of one thread at a time."""

    @staticmethod
    def atomic_add(place: tuple[Any, int], value: int) -> None:
        array, index = place
        array[index] += value


class Places:
    """`C[i]` as a place instead of a value."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.array, index


def reference(phases: list[str], threads: int, A: Any, n: int, C: Any) -> Any:
    """Phase by phase, thread by thread."""
    ends = ["t[tx] = (x + mine[r % 4]) % 1009", "s[tx] = (x - mine[1]) % 1009"]
    codes = [compile(f"{phase}\n{end}", "phase", "exec") for phase, end in zip(phases, ends)]
    result = np.zeros_like(A)
    for bx in range(2):
        shared = {"s": A[bx].copy(), "t": np.zeros_like(A[bx])}
        lanes = [
            {"T": PlainThreads, "C": Places(C), "n": n, "bx": bx, "tx": tx, "x": 1, "mine": [0, 1, 2, 3], **shared}
            for tx in range(threads)
        ]
        for r in range(n):
            for code in codes:
                for lane in lanes:
                    lane["r"] = r
                    exec(code, lane)
        result[bx] = [shared["s"][tx] + lanes[tx]["x"] for tx in range(threads)]
    return result


@st.composite
def programs(draw: Any) -> Any:
    threads = draw(st.sampled_from([1, 5, 8, 32]))
    return threads, [Text(draw, shared, threads).body(["r"], 2) for shared in ("s", "t")]


@given(programs(), st.integers(0, 4), st.integers(0, 99))
def test_threads(tmp_path_factory, program, n, seed):
    threads, phases = program
    text = KERNEL.format(threads=threads, first=indent(phases[0], 12), second=indent(phases[1], 12))
    main = load(text, tmp_path_factory.mktemp("kernel"))
    rng = np.random.default_rng(seed)
    a, c = rng.integers(1, 1000, (2, threads)), rng.integers(1, 9, 4)
    counts = c.copy()
    want = reference(phases, threads, a, n, counts)
    arguments = [a.astype(np.int32), n, c.astype(np.int32), np.zeros((2, threads), np.int32)]
    agree(main, arguments, [None, None, counts, want])
