"""GEMM kernels in the tile registers of AMX, as LLVM text.

One kernel is one function that adds up to 32 x 32 elements of C, held in four of the eight registers:

    for step: a0, a1 = A[:, step];  b0, b1 = B[step];  c00 += a0 b0;  c01 += a0 b1;  c10 += a1 b0;  c11 += a1 b1

so that each tile that is loaded takes part in two products. A call of the C entry loads the shape of whole tiles once
(`CONFIGURE`, 150 ns); around blocks at an edge, their shape is loaded and then that of whole tiles again. It leaves the
registers free (`RELEASE`): a thread that holds them is slower to switch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .ahead import FetchedLines
from .instructions.tile_multiply import TILE, TILES, TileShape, accumulator, of_a, of_b, register
from .llvm_text import Function, Value


def configuration(shape: TileShape) -> str:
    """The function that loads a shape: the registers' contents are lost."""
    return f"tl.tile_configure.{shape.rows}_{shape.cols}_{shape.depth}"


#: What the C entry of a launch with tile kernels calls first and last.
CONFIGURE, RELEASE = configuration(TileShape()), "tl.tile_release.all"


@dataclass(frozen=True)
class TileKernel:
    """What one kernel function is specialised for: rows, columns and groups of a step, and strides in bytes.

    `a_row` between rows of A, `b_k` between groups of the panel of B, `c_row` between rows of C. `ahead`: of each matrix
    that is fetched into the caches meanwhile.
    """

    instruction: str
    shape: TileShape
    a_row: int
    b_k: int
    c_row: int
    ahead: tuple[FetchedLines, ...] = ()

    @property
    def name(self) -> str:
        s = self.shape
        numbers = [s.rows, s.cols, s.depth, self.a_row, self.b_k, self.c_row]
        numbers += [n for lines in self.ahead for n in (lines.each, lines.row)]
        return f"tl.tiles.{self.instruction}.{'_'.join(map(str, numbers))}"

    @classmethod
    def parse(cls, instruction: str, numbers: str) -> TileKernel:
        rows, cols, depth, a_row, b_k, c_row, *ahead = (int(n) for n in numbers.split("_"))
        fetched = tuple(FetchedLines(*pair) for pair in zip(ahead[::2], ahead[1::2]))
        return cls(instruction, TileShape(rows, cols, depth), a_row, b_k, c_row, fetched)


def uses_tiles(helper: str) -> bool:
    """Whether a launch that calls this helper needs `CONFIGURE` and `RELEASE`."""
    return helper.startswith("tl.tiles.")


def _kernel(name: str, instruction: str, numbers: str) -> Function:
    """`void name(a, b, c, i64 steps, i32 clear, [next, i64 stride]...)`: C (+)= A @ B over steps >= 1 of `depth` groups.

    `next` and `stride` (bytes between rows) for each of `ahead`.
    """
    kernel = TileKernel.parse(instruction, numbers)
    op, shape = TILES[instruction], kernel.shape
    pointers = [(p, "ptr") for p in "abc"]
    ahead = [arg for i in range(len(kernel.ahead)) for arg in ((f"next{i}", "ptr"), (f"stride{i}", "i64"))]
    arguments = [*pointers, ("steps", "i64"), ("clear", "i32"), *ahead]
    f = Function(name, "void", arguments, inline=False, arg_attrs="noalias nocapture")
    a, b, c, steps, clear = f.args[:5]
    products = [(i, v) for i in range(len(shape.heights)) for v in range(len(shape.widths))]

    def move(what: str, tile: int, at: Value, stride: int) -> None:
        f.call_void(f"llvm.x86.{what}", register(f, tile), at, f.const("i64", stride))

    def sums(what: str) -> None:
        for i, v in products:
            at = f.at(c, i * TILE * kernel.c_row + v * TILE * op.unit_bytes)
            move(what, accumulator(i, v), at, kernel.c_row)

    def load_a(i: int, start: Value) -> None:
        move("tileloadd64", of_a(i), f.at(start, i * TILE * kernel.a_row), kernel.a_row)

    def load_b(v: int, start: Value) -> None:
        move("tileloadd64", of_b(v), f.at(start, v * TILE * op.unit_bytes), kernel.b_k)

    def next_lines(step: Value) -> list[Value]:
        given = f.args[5:]
        return [at for i, ahead in enumerate(kernel.ahead) for at in ahead.addresses(f, step, *given[2 * i :][:2])]

    f.block("entry")
    f.line(f"br i1 {clear.compare('ne', 0).text}, label %zero, label %load")
    f.block("zero")
    for i, v in products:
        f.call_void("llvm.x86.tilezero", register(f, accumulator(i, v)))
    f.line("br label %first")
    f.block("load")
    sums("tileloadd64")
    f.line("br label %first")

    f.block("first")
    for line in next_lines(f.const("i64", 0)):
        f.fetch(line)
    load_a(0, a)
    for v in range(len(shape.widths)):
        load_b(v, b)
    if len(shape.heights) > 1:
        load_a(1, a)
    f.line(f"br i1 {steps.compare('eq', 1).text}, label %finish, label %loop")

    # The next step's tiles are loaded as soon as their registers are free; of the orders tried, this is the fastest
    # (by 5 to 15 %, on Sapphire Rapids).
    f.block("loop")
    f.line("%step = phi i64 [ 1, %first ], [ %step.next, %loop ]")
    for p in "ab":
        f.line(f"%{p}.at = phi ptr [ %{p}, %first ], [ %{p}.next, %loop ]")
    for p, stride in (("a", shape.depth * op.unit_bytes), ("b", shape.depth * kernel.b_k)):
        f.line(f"%{p}.next = getelementptr inbounds i8, ptr %{p}.at, i64 {stride}")
    lines = next_lines(f.raw("i64", "%step"))
    for number, (i, v) in enumerate(products):
        for line in lines[number :: len(products)]:
            f.fetch(line)
        op.write(f, accumulator(i, v), of_a(i), of_b(v))
        if v == len(shape.widths) - 1:
            load_a(i, f.raw("ptr", "%a.next"))
        if i == len(shape.heights) - 1:
            load_b(v, f.raw("ptr", "%b.next"))
    f.line("%step.next = add nuw nsw i64 %step, 1")
    f.line(f"%more = icmp ult i64 %step.next, {steps.text}")
    f.line("br i1 %more, label %loop, label %finish")

    f.block("finish")
    for i, v in products:
        op.write(f, accumulator(i, v), of_a(i), of_b(v))
    sums("tilestored64")
    f.ret()
    return f


def _configure(name: str, numbers: str) -> Function:
    f = Function(name, "void", [], inline=False)
    f.block("entry")
    held = f.emit("ptr", "alloca [64 x i8], align 1")
    content = ", ".join(f"i8 {byte}" for byte in TileShape(*map(int, numbers.split("_"))).configuration())
    f.store(f.raw("<64 x i8>", f"<{content}>"), held, 1)
    f.call_void("llvm.x86.ldtilecfg", held)
    f.ret()
    return f


def _release(name: str, which: str) -> Function:
    f = Function(name, "void", [], inline=False)
    f.block("entry")
    f.call_void("llvm.x86.tilerelease")
    f.ret()
    return f


WRITERS: dict[str, Callable[..., Function]] = {
    "tiles": _kernel,
    "tile_configure": _configure,
    "tile_release": _release,
}
