"""Random nests of loops and branches: the text of a kernel is generated, and Python itself runs it as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from everywhere import agree
from generated import PlainPython, indent, load
from hypothesis import given
from hypothesis import strategies as st

SIZE = 16  # elements of the two tensors, and the modulus of every index

KERNEL = """\
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor(({size},), "int32"), n: T.int32, m: T.int32, B: T.Tensor(({size},), "int32")):
    with T.Kernel(1, threads={threads}):
{prologue}
{body}
{epilogue}
"""

REFERENCE = """\
def reference(T, A, n, m, B):
{prologue}
{body}
{epilogue}
"""

# One thread: loops and branches around single elements. Everything stays far below 2**31.
THREAD = ('x = T.alloc_var("int32", init=1)', "B[0] = B[0] + x")
# A block: the same control flow around parallel loops over a tile.
BLOCK = (
    f'x = T.alloc_var("int32", init=1)\nt = T.alloc_shared(({SIZE},), "int32")\nT.copy(B, t)',
    f"for q in T.Parallel({SIZE}):\n    t[q] = t[q] + x\nT.copy(t, B)",
)


class Text:
    """Draws the statements of one body, with names for loop variables that are unique in the kernel."""

    def __init__(self, draw: Any, block: bool) -> None:
        self.draw, self.block = draw, block
        self.tensor = "t" if block else "B"
        self.count = 0

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def choose(self, *options: str) -> str:
        return self.draw(st.sampled_from(options))

    def number(self, names: list[str]) -> str:
        """A small non-negative integer expression."""
        a, b = self.choose(*names, "n", "m", "3"), self.choose(*names, "x", "2")
        return self.choose(f"{a}", f"({a} + {b}) % 7", f"{a} * 2 + 1", f"T.if_then_else({a} > {b}, {a}, 4)")

    def condition(self, names: list[str]) -> str:
        a, b = self.number(names), self.number(names)
        element = f"A[({a}) % {SIZE}]"
        return self.choose(
            f"{a} < {b}",
            f"{element} > 0",
            f"({a} + {element}) % 3 == 0",
            f"1 <= {a} < 5",
            f"{element} < 0 or {a} > {b}",
            f"not ({a} == {b}) and n < m",
        )

    def update(self, names: list[str]) -> str:
        value, place = self.number(names), self.number(names)
        x = f"x = (x * 3 + {value}) % 1009"
        if self.block:
            i, j = self.name("p"), self.name("p")
            one = f"for {i} in T.Parallel({SIZE}):\n    t[{i}] = (t[{i}] * 3 + {i} * ({value}) + x) % 1009"
            two = f"for {i}, {j} in T.Parallel(4, 4):\n    t[{i} * 4 + {j}] += {i} * ({value}) - {j}"
            return self.choose(x, one, two)
        element = f"B[({place}) % {SIZE}]"
        return self.choose(x, f"{element} = ({element} * 3 + {value} + x) % 1009", f"{element} += {value}")

    def loop(self, names: list[str], depth: int) -> str:
        i = self.name("i")
        kinds = ["T.serial", "range", "T.unroll", "while", "T.Pipelined", "T.grid"]
        kind = self.choose(*(kinds if not self.block else kinds[:-1]))
        if kind == "while":
            bound = self.choose("5", "n", "n + m")
            body = self.body([*names, i], depth, leaves=True)
            return f'{i} = T.alloc_var("int32", init=0)\nwhile {i} < {bound}:\n    {i} = {i} + 1\n{indent(body)}'
        if kind == "T.grid":
            j = self.name("i")
            return f"for {i}, {j} in T.grid(3, n):\n{indent(self.body([*names, i, j], depth, leaves=False))}"
        if kind == "T.unroll":
            bounds, leaves = self.choose("3", "1, 4", "1, 8, 3"), False
        elif kind == "T.Pipelined":
            bounds, leaves = self.choose("4, num_stages=2", "n, num_stages=3", "n, m, num_stages=0", "0"), False
        else:
            bounds, leaves = self.choose("4", "n", "n, m", "n, m + 5, 2", "7, n, -2", "m, n", "0, n * m, m"), True
        return f"for {i} in {kind}({bounds}):\n{indent(self.body([*names, i], depth, leaves))}"

    def body(self, names: list[str], depth: int, leaves: bool) -> str:
        """One to three statements; `leaves`: break and continue may stand in a branch of this body."""
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


@st.composite
def texts(draw: Any) -> Any:
    block = draw(st.booleans())
    return block, Text(draw, block).body(["m"], 3, leaves=False)


@given(texts(), st.integers(1, 5), st.integers(1, 5), st.integers(0, 99))
def test_nests(tmp_path_factory, nest, n, m, seed):
    block, body = nest
    prologue, epilogue = BLOCK if block else THREAD
    pieces = {"prologue": prologue, "body": body, "epilogue": epilogue}
    kernel = {k: indent(v, 8) for k, v in pieces.items()}
    text = KERNEL.format(size=SIZE, threads=32 if block else 1, **kernel)
    main = load(text, tmp_path_factory.mktemp("kernel"))

    scope: dict[str, Any] = {}
    exec(REFERENCE.format(**{k: indent(v, 4) for k, v in pieces.items()}), scope)
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(1, 9, SIZE) * rng.choice([-1, 1], SIZE) for _ in range(2))
    want = b.copy()
    scope["reference"](PlainPython, a, n, m, want)
    agree(main, [a.astype(np.int32), n, m, b.astype(np.int32)], [None, None, None, want])
