"""GEMM kernels in the tile registers of AMX, as LLVM text.

One kernel is one function that adds up to 32 x 32 elements of C, held in four of the eight registers:

    for step: a0, a1 = A[:, step];  b0, b1 = B[step];  c00 += a0 b0;  c01 += a0 b1;  c10 += a1 b0;  c11 += a1 b1

so that each tile that is loaded takes part in two products. A call of the C entry loads the shape of whole tiles once
(`CONFIGURE`, 150 ns); around blocks at an edge, their shape is loaded and then that of whole tiles again. It leaves the
registers free (`RELEASE`): a thread that holds them is slower to switch.

`EDGE` loads the shape of so many rows and columns that only the launch knows. The kernels of whole tiles then read and write no
others: the registers' shape counts, not the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .ahead import FetchedColumns, FetchedLines
from .conversions import encode_bfloat, round_by_instruction, round_two_by_instruction, to_float
from .instructions.tile_multiply import TILE, TILES, TileShape, accumulator, of_a, of_b, register
from .llvm_text import Function, Value
from .masks import load_masked, some_lanes, store_masked


def configuration(shape: TileShape) -> str:
    """The function that loads a shape: the registers' contents are lost."""
    return f"tl.tile_configure.{shape.rows}_{shape.cols}_{shape.depth}"


#: What the C entry of a launch with tile kernels calls first and last.
CONFIGURE, RELEASE = configuration(TileShape()), "tl.tile_release.all"
#: `void (i64 rows, i64 columns)`, 1 to 32 each: the shape of a block of whole steps.
EDGE = "tl.tile_edge.any"


@dataclass(frozen=True)
class TileKernel:
    """What one kernel function is specialised for: rows, columns and groups of a step, and strides in bytes.

    `a_row` between rows of A (0: an argument), `b_k` between groups of the panel of B, `c_row` between rows of C. `ahead`: of
    each matrix that is fetched into the caches meanwhile.
    """

    instruction: str
    shape: TileShape
    a_row: int
    b_k: int
    c_row: int
    ahead: tuple[FetchedLines | FetchedColumns, ...] = ()

    @property
    def name(self) -> str:
        s = self.shape
        numbers = [s.rows, s.cols, s.depth, self.a_row, self.b_k, self.c_row]
        numbers += [n for lines in self.ahead for n in (lines.each, lines.row)]
        return f"tl.tiles.{self.instruction}.{'_'.join(map(str, numbers))}"

    @classmethod
    def parse(cls, instruction: str, numbers: str) -> TileKernel:
        rows, cols, depth, a_row, b_k, c_row, *ahead = (int(n) for n in numbers.split("_"))
        pairs = zip(ahead[::2], ahead[1::2])
        fetched = tuple(FetchedLines(each, row) if row else FetchedColumns(each) for each, row in pairs)
        return cls(instruction, TileShape(rows, cols, depth), a_row, b_k, c_row, fetched)


def uses_tiles(helper: str) -> bool:
    """Whether a launch that calls this helper needs `CONFIGURE` and `RELEASE`."""
    return helper.startswith("tl.tiles.")


def _kernel(name: str, instruction: str, numbers: str) -> Function:
    """`void name(a, b, c, i64 steps, i32 clear, [i64 a_row,] [next, i64 stride]...)`: C (+)= A @ B over steps >= 1 of `depth`
    groups.

    `next` and `stride` (bytes between rows) for each of `ahead`.
    """
    kernel = TileKernel.parse(instruction, numbers)
    op, shape = TILES[instruction], kernel.shape
    pointers = [(p, "ptr") for p in "abc"]
    ahead = [arg for i in range(len(kernel.ahead)) for arg in ((f"next{i}", "ptr"), (f"stride{i}", "i64"))]
    given_row = [] if kernel.a_row else [("a_row", "i64")]
    arguments = [*pointers, ("steps", "i64"), ("clear", "i32"), *given_row, *ahead]
    f = Function(name, "void", arguments, inline=False, arg_attrs="noalias nocapture")
    a, b, c, steps, clear = f.args[:5]
    a_row = f.const("i64", kernel.a_row) if kernel.a_row else f.args[5]
    products = [(i, v) for i in range(len(shape.heights)) for v in range(len(shape.widths))]

    def move(what: str, tile: int, at: Value, stride: int | Value) -> None:
        distance = stride if isinstance(stride, Value) else f.const("i64", stride)
        f.call_void(f"llvm.x86.{what}", register(f, tile), at, distance)

    def sums(what: str) -> None:
        for i, v in products:
            at = f.at(c, i * TILE * kernel.c_row + v * TILE * op.unit_bytes)
            move(what, accumulator(i, v), at, kernel.c_row)

    def load_a(i: int, start: Value) -> None:
        move("tileloadd64", of_a(i), f.at(start, second if i else 0), a_row)

    def load_b(v: int, start: Value) -> None:
        move("tileloadd64", of_b(v), f.at(start, v * TILE * op.unit_bytes), kernel.b_k)

    def next_lines(step: Value) -> list[tuple[Value, int]]:
        """Addresses, and from which cache on."""
        given = f.args[5 + len(given_row) :]
        return [
            (at, ahead.level)
            for i, ahead in enumerate(kernel.ahead)
            for at in ahead.addresses(f, step, *given[2 * i :][:2])
        ]

    f.block("entry")
    second = a_row * TILE if given_row else TILE * kernel.a_row
    f.line(f"br i1 {clear.compare('ne', 0).text}, label %zero, label %load")
    f.block("zero")
    for i, v in products:
        f.call_void("llvm.x86.tilezero", register(f, accumulator(i, v)))
    f.line("br label %first")
    f.block("load")
    sums("tileloadd64")
    f.line("br label %first")

    f.block("first")
    for line, level in next_lines(f.const("i64", 0)):
        f.fetch(line, level=level)
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
        for line, level in lines[number :: len(products)]:
            f.fetch(line, level=level)
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


