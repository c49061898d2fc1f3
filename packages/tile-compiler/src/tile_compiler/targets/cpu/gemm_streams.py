"""GEMM of few rows by a transposed B that lies in a tensor: each line of B is read from memory once, where it lies.

    for 4 rows of B: for row block: for k in vectors: acc[i, j] += A[i, k:] * B[j, k:]      then C[i, j] (+)= the lanes' sum

A, whose rows lie on chip, is multiplied by rows of B that stay in the first cache until all row blocks have met them; each
block fetches its share of the next ones meanwhile. A copy of B would wait for memory first and multiply afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx as tir

from tilelang.ir import tile_ir

from .counts import index, loop_of
from .features import CpuFeatures
from .gemm_dots import ELEMENTS, FEW_ROWS, Element, Sums, accumulated, block_of, starts, store_sums
from .gemm_operands import Emitter, GemmSpec, Operand, Stmt, unsigned
from .instructions.multiply_accumulate import ALL, FMA_F32, QUADS, VDPBF16PS, MultiplyAccumulate, of_bytes
from .instructions.tile_multiply import TDPBF16PS, TileMultiply
from .llvm_text import Function, Value, vector

#: Rows up to which products are made so, and where tile registers multiply as well.
MOST_ROWS, MOST_BESIDE_TILES = 64, 8
#: Types of which up to FEW_ROWS rows are made so where there are no quads of them, or tile registers as well.
BYTES = {"int8", "uint8"}


def streams(
    op: MultiplyAccumulate | TileMultiply, a: str, b: str, features: CpuFeatures, turned: tuple[bool, bool], m: int
) -> MultiplyAccumulate | None:
    """The instruction for products of m rows whose B is taken where it lies, transposed; None where it is not. `op`: the one for
    operands on chip of types `a` and `b`."""
    if turned != (False, True) or m > MOST_ROWS:
        return None
    if op is TDPBF16PS and VDPBF16PS.available(features) and m <= MOST_BESIDE_TILES:
        return VDPBF16PS
    if {a, b} <= BYTES and (op in QUADS or m <= FEW_ROWS):
        return of_bytes(unsigned(a), features)
    widened = op is FMA_F32 and a == "float32" and b in ("float32", "float16", "bfloat16")
    return op if isinstance(op, MultiplyAccumulate) and (op is VDPBF16PS or widened) else None


class Streams(Emitter):
    """Few rows of B by blocks of rows of A, all of K in one call."""

    op: MultiplyAccumulate

    def __init__(self, spec: GemmSpec, op: MultiplyAccumulate) -> None:
        super().__init__(spec)
        self.op, self.lanes = op, op.lanes(spec.features)

    def emit(self) -> Stmt:
        spec = self.spec
        before, a = self.prepare_a()
        c_before, c, c_after = self.prepare_c()
        summed, sums = self.correction(a, within(spec.limits[2], spec.k))
        high, columns = block_of(spec.features, spec.m)
        there = within(spec.limits[1], spec.n)
        whole = tir.floordiv(there, index(columns))

        def blocks(first: Any, cols: int) -> Stmt:
            blocks = range(0, spec.m, high)
            calls = []
            for part, row in enumerate(blocks):
                call = self.call(a, c, (row, min(high, spec.m - row)), first, cols, (part, len(blocks)), sums)
                limit = spec.limits[0]
                calls.append(call if limit is None else tir.IfThenElse(limit > index(row), call, None))
            return tile_ir.sequence(calls)

        loops = [
            loop_of(whole, lambda t: blocks(t * columns, columns)),
            loop_of(there - whole * columns, lambda t: blocks(whole * columns + t, 1)),
        ]
        return tile_ir.sequence([*before, *c_before, *summed, *loops, *c_after])

    def call(
        self, a: Operand, c: Operand, rows: tuple[int, int], first: Any, cols: int, share: tuple[int, int], sums: Any
    ) -> Stmt:
        spec, (row, high) = self.spec, rows
        of_a, of_b = Element.of(a.dtype, self.op, self.op.a), Element.of(spec.b.dtype, self.op, self.op.b)
        strides = a.row_stride * of_a.size, c.row_stride * self.op.unit_bytes
        fetched = fetched_rows(cols, *share)
        shape = StreamShape(self.op.name, of_a.name, of_b.name, high, cols, self.lanes, *strides, *fetched)
        zero = index(0)
        places = a.address(index(row), zero), spec.b.address(zero, first), c.address(index(row), first)
        pitch = spec.b.any_stride(spec.b.col_dim) * index(of_b.size)
        args = (*places, *starts(sums, row), within(spec.limits[2], spec.k), pitch, self.clear)
        return tir.Evaluate(tir.call_extern("void", shape.name, *args))


def within(limit: Any, size: int) -> Any:
    """How many of `size` come before a limit (None: all)."""
    return index(size) if limit is None else tir.max(tir.min(limit, index(size)), index(0))


def fetched_rows(cols: int, part: int, parts: int) -> tuple[int, int]:
    """(first, step) of the rows of the following `cols` whose lines block `part` of `parts` fetches; of single ones it has none,
    as few follow."""
    return (min(part, cols), min(parts, cols)) if cols > 1 else (1, 1)


@dataclass(frozen=True)
class StreamShape:
    """What one function is specialised for: the elements of A and B, rows of A and of the transposed B, lanes of an accumulator,
    strides in bytes; the first of the following rows of B that it fetches, and how far the next ones are."""

    instruction: str
    a: str
    b: str
    rows: int
    cols: int
    lanes: int
    a_row: int
    c_row: int
    fetched: int
    step: int

    @property
    def name(self) -> str:
        numbers = (self.rows, self.cols, self.lanes, self.a_row, self.c_row, self.fetched, self.step)
        return f"tl.streams.{self.instruction}.{self.a}.{self.b}.{'_'.join(map(str, numbers))}"


def _streams(name: str, instruction: str, a_element: str, b_element: str, numbers: str) -> Function:
    """`void name(a, b, c, [start], i64 k, i64 b_row, i32 clear)`: C (+)= A B^T over k >= 0 elements, B's rows `b_row` bytes
    apart; `start`: int32 of each row."""
    shape = StreamShape(instruction, a_element, b_element, *(int(n) for n in numbers.split("_")))
    op, of_a, of_b = ALL[instruction], ELEMENTS[a_element], ELEMENTS[b_element]
    wide, together = vector(op.acc_type, shape.lanes), shape.lanes * op.group
    pointers = [(pointer, "ptr") for pointer in ("a", "b", "c", *(["start"] if of_b.flips else []))]
    arguments = [*pointers, ("k", "i64"), ("b_row", "i64"), ("clear", "i32")]
    f = Function(name, "void", arguments, inline=False, arg_attrs="noalias nocapture")
    a, b, c, *start, k, b_row, clear = f.args
    tiles = [(i, j) for i in range(shape.rows) for j in range(shape.cols)]

    def products(step: Value, sums: Sums, mask: Value | None) -> Sums:
        a_at, b_at = f.at(a, step * (together * of_a.size)), f.at(b, step * (together * of_b.size))
        rows = [of_a.load(f, f.at(a_at, i * shape.a_row), together, mask) for i in range(shape.rows)]
        columns = (of_b.load(f, f.at(b_at, b_row * j), together, mask) for j in range(shape.cols))
        done = accumulated(f, op, sums, rows, columns)
        for j in range(shape.fetched, shape.cols, shape.step) if mask is None else ():
            f.fetch(f.anywhere(b_at, b_row * (shape.cols + j)))
        return done

    f.block("entry")
    steps = f.emit("i64", f"udiv i64 {k.text}, {together}")
    f.line(f"br i1 {steps.compare('ne', 0).text}, label %loop, label %end")
    f.block("loop")
    f.line("%step = phi i64 [ 0, %entry ], [ %step.next, %loop ]")
    for i, j in tiles:
        f.line(f"%acc{i}_{j} = phi {wide} [ zeroinitializer, %entry ], [ %next{i}_{j}, %loop ]")
    new = products(f.raw("i64", "%step"), {(i, j): f.raw(wide, f"%acc{i}_{j}") for i, j in tiles}, None)
    for i, j in tiles:
        f.line(f"%next{i}_{j} = freeze {new[i, j].typed()}")
    f.line("%step.next = add nuw nsw i64 %step, 1")
    f.line(f"%more = icmp ult i64 %step.next, {steps.text}")
    f.line("br i1 %more, label %loop, label %end")
    f.block("end")
    for i, j in tiles:
        f.line(f"%whole{i}_{j} = phi {wide} [ zeroinitializer, %entry ], [ %next{i}_{j}, %loop ]")
    rest = f.emit("i64", f"urem i64 {k.text}, {together}")
    f.line(f"br i1 {rest.compare('ne', 0).text}, label %tail, label %sums")
    f.block("tail")
    lanes = ", ".join(f"i64 {lane}" for lane in range(together))
    mask = f.raw(vector("i64", together), f"<{lanes}>").compare("ult", f.splat(rest, together))
    new = products(steps, {(i, j): f.raw(wide, f"%whole{i}_{j}") for i, j in tiles}, mask)
    for i, j in tiles:
        f.line(f"%rest{i}_{j} = freeze {new[i, j].typed()}")
    f.line("br label %sums")
    f.block("sums")
    for i, j in tiles:
        f.line(f"%all{i}_{j} = phi {wide} [ %whole{i}_{j}, %end ], [ %rest{i}_{j}, %tail ]")
    done, fresh = {(i, j): f.raw(wide, f"%all{i}_{j}") for i, j in tiles}, clear.compare("ne", 0)
    store_sums(f, op, done, c, shape.c_row, fresh, start)
    f.block("stored")
    f.ret()
    return f


WRITERS: dict[str, Callable[..., Function]] = {"streams": _streams}
