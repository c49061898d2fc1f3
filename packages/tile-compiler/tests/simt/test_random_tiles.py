"""Random programs of tile operators: pipelines, products, reductions and exchanges over tiles that are used again and again.
After all passes the block's threads compute, in the emulator, what the interpreter defines, without a race; and so does a CPU."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import copies, launched, lowered
from random_programs import imported, within

import tilelang
from tilelang import interpreter

HEAD = """import tilelang.language as T

m = T.dynamic("m")

@T.prim_func
def program(
    F: T.Tensor((8,), "int32"), A: T.Tensor((m, 96), "{dtype}"), B: T.Tensor((m, 96), "{dtype}"), O: T.Tensor((m, 96), "float32")
):
    with T.Kernel(T.ceildiv(m, 64), threads={threads}) as bx:
        s = T.alloc_shared((64, 32), "{dtype}")
        u = T.alloc_shared((64, 32), "{dtype}")
        w = T.alloc_shared((32, 32), "{dtype}")
        f = T.alloc_fragment((64, 32), "float32")
        g = T.alloc_fragment((64, 32), "float32")
        r = T.alloc_fragment((64,), "float32")
        n = T.alloc_var("int32", init=0)
        T.clear(f)
        T.clear(g)
        T.clear(r)
        T.copy(A[bx * 64, 0], s)
        T.copy(B[bx * 64, 0], u)
        T.copy(A[0, 0], w)
"""
TAIL = """
        for i, j in T.Parallel(64, 32):
            g[i, j] = g[i, j] + r[i] + T.cast(s[i, 31 - j], "float32") + T.cast(u[i, j], "float32")
        T.copy(f, O[bx * 64, 0])
        T.copy(g, O[bx * 64, 32])
