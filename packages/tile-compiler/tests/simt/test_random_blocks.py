"""Random programs of a block's threads: what compiles has no race in the emulator, and neither has what the checker lets pass
when a barrier is left out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import copies, launched, lowered
from mutants import mutants
from random_programs import imported, within

from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import SharedMemoryRace
from tilelang import interpreter
from tilelang.interpreter.errors import InterpreterError

HEAD = """import tilelang.language as T

@T.prim_func
def program(
    F: T.Tensor((8,), "int32"), E: T.Tensor((8, 64), "int32"), A: T.Tensor((8, 64), "float32"),
    C: T.Tensor((4, 64), "float32"), D: T.Tensor((64,), "float32"),
):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        s = T.alloc_shared((64,), "float32")
        t = T.alloc_shared((8,), "int32")
        k = T.alloc_var("int32", init=0)
        p = T.alloc_var("float32", init=0.5)
        for q in T.Parallel(64):
            s[q] = A[0, q]
        T.copy(F, t)
"""
TAIL = """
        D[tx] = p + T.cast(k, "float32")
"""
UNIFORM = ("F[{i}] > 3", "F[{i}] % 2 == 0", "t[{i}] > 4", "k > 2", "k % 3 == 1", "{i} % 2 == 1")
VARYING = ("E[{i}, tx] > 6", "tx < 40", "tx % 2 == 0", "E[{i}, tx] == k")
TOGETHER = (
    "T.sync_threads()",
    "for q in T.Parallel(64):\n    s[q] = s[63 - q] * 0.5",
    "for q in T.Parallel(8):\n    t[q] = t[7 - q] + 1",
    "for q in T.Parallel(64):\n    C[0, q] = s[q]",
)
PLACES = ("tx", "tx", "63 - tx", "(tx + 1) % 64", "tx // 2 * 2")


class Writer:
    """Writes one program. `loops`: names of the variables around; `uniform`: whether all threads are here."""

    def __init__(self, seed: int) -> None:
        self.random, self.names = random.Random(seed), 0

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def row(self, loops: list[str]) -> str:
        return self.pick(*(f"{loop} % 8" for loop in loops), "k % 8", str(self.random.randint(0, 7)))

    def condition(self, loops: list[str], uniform: bool) -> str:
        return self.pick(*(UNIFORM if uniform else VARYING)).format(i=self.row(loops))

    def value(self, loops: list[str], depth: int = 1) -> str:
        kind = self.random.random()
        if kind < 0.25:
            return f"A[{self.row(loops)}, tx]"
        if kind < 0.6:
            return f"s[{self.pick(*PLACES, '0', self.row(loops))}]"
        if kind < 0.7:
            return f"C[{self.pick('0', '1')}, {self.pick(*PLACES)}]"
        if kind < 0.87 or not depth:
            return self.pick("p", "1.5", f"T.cast(t[{self.row(loops)}], 'float32')")
        return f"({self.value(loops, 0)} + {self.value(loops, 0)}) * 0.5"

    def block(self, loops: list[str], depth: int, uniform: bool) -> list[str]:
        lines = []
        for _ in range(self.random.randint(1, 4)):
            lines += self.statement(loops, depth, uniform)
        return lines

    def statement(self, loops: list[str], depth: int, uniform: bool) -> list[str]:
        kind = self.random.random()
        if kind < 0.5:
            return [self.store(loops, kind * 2)]
        if kind < 0.56 and uniform:
            return self.pick(*TOGETHER).splitlines()
        if kind < 0.62 and loops:
            return [f"if {self.condition(loops, self.random.random() < 0.8)}:", "    " + self.pick("break", "continue")]
        if kind < 0.8 and depth:
            same = self.random.random() < 0.75
            lines = [f"if {self.condition(loops, same)}:", *within(self.block(loops, depth - 1, uniform and same))]
            if self.random.random() < 0.4:
                lines += ["else:", *within(self.block(loops, depth - 1, uniform and same))]
            return lines
        return self.loop(loops, depth, uniform) if depth else ["k = k + 1"]

    def store(self, loops: list[str], kind: float) -> str:
        if kind < 0.25:
            return f"p = {self.value(loops)}"
        if kind < 0.55:
            return f"s[{self.pick('tx', 'tx', '63 - tx', '(tx + 5) % 64')}] = {self.value(loops)}"
        if kind < 0.7:
            return f"C[{self.pick('0', '1')}, {self.pick('tx', '63 - tx')}] = {self.value(loops)}"
        if kind < 0.8:
            return f"C[{self.pick('2', '3')}, {self.row(loops)}] = T.cast({self.pick('k', *loops, '7')}, 'float32')"
        row = self.row(loops)
        return f"k = {self.pick('k + 1', 'k + 1', f'F[{row}]', f't[{row}]', f'E[{row}, tx]', '0')}"

    def loop(self, loops: list[str], depth: int, uniform: bool) -> list[str]:
        row, name = self.row(loops), self.name("i")
        count = self.pick("2", "3", "5", "8", f"F[{row}]", f"t[{row}]", "k", f"E[{row}, tx]")
        body = within(self.block([*loops, name], depth - 1, uniform and not count.startswith("E")))
        if self.random.random() < 0.85:
            return [f"for {name} in T.serial(T.min({count}, 9)):", *body]
        head = [f"{name} = T.alloc_var('int32', init=0)", f"while {name} < T.min({count}, 6):"]
        return [*head, f"    {name} = {name} + 1", *body]


def programs(first: int, folder: Path, arch: str) -> Iterator[tuple[int, Any, Any, Any]]:
    """(seed, function, its steps, the context) of those that compile, from a seed on."""
    for seed in range(first, first + 40):
        text = HEAD + "\n".join(within(Writer(seed).block([], 3, True), 8)) + TAIL
        program = imported(text, folder / f"block_{seed}.py")
        try:
            yield seed, program, *lowered(program, arch)
        except SharedMemoryRace:
            continue


def arguments(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    counts = [rng.integers(0, 8, shape).astype("int32") for shape in ((8,), (8, 64))]
    return [*counts, *(rng.standard_normal(shape).astype("float32") for shape in ((8, 64), (4, 64), (64,)))]


def is_proved(func: Any) -> bool:
    """Whether the checker lets a function pass, and has not had to believe anything of places that it does not know."""
    ctx = SimtContext()
    try:
        check_synchronization(func, ctx)
    except SharedMemoryRace:
        return False
    return not any("at unknown places" in text for text in ctx.report.assumed)


def check_block(first: int, folder: Path, arch: str, count: int) -> None:
    found = programs(first, folder, arch)
    while count:
        seed, func, trace, ctx = next(found)
        want, args = arguments(seed), arguments(seed)
        try:
            interpreter.run(func, want)
        except InterpreterError:  # threads meet in one statement, where their registers say
            continue
        count -= 1
        final = trace.steps[-1].after
        for mode, order in (("early", 0), ("late", 1)):
            for g, w in zip(launched(func, final, ctx, args, mode, order), want):
                np.testing.assert_allclose(g, w, 1e-4, 1e-4, err_msg=f"{seed} {mode}")
        for mutant, change in mutants(trace.after("check_synchronization")):
            if change.was == "tl::sync_threads" and is_proved(mutant):
                for mode, order in (("early", 0), ("late", 1), ("late", 2)):
                    launched(func, mutant, ctx, copies(args), mode, order)


@pytest.mark.parametrize("arch", ["sm_80", "gfx942"])
@pytest.mark.parametrize(
    "first", [pytest.param(seed, marks=pytest.mark.full if seed >= 160 else ()) for seed in range(0, 240, 40)]
)
def test_random_blocks(first: int, arch: str, tmp_path: Path) -> None:
    check_block(first, tmp_path, arch, 6)


@pytest.mark.full
@pytest.mark.parametrize("first", range(1000, 3000, 40))
def test_more_random_blocks(first: int, tmp_path: Path) -> None:
    check_block(first, tmp_path, "sm_80", 12)
