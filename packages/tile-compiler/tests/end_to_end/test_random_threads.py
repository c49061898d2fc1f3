"""Random programs that name threads: lanes that meet in shared memory, masks, loops, tile operators in between."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HEAD = """import tilelang.language as T

@T.prim_func
def program(A: T.Tensor((32,), "float32"), C: T.Tensor((32,), "float32"), D: T.Tensor((32,), "float32")):
    with T.Kernel(2, threads=16) as bx:
        tx = T.get_thread_binding()
        s = T.alloc_shared((16,), "float32")
        t = T.alloc_shared((16,), "float32")
        m = T.alloc_fragment((1,), "float32")
        p = T.alloc_local((2,), "float32")
        u = T.alloc_local((1,), "float32")
        p[0] = A[bx * 16 + tx]
        p[1] = 0.25
        u[0] = 0.75
        s[tx] = A[tx] * 0.5
        T.copy(s, t)
"""
TAIL = """
        T.sync_threads()
        C[bx * 16 + tx] = p[0] + s[tx] + t[15 - tx]
        D[bx * 16 + tx] = p[1] + u[0]
"""
UNIFORM = ("bx == 0", "u[0] > 0.5")
VARYING = ("tx < 7", "tx % 2 == 0", "tx >= bx + 3", "p[0] > 0.25")
TOGETHER = (
    "T.sync_threads()",
    "T.copy(s, t)",
    "T.reduce_max(s, m, dim=0)\nu[0] = m[0]",
    "for q in T.Parallel(16):\n    s[q] = s[q] * 0.5 + u[0]",
)


class Writer:
    """Writes one program; `names` are values in scope, `uniform`: all lanes are here."""

    def __init__(self, seed: int) -> None:
        self.random, self.names = random.Random(seed), 0

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def value(self, names: list[str], depth: int = 2) -> str:
        kind = self.random.random()
        if depth == 0 or kind < 0.3:
            return self.pick(*names, "1.5", "T.cast(tx, 'float32')", "A[tx]", "A[bx * 16 + tx]", "A[(tx + 3) % 16]")
        if kind < 0.5:
            return f"s[{self.pick('tx', '15 - tx', '(tx + 1) % 16', '(tx * 3) % 16', '0')}]"
        if kind < 0.6:
            return f"p[{self.pick(0, 1)}]"
        left, right = self.value(names, depth - 1), self.value(names, depth - 1)
        if kind < 0.7:
            return f"T.if_then_else({self.pick(*UNIFORM, *VARYING)}, {left}, {right})"
        return f"({left} {self.pick('+', '-', '*')} {right}) * 0.5"

    def block(self, names: list[str], depth: int, uniform: bool) -> list[str]:
        out: list[str] = []
        names = list(names)
        for _ in range(self.random.randint(1, 4)):
            kind = self.random.random()
            if kind < 0.2:
                out.append(f"p[{self.pick(0, 1)}] = {self.value(names)}")
            elif kind < 0.45:
                out.append(f"s[{self.pick('tx', 'tx', '15 - tx', '(tx + 5) % 16')}] = {self.value(names)}")
            elif kind < 0.55:
                self.names += 1
                out.append(f"b{self.names} = {self.value(names)}")
                names.append(f"b{self.names}")
            elif kind < 0.78 and uniform:
                out += self.pick(*TOGETHER).splitlines()
            elif kind < 0.91 and depth:
                condition = self.pick(*UNIFORM, *VARYING)
                inside = uniform and condition in UNIFORM
                out += [f"if {condition}:", *_indented(self.block(names, depth - 1, inside))]
                out += self.pick([], ["else:", *_indented(self.block(names, depth - 1, inside))])
            elif depth:
                self.names += 1
                loop = f"k{self.names}"
                body = self.block([*names, f"T.cast({loop}, 'float32')"], depth - 1, uniform)
                out += [f"for {loop} in T.serial({self.pick(2, 3)}):", *_indented(body)]
            else:
                out.append(f"C[bx * 16 + tx] = {self.value(names)}")
        return out


def _indented(lines: list[str], by: int = 4) -> list[str]:
    return [" " * by + line for line in lines]


@pytest.mark.parametrize("seed", range(24))
def test_random_program(seed: int, tmp_path: Path, check: Any) -> None:
    text = HEAD + "\n".join(_indented(Writer(seed).block([], 2, True), 8)) + TAIL
    path = tmp_path / f"program_{seed}.py"  # the frontend reads a kernel's text from its file
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rng = np.random.default_rng(seed)
    args = [rng.standard_normal(32).astype("float32") for _ in range(3)]
    check(module.program, args, rtol=1e-4, atol=1e-4, passes=False)