def _edge(name: str, which: str) -> Function:
    f = Function(name, "void", [("rows", "i64"), ("columns", "i64")], inline=False)
    f.block("entry")
    held = f.emit("ptr", "alloca [64 x i8], align 1")
    f.store(f.const("<64 x i8>", 0), held, 1)
    f.store(f.const("i8", 1), held, 1)

    def within(count: Value, tile: int) -> Value:
        """How many of 16 lie in a tile: 0 to 16."""
        left = count - tile * TILE
        left = left.compare("sgt", 0).select(left, 0)
        return left.compare("slt", TILE).select(left, TILE).convert("trunc", "i16")

    def size(number: int, rows: Value, units: Value) -> None:
        """A tile without rows or columns has neither."""
        there = rows.compare("ne", 0) & units.compare("ne", 0)
        f.store(there.select(units * 4, 0), f.at(held, 16 + 2 * number), 1)
        f.store(there.select(rows, 0).convert("trunc", "i8"), f.at(held, 48 + number), 1)

    (rows, columns), whole = f.args, f.const("i16", TILE)
    heights, widths = ([within(count, tile) for tile in range(2)] for count in (rows, columns))
    for i, height in enumerate(heights):
        size(of_a(i), height, whole)
        for v, width in enumerate(widths):
            size(accumulator(i, v), height, width)
    for v, width in enumerate(widths):
        size(of_b(v), whole, width)
    f.call_void("llvm.x86.ldtilecfg", held)
    f.ret()
    return f