"""
NESTS = (
    "{f}[i, j] = {f}[i, j] * 0.5 + T.cast({s}[i, j], 'float32')",
    "{f}[i, j] = {f}[i, j] * 0.5 + T.cast({s}[63 - i, j], 'float32')",
    "{f}[i, j] = {f}[i, j] * 0.5 + r[i]",
    "{s}[i, j] = T.cast({f}[i, j] * 0.25, '{dtype}')",
    "{s}[i, j] = {other}[63 - i, 31 - j]",
    "{s}[i, j] = T.if_then_else(i > j, {s}[i, j], T.cast(0, '{dtype}'))",
    "if bx * 64 + i < m:\n        O[bx * 64 + i, 64 + {column}] = {f}[i, j]",
)


ARCHS = ("sm_80", "sm_90a", "gfx942", "cpu")


class Writer:
    """Writes one program. `loops`: names of the variables around; `piped`: in a pipelined loop."""

    def __init__(self, seed: int) -> None:
        self.random, self.names = random.Random(seed), 0
        self.dtype, self.threads = self.pick("float16", "float16", "float32"), self.pick("64", "128", "128", "256")

    def text(self) -> str:
        head = HEAD.format(dtype=self.dtype, threads=self.threads)
        return head + "\n".join(within(self.block([], 3, False), 8)) + TAIL

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def column(self, loops: list[str]) -> str:
        return self.pick("0", "32", "64", *(f"{loop} % 3 * 32" for loop in loops))

    def condition(self, loops: list[str]) -> str:
        of_loops = [c.format(loop) for loop in loops for c in ("{} % 2 == 1", "{} > 0", "F[{} % 8] > 3")]
        return self.pick("F[0] > 3", "bx == 0", "n > 1", *of_loops)

    def block(self, loops: list[str], depth: int, piped: bool) -> list[str]:
        return [line for _ in range(self.random.randint(1, 4)) for line in self.statement(loops, depth, piped)]

    def statement(self, loops: list[str], depth: int, piped: bool) -> list[str]:
        kind = self.random.random()
        if kind < 0.74:
            return self.operator(loops, kind / 0.74)
        if kind < 0.78 and loops and not piped:
            return [f"if {self.condition(loops)}:", "    " + self.pick("break", "continue")]
        if not depth:
            return ["n = n + 1"]
        if kind < 0.86:
            lines = [f"if {self.condition(loops)}:", *within(self.block(loops, depth - 1, piped))]
            other = ["else:", *within(self.block(loops, depth - 1, piped))]
            return lines + (other if self.random.random() < 0.4 else [])
        self.names += 1
        name, count = f"k{self.names}", self.pick("2", "3", "5", "F[1]", "F[2]")
        if self.random.random() < 0.4:
            return [f"for {name} in T.serial({count}):", *within(self.block([*loops, name], depth - 1, False))]
        body = [f"T.copy({self.pick('A', 'B')}[bx * 64, {name} % 3 * 32], {self.pick('s', 'u')})"]
        body += [f"T.copy(B[{name} % 2 * 32, 0], w)"] if self.random.random() < 0.6 else []
        body += self.block([*loops, name], depth - 1, True)
        return [f"for {name} in T.Pipelined({count}, num_stages={self.random.randint(0, 3)}):", *within(body)]

    def operator(self, loops: list[str], kind: float) -> list[str]:
        shared, fragment = self.pick("s", "u"), self.pick("f", "g")
        if kind < 0.27:
            rows, tile = self.pick(("bx * 64", shared), ("bx * 64", shared), ("bx * 64", shared), ("0", "w"))
            return [f"T.copy({self.pick('A', 'B')}[{rows}, {self.column(loops)}], {tile})"]
        if kind < 0.49:
            return [f"T.copy({', '.join(self.random.sample([shared, fragment], 2))})"]
        if kind < 0.7:
            more = self.pick("", ", transpose_B=True", ", clear_accum=True")
            return [f"T.gemm({shared}, w, {fragment}{more})"]
        if kind < 0.87:
            names = {"f": fragment, "s": shared, "other": "u" if shared == "s" else "s", "dtype": self.dtype}
            nest = self.pick(*NESTS).format(**names, column=self.pick("j", "31 - j"))
            return ["for i, j in T.Parallel(64, 32):", *within(nest.split("\n"))]
        return [
            self.pick(
                f"T.reduce_sum({fragment}, r, dim=1)",
                f"T.reduce_max({fragment}, r, dim=1)",
                f"T.clear({fragment})",
                f"T.fill({shared}, 0.5)",
            )
        ]


def program(seed: int, folder: Path) -> tuple[Any, list[Any], list[Any]]:
    """(function, arguments, what they are afterwards)."""
    writer = Writer(seed)
    func = imported(writer.text(), folder / f"tiles_{seed}.py")
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([64, 100, 128, 150]))
    tensors = [(rng.standard_normal((rows, 96)) * 0.25).astype(d) for d in (writer.dtype, writer.dtype, "float32")]
    args: list[Any] = [rng.integers(0, 6, 8).astype("int32"), *tensors]
    want = copies(args)
    interpreter.run(func, want)
    return func, args, want


def compare(found: list[Any], want: list[Any], what: str) -> None:
    for g, w in zip(found, want):
        np.testing.assert_allclose(g.astype("float64"), w.astype("float64"), 3e-2, 3e-2, err_msg=what)


def check_tiles(seed: int, folder: Path, arch: str) -> None:
    func, args, want = program(seed, folder)
    if arch == "cpu":
        tilelang.compile(func, target="cpu")(*args)
        compare(args, want, str(seed))
        return
    trace, ctx = lowered(func, arch)
    for mode, order in (("early", 0), ("late", 1)):
        compare(launched(func, trace.steps[-1].after, ctx, args, mode, order), want, f"{seed} {mode}")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("seed", range(5))
def test_random_tiles(seed: int, arch: str, tmp_path: Path) -> None:
    check_tiles(seed, tmp_path, arch)


@pytest.mark.full
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_more_random_tiles(seed: int, arch: str, tmp_path: Path) -> None:
    check_tiles(seed, tmp_path, arch)
