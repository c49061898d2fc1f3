"""GEMM of few rows by a transposed B: scalar products along K, so that B is read as it lies.

    for row block: for column block: for k in vectors: acc[i, j] += A[i, k:] * B[j, k:]      then C[i, j] (+)= the lanes' sum

Packing B for the kernels of `gemm_kernels.py` costs as much as some ten rows of products; here B is read once, and the lanes
of an accumulator are summed at the end (`sums_of_lanes`: a tree of shuffles that leaves the sums of neighbours side by side).
Integers of 8 bits are multiplied in quads where a level has that, B with its sign bits flipped as it is loaded; else they are
widened as they are loaded and multiplied in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx as tir

from tilelang.ir import tile_ir

from .counts import index
from .features import CpuFeatures
from .gemm_operands import Emitter, GemmSpec, Operand, Stmt, holds, unsigned
from .instructions.multiply_accumulate import (
    ALL,
    FMA_F32,
    FMA_F64,
    QUADS,
    VDPBF16PS,
    VPMADDWD,
    MultiplyAccumulate,
    of_bytes,
)
from .instructions.tile_multiply import TileMultiply
from .llvm_text import Function, Value, bits_of, split, vector
from .masks import first_lanes, load_masked

#: Rows up to which B is not packed, and no more than vectors along K, whose sums cost as much: behind them both ways take as
#: long with AVX2, before them this one 0.3 to 0.9 of the time (docs/performance/cpu.md).
FEW_ROWS = 8
#: The same of bfloat16 by `vdpbf16ps`, whose B is packed in pairs otherwise: 16 rows by 4096 x 4096 3.2 ms, 3.9 by a packed B.
MOST_HALVES = 16
#: Rows of bytes up to which the same holds where tile registers multiply, which halves are left to. 4096 x 4096 in int2, Sapphire
#: Rapids: 1, 4 rows 0.84, 1.84 ms, by tiles 1.58, 1.71; bfloat16 by a copied B 16 rows 8.4 ms, 24 by tiles 5.0.
MOST_BYTES_BESIDE_TILES = 2

#: Elements of 128 bits, within which a shuffle costs least.
_WITHIN = 128


def dots_of(spec: GemmSpec, op: MultiplyAccumulate | TileMultiply) -> MultiplyAccumulate | None:
    """The instruction by which `Dots` computes the product; None if it does not. `op`: the one for many rows."""
    operands = (spec.a, spec.b, spec.c)
    if any(spec.leaves) or not all(x.knows_stride(dim) for x in operands for dim in (x.row_dim, x.col_dim)):
        return None  # strides are in the kernels' names, and nothing ends
    most = MOST_BYTES_BESIDE_TILES if isinstance(op, TileMultiply) else FEW_ROWS
    bytes_only = _is_byte(spec.a) and _is_byte(spec.b) and holds(spec.c.dtype, VPMADDWD.acc)
    if bytes_only:
        op = of_bytes(unsigned(spec.a.dtype), spec.features)
    along_k = spec.b.col_stride != 1 and spec.b.row_stride == 1
    known = op in (FMA_F32, FMA_F64, VDPBF16PS) or bytes_only
    if not known or not along_k:
        return None
    assert isinstance(op, MultiplyAccumulate)
    rows = spec.a.col_stride == 1 or not (op.group > 1 or holds(spec.a.dtype, op.a))
    if op is VDPBF16PS:
        most = MOST_HALVES
    few = spec.m <= min(most, spec.k // (op.lanes(spec.features) * op.group))
    return op if rows and few else None


def _is_byte(operand: Operand) -> bool:
    return holds(operand.dtype, "int8") or holds(operand.dtype, "uint8")


def block_of(features: CpuFeatures, m: int) -> tuple[int, int]:
    """(rows, columns) of the accumulators at a time: with those of A, they fit the registers."""
    most = 6 if features.registers == 32 else 3
    rows = min(m, -(-m // -(-m // most)))
    return rows, 8 if rows == 1 else 4


class Dots(Emitter):
    """Blocks of rows by blocks of columns, all of one row block in one call."""

    op: MultiplyAccumulate

    def __init__(self, spec: GemmSpec, op: MultiplyAccumulate) -> None:
        super().__init__(spec)
        self.op, self.lanes = op, op.lanes(spec.features)

    def emit(self) -> Stmt:
        spec, op = self.spec, self.op
        turned = spec.b.transposed
        before: list[Stmt] = []
        b: list[Stmt] = []
        a = spec.a
        if op.group == 1:  # others take pairs along K as they lie
            before, a = self.prepare_a()
            if not holds(spec.b.dtype, op.b):
                b, turned = self._padded_copy(turned, op.b, spec.n)
        c_before, c, c_after = self.prepare_c()
        clear = self.clear
        summed, sums = self.correction(a, index(spec.k))
        stmts = [*before, *b, *c_before, *summed]
        rows, columns = block_of(spec.features, spec.m)
        for row in range(0, spec.m, rows):
            for first, cols in ((0, columns), (spec.n // columns * columns, spec.n % columns)):
                count = (spec.n - first) // cols if cols else 0
                if count:
                    high = min(rows, spec.m - row)
                    stmts.append(self.call(a, turned, c, (row, high), (first, cols, count), (clear, sums)))
        return tile_ir.sequence([*stmts, *c_after])

    def call(
        self,
        a: Operand,
        b: Operand,
        c: Operand,
        rows: tuple[int, int],
        columns: tuple[int, int, int],
        begin: tuple[Stmt, Any],
    ) -> Stmt:
        (row, high), (first, cols, count), (clear, sums) = rows, columns, begin
        of_a, of_b = Element.of(a.dtype, self.op, self.op.a), Element.of(b.dtype, self.op, self.op.b)
        strides = a.row_stride * of_a.size, b.row_stride * of_b.size, c.row_stride * self.op.unit_bytes
        shape = DotShape(self.op.name, of_a.name, of_b.name, high, cols, self.lanes, self.spec.k, *strides)
        zero = index(0)
        places = (a.address(index(row), zero), b.address(index(first), zero), c.address(index(row), index(first)))
        args = (*places, *starts(sums, row), tir.const(count, "int64"), clear)
        return tir.Evaluate(tir.call_extern("void", shape.name, *args))


def starts(sums: Any, row: int) -> list[Any]:
    """The argument for what rows of C start at, from `row` on; none where that is zero."""
    return [] if sums is None else [tir.address_of(tir.BufferLoad(sums, [index(row)]))]


@dataclass(frozen=True)
class Element:
    """An element of A or B in memory: an LLVM type, and how it becomes what the instruction multiplies ("": as it is)."""

    name: str
    type: str
    widened: str = ""

    @staticmethod
    def of(dtype: str, op: MultiplyAccumulate, wanted: str) -> Element:
        """Of an operand that holds `dtype` and is `wanted` by the instruction."""
        if op in QUADS:
            return ELEMENTS["byte" if unsigned(dtype) == unsigned(wanted) else "flipped"]
        if op is VPMADDWD and dtype == op.a:
            return ELEMENTS["s16"]
        if op is VPMADDWD:
            return ELEMENTS["u8" if unsigned(dtype) else "s8"]
        if op is VDPBF16PS:
            return ELEMENTS["bf16"]
        return {"float16": ELEMENTS["f16"], "bfloat16": ELEMENTS["wide_bf16"]}.get(dtype, ELEMENTS[op.name])

    @property
    def flips(self) -> bool:
        """Whether it is multiplied as if 128 were added or taken away."""
        return self.widened == "flip"

    @property
    def size(self) -> int:
        """Bytes."""
        return bits_of(self.type) // 8

    def load(self, f: Function, at: Value, lanes: int, mask: Value | None) -> Value:
        """`lanes` elements, of those that are widened to 16 bits each pair a lane of 32."""
        found = load_masked(f, vector(self.type, lanes), at, self.size, mask)
        if self.widened == "bf16":
            return (found.convert("zext", "i32") << 16).as_float()
        if self.widened == "fpext":
            return found.convert("bitcast", "half").convert("fpext", "float")
        if self.flips:
            return found ^ SIGN
        if not self.widened:
            return found
        pairs = vector("i32", lanes // VPMADDWD.group)
        return f.emit(pairs, f"bitcast {found.convert(self.widened, 'i16').typed()} to {pairs}")


#: The sign bit of a byte.
SIGN = 0x80
#: Halves are loaded as integers, which masks know on every level.
ELEMENTS = {
    e.name: e
    for e in (
        Element("f32", "float"),
        Element("f64", "double"),
        Element("bf16", "i16"),
        Element("f16", "i16", "fpext"),
        Element("wide_bf16", "i16", "bf16"),
        Element("u8", "i8", "zext"),
        Element("s8", "i8", "sext"),
        Element("s16", "i16"),
        Element("byte", "i8"),
        Element("flipped", "i8", "flip"),
    )
}


@dataclass(frozen=True)
class DotShape:
    """What one function is specialised for: the elements of A and B, rows of A and of the transposed B, lanes of an accumulator,
    elements along K, strides in bytes."""

    instruction: str
    a: str
    b: str
    rows: int
    cols: int
    lanes: int
    k: int
    a_row: int
    b_row: int
    c_row: int

    @property
    def name(self) -> str:
        numbers = (self.rows, self.cols, self.lanes, self.k, self.a_row, self.b_row, self.c_row)
        return f"tl.dots.{self.instruction}.{self.a}.{self.b}.{'_'.join(map(str, numbers))}"


#: The accumulators of (row of A, row of the transposed B).
Sums = dict[tuple[int, int], Value]


def accumulated(
    f: Function, op: MultiplyAccumulate, sums: Sums, rows: Sequence[Value], columns: Iterable[Value]
) -> Sums:
    """The accumulators after one vector along K of each row of A, and of each of B as it is loaded."""
    return {
        (i, j): op.write(f, sums[i, j], row, column) for j, column in enumerate(columns) for i, row in enumerate(rows)
    }


def store_sums(
    f: Function, op: MultiplyAccumulate, sums: Sums, c: Value, c_row: int, clear: Value, start: Sequence[Value]
) -> None:
    """The lanes' sums, from what each row starts at (a pointer, or none: zero), in rows of C `c_row` bytes apart, in place of
    what is there or added to it; ends in the block `stored`."""
    count = {i: [lanes for (row, _), lanes in sorted(sums.items()) if row == i] for i, _ in sums}
    totals = {i: sums_of_lanes(f, lanes) for i, lanes in count.items()}
    for pointer in start:
        for i, total in totals.items():
            first = f.load("i32", f.at(pointer, 4 * i), 4)
            totals[i] = total + f.splat(first, split(total.type)[1])
    f.line(f"br i1 {clear.text}, label %write, label %update")
    for label in ("write", "update"):
        f.block(label)
        for i, total in totals.items():
            at = f.at(c, i * c_row)
            value = total + f.load(total.type, at, op.unit_bytes) if label == "update" else total
            f.store(value, at, op.unit_bytes)
        f.line("br label %stored")


def _dots(name: str, instruction: str, a_element: str, b_element: str, numbers: str) -> Function:
    """`void name(a, b, c, [start], i64 count, i32 clear)`: C[:, j] (+)= A B[j]^T for `count` >= 1 blocks of `cols` columns;
    `start`: int32 of each row."""
    shape = DotShape(instruction, a_element, b_element, *(int(n) for n in numbers.split("_")))
    op, of_a, of_b = ALL[instruction], ELEMENTS[a_element], ELEMENTS[b_element]
    wide = vector(op.acc_type, shape.lanes)
    pointers = [(pointer, "ptr") for pointer in ("a", "b", "c", *(["start"] if of_b.flips else []))]
    arguments = [*pointers, ("count", "i64"), ("clear", "i32")]
    f = Function(name, "void", arguments, inline=False, arg_attrs="noalias nocapture")
    a, _, _, *start, count, clear = f.args
    together = shape.lanes * op.group  # elements along K in a vector
    steps, tail = divmod(shape.k, together)
    tiles = [(i, j) for i in range(shape.rows) for j in range(shape.cols)]

    def products(a_at: Value, b_at: Value, sums: Sums, mask: Value | None) -> Sums:
        rows = [of_a.load(f, f.at(a_at, i * shape.a_row), together, mask) for i in range(shape.rows)]
        columns = (of_b.load(f, f.at(b_at, j * shape.b_row), together, mask) for j in range(shape.cols))
        return accumulated(f, op, sums, rows, columns)

    f.block("entry")
    fresh = clear.compare("ne", 0)
    f.line("br label %block")
    f.block("block")
    f.line("%number = phi i64 [ 0, %entry ], [ %number.next, %stored ]")
    for p in "bc":
        f.line(f"%{p}.now = phi ptr [ %{p}, %entry ], [ %{p}.next, %stored ]")
    b_now, c_now = f.raw("ptr", "%b.now"), f.raw("ptr", "%c.now")
    f.line("br label %loop")
    f.block("loop")
    f.line("%k = phi i64 [ 0, %block ], [ %k.next, %loop ]")
    names = {(i, j): f"%acc{i}_{j}" for i, j in tiles}
    for t in tiles:
        f.line(f"{names[t]} = phi {wide} [ zeroinitializer, %block ], [ {names[t]}.next, %loop ]")
    step = f.raw("i64", "%k") * together
    places = f.at(a, step * of_a.size), f.at(b_now, step * of_b.size)
    new = products(*places, {t: f.raw(wide, names[t]) for t in tiles}, None)
    for t in tiles:
        f.line(f"{names[t]}.next = freeze {new[t].typed()}")
    f.line("%k.next = add nuw nsw i64 %k, 1")
    f.line(f"%more = icmp ult i64 %k.next, {steps}")
    f.line("br i1 %more, label %loop, label %finish")
    f.block("finish")
    sums = {t: f.raw(wide, f"{names[t]}.next") for t in tiles}
    if tail:
        end = steps * together
        sums = products(f.at(a, end * of_a.size), f.at(b_now, end * of_b.size), sums, first_lanes(f, together, tail))
    store_sums(f, op, sums, c_now, shape.c_row, fresh, start)
    f.block("stored")
    f.line(f"%b.next = getelementptr inbounds i8, ptr %b.now, i64 {shape.cols * shape.b_row}")
    f.line(f"%c.next = getelementptr inbounds i8, ptr %c.now, i64 {shape.cols * op.unit_bytes}")
    f.line("%number.next = add nuw nsw i64 %number, 1")
    f.line(f"%again = icmp ult i64 %number.next, {count.text}")
    f.line("br i1 %again, label %block, label %done")
    f.block("done")
    f.ret()
    return f


def sums_of_lanes(f: Function, vectors: list[Value]) -> Value:
    """The sum of the lanes of each, side by side: first those within 128 bits, `within` vectors becoming one, then across."""
    scalar, lanes = split(vectors[0].type)
    wanted, within = len(vectors), _WITHIN // bits_of(scalar)
    count = max(within, 1 << (wanted - 1).bit_length())
    vectors = [*vectors, *[f.const(vectors[0].type, 0)] * (count - wanted)]
    for _ in range(within.bit_length() - 1):
        vectors = [_neighbours(f, x, y, 1, within) for x, y in zip(vectors[::2], vectors[1::2])]
    for _ in range((lanes // within).bit_length() - 1):
        if len(vectors) > 1:
            vectors = [_neighbours(f, x, y, within, lanes) for x, y in zip(vectors[::2], vectors[1::2])]
        else:
            folded = _neighbours(f, vectors[0], vectors[0], within, split(vectors[0].type)[1])
            vectors = [f.shuffle(folded, folded, range(split(folded.type)[1] // 2))]
    while len(vectors) > 1:
        both = range(2 * split(vectors[0].type)[1])
        vectors = [f.shuffle(x, y, both) for x, y in zip(vectors[::2], vectors[1::2])]
    total = vectors[0]
    if wanted == 1:
        return f.emit(scalar, f"extractelement {total.typed()}, i64 0")
    return f.shuffle(total, total, range(wanted)) if split(total.type)[1] != wanted else total


def _neighbours(f: Function, x: Value, y: Value, unit: int, block: int) -> Value:
    """In each `block` elements: the sums of neighbours of `unit` elements of `x`, then those of `y`."""
    lanes = split(x.type)[1]

    def every_second(first: int) -> list[int]:
        starts = [(side, at) for at in range(0, lanes, block) for side in (0, lanes)]
        places = [(side + at, granule) for side, at in starts for granule in range(first * unit, block, 2 * unit)]
        return [start + granule + i for start, granule in places for i in range(unit)]

    return f.shuffle(x, y, every_second(0)) + f.shuffle(x, y, every_second(1))


WRITERS: dict[str, Callable[..., Function]] = {"dots": _dots}