def _last_step(name: str, bits: str) -> Function:
    """`void name(ptr a, ptr copy, i64 rows, i64 pitch, i64 elements)`: the first elements, of so many bits each and no more than
    64 bytes, of so many rows, `pitch` bytes apart, as rows of 64 bytes, completed by zeros. Nothing else is read."""
    f = Function(name, "void", [("a", "ptr"), ("copy", "ptr"), *((x, "i64") for x in ("rows", "pitch", "elements"))],
                 inline=False, arg_attrs="noalias nocapture")  # fmt: skip
    a, copy, rows, pitch, elements = f.args
    size, row = int(bits) // 8, 4 * TILE
    f.block("entry")
    mask = some_lanes(f, row // size, elements)
    with f.count("row", "entry", rows) as i:
        read = load_masked(f, f"<{row // size} x i{bits}>", f.at(a, i * pitch), size, mask)
        f.store(read, f.at(copy, i * row), row)
    f.ret()
    return f


def _strip(name: str, bits: str, numbers: str) -> Function:
    """`void name(ptr a, ptr copy, i64 rows, i64 pitch, i64 elements)`: the first elements, of so many bits each, of so many rows,
    `pitch` bytes apart, as rows that are `row` bytes apart; zeros complete the last line of 64 bytes, or make it where there are
    no elements. Nothing else is read. numbers: lines of a row at most, `row`."""
    f = Function(name, "void", [("a", "ptr"), ("copy", "ptr"), *((x, "i64") for x in ("rows", "pitch", "elements"))],
                 inline=False, arg_attrs="noalias nocapture")  # fmt: skip
    a, copy, rows, pitch, elements = f.args
    most, apart = map(int, numbers.split("_"))
    line, size = 4 * TILE, int(bits) // 8
    each, type_ = line // size, f"<{line // size} x i{bits}>"
    f.block("entry")
    f.line(f"br i1 {elements.compare('eq', most * each).text}, label %all, label %some")
    f.block("all")
    with f.count("each", "all", rows, done="end") as i:
        source, target = f.at(a, i * pitch), f.at(copy, i * apart)
        lines = [f.load(type_, f.at(source, place), size) for place in range(0, most * line, line)]
        for number, read in enumerate(lines):
            f.store(read, f.at(target, number * line), line)
    f.ret()
    f.block("some")
    whole = (elements - 1) >> each.bit_length() - 1
    whole = whole.compare("sgt", 0).select(whole, 0)
    mask = some_lanes(f, each, elements - whole * each)
    with f.count("row", "some", rows, last="rest") as i:
        source, target = f.at(a, i * pitch), f.at(copy, i * apart)
        f.line(f"br i1 {whole.compare('sgt', 0).text}, label %line, label %rest")
        f.block("line")
        f.line("%number = phi i64 [ 0, %row ], [ %number.next, %line ]")
        at = f.raw("i64", "%number") * line
        f.store(f.load(type_, f.at(source, at), size), f.at(target, at), line)
        f.line("%number.next = add nuw nsw i64 %number, 1")
        f.line(f"%further = icmp ult i64 %number.next, {whole.text}")
        f.line("br i1 %further, label %line, label %rest")
        f.block("rest")
        read = load_masked(f, type_, f.at(source, whole * line), size, mask)
        f.store(read, f.at(target, whole * line), line)
    f.ret()
    return f


def _zeros(name: str, which: str) -> Function:
    """`void name(ptr at, i64 lines)`: so many times 64 bytes."""
    f = Function(name, "void", [("at", "ptr"), ("lines", "i64")], inline=False)
    at, lines = f.args
    f.block("entry")
    with f.count("line", "entry", lines) as i:
        f.store(f.const("<16 x i32>", 0), f.at(at, i * 64), 4)
    f.ret()
    return f


def _leave(name: str, dtype: str, how: str) -> Function:
    """`void name(ptr sums, ptr c, i64 rows, i64 columns, i64 pitch)`: C, of float32 or bfloat16, whose rows are `pitch` bytes
    apart, becomes so many rows and of 32 columns of a block of sums (`set`), or they are added to it (`add`); rounded
    once."""
    args = [("sums", "ptr"), ("c", "ptr"), ("rows", "i64"), ("columns", "i64"), ("pitch", "i64")]
    f = Function(name, "void", args, inline=False, arg_attrs="noalias nocapture")
    sums, c, rows, columns, pitch = f.args
    size, held = (2, f"<{TILE} x i16>") if dtype == "bfloat16" else (4, f"<{TILE} x float>")

    def totals(row: Value) -> list[Value]:
        return [f.load(f"<{TILE} x float>", f.at(sums, row * (8 * TILE) + half * (4 * TILE)), 4) for half in (0, 1)]

    def all_columns(row: Value) -> None:
        at, both = f.at(c, row * pitch), totals(row)
        if dtype == "bfloat16":  # the instruction takes denormals for zeros, which sums by `tdpbf16ps` never are
            return f.store(round_two_by_instruction(f, *both), at, size)
        for half, total in enumerate(both):
            f.store(total, f.at(at, half * (size * TILE)), size)

    def some_columns(row: Value) -> None:
        for half, (total, mask) in enumerate(zip(totals(row), masks)):
            at = f.at(c, row * pitch + half * (size * TILE))
            if how == "add":
                total = total + to_float(f, load_masked(f, held, at, size, mask), dtype)
            if dtype == "bfloat16":
                total = encode_bfloat(total) if how == "add" else round_by_instruction(f, total)
            store_masked(f, total, at, size, mask)

    f.block("entry")
    masks = [some_lanes(f, TILE, columns - first) for first in (0, TILE)]
    if how == "set":
        f.line(f"br i1 {columns.compare('sge', 2 * TILE).text}, label %all, label %some")
        f.block("all")
        with f.count("whole", "all", rows, done="end") as i:
            all_columns(i)
        f.ret()
        f.block("some")
    with f.count("row", "some" if how == "set" else "entry", rows) as i:
        some_columns(i)
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
    "tile_edge": _edge,
    "tile_rest": _last_step,
    "tile_strip": _strip,
    "tile_zeros": _zeros,
    "tile_leave": _leave,
    "tile_release": _release,
}
