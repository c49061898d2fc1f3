"""Register-tiled GEMM kernels and the packing they need, as LLVM text.

One kernel is one function that adds `mr x (nv * lanes)` elements of C:

    for k: for v < nv: b[v] = B[k, v]; for i < mr: acc[i, v] += A[i, k] * b[v]        then C += acc  (or C = acc)

All `mr * nv` accumulators live in registers; A comes by broadcast, one scalar load for `nv` multiply-accumulates. Strides are
static (in the name), so that each row of A is one base register with a constant displacement. K is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .ahead import FetchedLines
from .instructions.multiply_accumulate import ALL, MultiplyAccumulate
from .llvm_text import Function, Value, bits_of, mangle, split, vector

#: Steps along K for which a kernel fetches lines at once.
ROUND = 16
#: Steps in one turn of a round's loop: what a turn costs beside its products would take a fifth of what the processor decodes.
UNROLLED = 4


@dataclass(frozen=True)
class KernelShape:
    """What one kernel function is specialised for. Strides in bytes; `k` counts groups of the instruction.

    `cols` valid columns of `nv * lanes`: the rest of the last vector is masked in C (and in B unless `b_padded`).
    `correction`: the accumulators of row i start at `correction[i]` (int32), see `gemm.py` on int8. `c_row` 0: C lies in a
    tensor, the stride is an argument, and so with `a_row`, `a_k` and `b_k`. `some_rows`, `some_columns`: how many there are is an
    argument; the others are neither read nor written. `odd`: whether half a pair of A follows the groups is an argument. `ahead`:
    of each matrix that is fetched into the caches meanwhile.
    """

    instruction: str
    mr: int
    nv: int
    lanes: int
    cols: int
    a_row: int
    a_k: int
    b_k: int
    c_row: int
    b_padded: bool
    correction: bool
    some_rows: bool = False
    some_columns: bool = False
    odd: bool = False
    ahead: tuple[FetchedLines, ...] = ()

    @property
    def name(self) -> str:
        numbers = [self.mr, self.nv, self.lanes, self.cols, self.a_row, self.a_k, self.b_k, self.c_row]
        numbers += [n for lines in self.ahead for n in (lines.each, lines.row)]
        flags = "p" * self.b_padded + "c" * self.correction + "r" * self.some_rows + "s" * self.some_columns
        flags += "o" * self.odd
        return f"tl.gemm.{self.instruction}.{'_'.join(map(str, numbers))}.{flags or 'n'}"

    @classmethod
    def parse(cls, instruction: str, numbers: str, flags: str) -> KernelShape:
        mr, nv, lanes, cols, a_row, a_k, b_k, c_row, *ahead = (int(n) for n in numbers.split("_"))
        fetched = tuple(FetchedLines(*pair) for pair in zip(ahead[::2], ahead[1::2]))
        padded, correction, rows, columns, odd = (flag in flags for flag in "pcrso")
        sizes = mr, nv, lanes, cols, a_row, a_k, b_k, c_row
        return cls(instruction, *sizes, padded, correction, rows, columns, odd, fetched)


def _kernel(name: str, instruction: str, numbers: str, flags: str) -> Function:
    return write_kernel(name, KernelShape.parse(instruction, numbers, flags))


def write_kernel(name: str, shape: KernelShape) -> Function:
    """`void name(a, b, c, [correction], k, i32 clear, [a_row], [a_k], [b_row], [c_row], [rows], [columns], [odd], [next,
    stride]...)`

    Numbers are i64, strides in bytes; `next` and `stride` for each of `ahead`.
    """
    op = ALL[shape.instruction]
    pointers = [("a", "ptr"), ("b", "ptr"), ("c", "ptr"), *([("correction", "ptr")] if shape.correction else [])]
    known: dict[str, Any] = {"a_row": shape.a_row, "a_k": shape.a_k, "b_row": shape.b_k, "c_row": shape.c_row}
    wanted = [name for name, value in known.items() if not value]
    wanted += ["rows"] * shape.some_rows + ["columns"] * shape.some_columns + ["odd"] * shape.odd
    ahead = [arg for i in range(len(shape.ahead)) for arg in ((f"next{i}", "ptr"), (f"stride{i}", "i64"))]
    arguments = [*pointers, ("k", "i64"), ("clear", "i32"), *((name, "i64") for name in wanted), *ahead]
    f = Function(name, "void", arguments, inline=False, arg_attrs="noalias nocapture")
    c = f.args[2]
    k, clear, *more = f.args[len(pointers) :]
    given, fetched = {**known, **dict(zip(wanted, more))}, more[len(wanted) :]
    type_ = vector(op.acc_type, shape.lanes)
    start: Sums = {}
    f.block("entry")
    walk = _Walk.of(f, shape, given)
    for i in range(shape.mr):
        first = f.const(type_, 0)
        if shape.correction:
            first = f.splat(f.load("i32", f.at(f.args[3], 4 * i), 4), shape.lanes)
        start.update({(i, v): first for v in range(shape.nv)})
    state = _State(f.args[0], f.args[1], start)
    rest, left = _rounds(f, op, shape, state, walk, k, fetched)
    some, after = left.compare("ne", 0), "whole" if shape.odd else "finish"
    f.line(f"br i1 {some.text}, label %loop, label %{after}")
    last = _steps(f, op, shape, "loop", "rest", rest, walk, left, after)
    f.block(after)
    done = rest.join(f, after, ("rest", rest), ("loop", last))
    if shape.odd:
        f.line(f"br i1 {given['odd'].compare('ne', 0).text}, label %half, label %finish")
        f.block("half")
        half = _State(done.a, done.b, _step(f, op, shape, walk, done, done.sums, half=True))
        f.line("br label %finish")
        f.block("finish")
        done = done.join(f, "finish", ("whole", done), ("half", half))
    fresh = clear.compare("ne", 0)
    f.line(f"br i1 {fresh.text}, label %write, label %update")
    for label in ("write", "update"):
        f.block(label)
        for i in range(shape.mr):
            if shape.some_rows and i:
                there = given["rows"].compare("ugt", i)
                f.line(f"br i1 {there.text}, label %{label}.{i}, label %done")
                f.block(f"{label}.{i}")
            row = f.at(c, given["c_row"] * i)
            for v in range(shape.nv):
                at = f.at(row, v * shape.lanes * op.unit_bytes)
                total = done.sums[i, v]
                if label == "update":
                    total = total + load_masked(f, type_, at, op.unit_bytes, walk.masks[v])
                store_masked(f, total, at, op.unit_bytes, walk.masks[v])
        f.ret()
    if shape.some_rows and shape.mr > 1:
        f.block("done")
        f.ret()
    return f


@dataclass(frozen=True)
class _Walk:
    """Where the operands of a step lie, in bytes from its begin: rows of A, and so many steps on in A and in B; and the lanes of
    each vector of columns that are there (None: all)."""

    rows_of_a: Sequence[Value | int]
    steps_of_a: Sequence[Value | int]
    steps_of_b: Sequence[Value | int]
    masks: Sequence[Value | None]

    @classmethod
    def of(cls, f: Function, shape: KernelShape, given: Mapping[str, Any]) -> _Walk:
        rows: list[Value | int] = [0]
        for i in range(1, shape.mr):
            row = given["a_row"] * i
            if shape.some_rows:  # those that are not there: the first one again
                row = given["rows"].compare("ugt", i).select(f.const("i64", row) if shape.a_row else row, 0)
            rows.append(row)
        steps_of_a, steps_of_b = ([given[name] * i for i in range(UNROLLED + 1)] for name in ("a_k", "b_row"))
        masks = [_mask(f, shape, v) for v in range(shape.nv)]
        if shape.some_columns:
            masks[-1] = _some_lanes(f, shape.lanes, given["columns"] - (shape.nv - 1) * shape.lanes)
        return cls(rows, steps_of_a, steps_of_b, masks)


#: The accumulators of (row, vector of columns).
Sums = dict[tuple[int, int], Value]


@dataclass(frozen=True)
class _State:
    """Where the kernel is along K, and the accumulators."""

    a: Value
    b: Value
    sums: Sums

    def join(self, f: Function, label: str, *ways: tuple[str, _State]) -> _State:
        """At the top of block `label`: the state of the way that was taken, given as (block, state)."""

        def phi(name: str, type_: str, values: list[tuple[str, Value]]) -> Value:
            arms = ", ".join(f"[ {value.text}, %{source} ]" for source, value in values)
            f.line(f"%{label}.{name} = phi {type_} {arms}")
            return f.raw(type_, f"%{label}.{name}")

        a, b = (phi(p, "ptr", [(source, getattr(way, p)) for source, way in ways]) for p in "ab")
        names = {t: f"acc{t[0]}_{t[1]}" for t in self.sums}
        sums = {t: phi(names[t], v.type, [(s, way.sums[t]) for s, way in ways]) for t, v in self.sums.items()}
        return _State(a, b, sums)

    def named(self, f: Function, prefix: str) -> _State:
        """The state under the names that it will have at the end of block `prefix`."""
        sums = {t: f.raw(v.type, f"%{prefix}.acc{t[0]}_{t[1]}.next") for t, v in self.sums.items()}
        return _State(f.raw("ptr", f"%{prefix}.a.next"), f.raw("ptr", f"%{prefix}.b.next"), sums)


def _steps(
    f: Function,
    op: MultiplyAccumulate,
    shape: KernelShape,
    label: str,
    before: str,
    start: _State,
    walk: _Walk,
    turns: Value,
    end: str,
    unrolled: int = 1,
) -> _State:
    """The block `label`, a loop of `turns` times `unrolled` steps along K from `before` to `end`: its last state."""
    f.block(label)
    last = start.named(f, label)
    f.line(f"%{label}.turn = phi i64 [ 0, %{before} ], [ %{label}.turn.next, %{label} ]")
    now = start.join(f, label, (before, start), (label, last))
    sums = dict(now.sums)
    for step in range(unrolled):
        sums = _step(f, op, shape, walk, now, sums, step)
    for t, value in sums.items():
        f.line(f"{last.sums[t].text} = freeze {value.typed()}")
    for next_, pointer, turn in (
        (last.a, now.a, walk.steps_of_a[unrolled]),
        (last.b, now.b, walk.steps_of_b[unrolled]),
    ):
        size = turn if isinstance(turn, int) else turn.text
        f.line(f"{next_.text} = getelementptr inbounds i8, ptr {pointer.text}, i64 {size}")
    f.line(f"%{label}.turn.next = add nuw nsw i64 %{label}.turn, 1")
    f.line(f"%{label}.more = icmp ult i64 %{label}.turn.next, {turns.text}")
    f.line(f"br i1 %{label}.more, label %{label}, label %{end}")
    return last


def _step(
    f: Function,
    op: MultiplyAccumulate,
    shape: KernelShape,
    walk: _Walk,
    now: _State,
    sums: Sums,
    step: int = 0,
    half: bool = False,
) -> Sums:
    """The sums after one group along K, `step` groups on from `now`; `half`: of A's pair the second element is not there."""
    sums = dict(sums)
    b = f.at(now.b, walk.steps_of_b[step]) if step else now.b
    columns = [_load_b(f, op, shape, f.at(b, v * shape.lanes * op.unit_bytes), walk, v) for v in range(shape.nv)]
    align = max(1, op.unit_bytes // op.group)
    for i in range(shape.mr):
        at = f.at(f.at(now.a, walk.rows_of_a[i]), walk.steps_of_a[step])
        unit = f.load("i16", at, align).convert("zext", op.unit_type) if half else f.load(op.unit_type, at, align)
        wide = f.splat(unit, shape.lanes)
        for v in range(shape.nv):
            new = op.write(f, sums[i, v], wide, columns[v])
            sums[i, v] = f.emit(new.type, f"freeze {new.typed()}")
    return sums


def _rounds(
    f: Function,
    op: MultiplyAccumulate,
    shape: KernelShape,
    start: _State,
    walk: _Walk,
    k: Value,
    fetched: list[Value],
) -> tuple[_State, Value]:
    """All whole rounds, each of which fetches its lines and makes `ROUND` steps: the state in the block `rest` after them, and
    the steps that are left."""
    rounds = k >> (ROUND.bit_length() - 1)
    some = rounds.compare("ne", 0)
    f.line(f"br i1 {some.text}, label %round, label %rest")
    f.block("round")
    f.line("%round.number = phi i64 [ 0, %entry ], [ %round.number.next, %round.end ]")
    last = start.named(f, "inner")
    now = start.join(f, "round", ("entry", start), ("round.end", last))
    for i, lines in enumerate(shape.ahead):
        for at in lines.addresses(f, f.raw("i64", "%round.number"), *fetched[2 * i :][:2]):
            f.fetch(at, stored=True) if not i and not shape.c_row else f.fetch(at, level=2)
    f.line("br label %inner")
    turns = f.const("i64", ROUND // UNROLLED)
    _steps(f, op, shape, "inner", "round", now, walk, turns, "round.end", UNROLLED)
    f.block("round.end")
    f.line("%round.number.next = add nuw nsw i64 %round.number, 1")
    f.line(f"%round.more = icmp ult i64 %round.number.next, {rounds.text}")
    f.line("br i1 %round.more, label %round, label %rest")
    f.block("rest")
    state = start.join(f, "rest", ("entry", start), ("round.end", last))
    return state, k & (ROUND - 1)


def _load_b(f: Function, op: MultiplyAccumulate, shape: KernelShape, at: Value, walk: _Walk, v: int) -> Value:
    mask = None if shape.b_padded else walk.masks[v]
    return load_masked(f, vector(op.unit_type, shape.lanes), at, max(1, op.unit_bytes // op.group), mask)


def _mask(f: Function, shape: KernelShape, v: int) -> Value | None:
    """The valid lanes of column vector `v`; None when all are."""
    valid = min(shape.lanes, shape.cols - v * shape.lanes)
    if valid == shape.lanes:
        return None
    lanes = ", ".join(f"i1 {'true' if lane < valid else 'false'}" for lane in range(shape.lanes))
    return f.raw(vector("i1", shape.lanes), f"<{lanes}>")


def _some_lanes(f: Function, lanes: int, count: Value) -> Value:
    """The mask of the first `count`."""
    numbers = ", ".join(f"i32 {lane}" for lane in range(lanes))
    return f.raw(vector("i32", lanes), f"<{numbers}>").compare("slt", f.splat(count.convert("trunc", "i32"), lanes))


def load_masked(f: Function, type_: str, at: Value, align: int, mask: Value | None) -> Value:
    """A vector load; masked-off lanes are zero and not touched in memory."""
    if mask is None:
        return f.load(type_, at, align)
    name = f"llvm.masked.load.{mangle(type_)}.p0"
    f.declare(name, type_, ["ptr", mask.type, type_])
    return f.emit(type_, f"call {type_} @{name}(ptr align {align} {at.text}, {mask.typed()}, {type_} zeroinitializer)")


def store_masked(f: Function, value: Value, at: Value, align: int, mask: Value | None) -> None:
    if mask is None:
        f.store(value, at, align)
        return
    name = f"llvm.masked.store.{mangle(value.type)}.p0"
    f.declare(name, "void", [value.type, "ptr", mask.type])
    f.line(f"call void @{name}({value.typed()}, ptr align {align} {at.text}, {mask.typed()})")


# -- packing of B: panels[k][column] of 4-byte units --------------------------------------------------------------


def _loop(f: Function, count: Value, label: str, body: Callable[[Value], None], entry: str) -> None:
    """`for i in range(count): body(i)` for count >= 1; falls through to the block `<label>.end`."""
    f.line(f"br label %{label}")
    f.block(label)
    f.line(f"%{label}.i = phi i64 [ 0, %{entry} ], [ %{label}.next, %{label} ]")
    body(f.raw("i64", f"%{label}.i"))
    f.line(f"%{label}.next = add nuw nsw i64 %{label}.i, 1")
    f.line(f"%{label}.more = icmp ult i64 %{label}.next, {count.text}")
    f.line(f"br i1 %{label}.more, label %{label}, label %{label}.end")
    f.block(f"{label}.end")


def _interleave(name: str, bits: str, numbers: str, flags: str) -> Function:
    """`void name(ptr source, ptr panel, i64 groups)`: rows of B, `group` at a time, to one panel of units.

    numbers: group, lanes, valid columns, source row bytes, panel row bytes, rows of the last group. The source has
    `cols` elements of `bits` bits in each row; panel[k][j] holds source[group * k + g][j] for g < group. Flag `x`: the
    top bit of each byte is flipped (int8 <-> uint8 with an offset of 128).
    """
    group, lanes, cols, source_row, panel_row, last = (int(n) for n in numbers.split("_"))
    f = Function(
        name, "void", [("s", "ptr"), ("d", "ptr"), ("groups", "i64")], inline=False, arg_attrs="noalias nocapture"
    )
    source, panel, groups = f.args
    type_ = vector(f"i{bits}", lanes)

    def write(k: Value | None, rows: int) -> None:
        position = groups - 1 if k is None else k
        start = f.at(source, position * (group * source_row))
        into = f.at(panel, position * panel_row)
        for first in range(0, cols, lanes):
            mask = _lane_mask(f, lanes, min(lanes, cols - first))
            read = [
                load_masked(f, type_, f.at(start, g * source_row + first * int(bits) // 8), 1, mask)
                for g in range(rows)
            ]
            read += [f.const(type_, 0)] * (group - rows)
            while len(read) > 1:  # zip neighbours, widening the element each time: the first row ends up lowest
                read = [_zip(f, low, high) for low, high in zip(read[::2], read[1::2])]
            units = read[0]
            if "x" in flags:
                units = units ^ -0x7F7F7F80
            f.store(units, f.at(into, first * 4), 4)

    f.block("entry")
    full = groups if last == group else groups - 1
    some = full.compare("ne", 0)
    f.line(f"br i1 {some.text}, label %pre, label %k.end")
    f.block("pre")
    _loop(f, full, "k", lambda k: write(k, group), "pre")
    if last != group:
        write(None, last)
    f.ret()
    return f


def _pairs(name: str, bits: str, numbers: str, flags: str) -> Function:
    """`void name(ptr source, ptr panel, i64 rows, i64 pitch, i64 columns)`: so many rows of B, `pitch` bytes apart, to one panel
    of pairs of them. Beyond so many columns, and beside a last row that is single, the panel has zeros; nothing is read there.

    numbers: lanes, most columns, panel row bytes.
    """
    lanes, most, panel_row = (int(n) for n in numbers.split("_"))
    args = [("s", "ptr"), ("d", "ptr"), ("rows", "i64"), ("pitch", "i64"), ("columns", "i64")]
    f = Function(name, "void", args, inline=False, arg_attrs="noalias nocapture")
    source, panel, rows, pitch, columns = f.args
    type_ = vector(f"i{bits}", lanes)
    f.block("entry")
    starts = range(0, most, lanes)
    masks = [_some_lanes(f, lanes, columns - first) for first in starts]

    def write(pair: Value, single: bool) -> None:
        into, start = f.at(panel, pair * panel_row), f.at(source, pair * pitch * 2)
        for first, mask in zip(starts, masks):
            at = f.at(start, first * int(bits) // 8)
            low = load_masked(f, type_, at, 1, mask)
            high = f.const(type_, 0) if single else load_masked(f, type_, f.at(at, pitch), 1, mask)
            f.store(_zip(f, low, high), f.at(into, first * 4), 4)

    whole = rows >> 1
    f.line(f"br i1 {whole.compare('ne', 0).text}, label %pre, label %k.end")
    f.block("pre")
    _loop(f, whole, "k", lambda pair: write(pair, False), "pre")
    f.line(f"br i1 {(rows & 1).compare('ne', 0).text}, label %last, label %done")
    f.block("last")
    write(whole, True)
    f.line("br label %done")
    f.block("done")
    f.ret()
    return f


def _zip(f: Function, low: Value, high: Value) -> Value:
    scalar, lanes = split(low.type)
    both = f.shuffle(low, high, [half * lanes + i for i in range(lanes) for half in (0, 1)])
    type_ = vector(f"i{2 * bits_of(scalar)}", lanes)
    return f.emit(type_, f"bitcast {both.typed()} to {type_}")


def _lane_mask(f: Function, lanes: int, valid: int) -> Value | None:
    if valid == lanes:
        return None
    return f.raw(
        vector("i1", lanes), "<" + ", ".join(f"i1 {'true' if i < valid else 'false'}" for i in range(lanes)) + ">"
    )


def _transpose(name: str, bits: str, numbers: str, flags: str) -> Function:
    """`void name(ptr source, ptr panel, i64 blocks)`: columns of a transposed B to one panel.

    numbers: lanes, valid rows, valid units of the last block, source row bytes, panel row bytes. Source row j holds
    the units of column j of B; panel[k][j] = source[j][k]. A block is `lanes` units of k. Flag `x` as in interleave. Units of
    two bytes are turned by pairs of rows, whose number is whole vectors of pairs: `lanes` are of pairs.
    """
    lanes, rows, last, source_row, panel_row = (int(n) for n in numbers.split("_"))
    unit = int(bits) // 8
    f = Function(
        name, "void", [("s", "ptr"), ("d", "ptr"), ("blocks", "i64")], inline=False, arg_attrs="noalias nocapture"
    )
    source, panel, blocks = f.args
    type_, group = vector(f"i{bits}", lanes), 2 if bits == "16" else 1

    def write(block: Value, units: int) -> None:
        mask = _lane_mask(f, lanes, units)
        start = f.at(source, block * (lanes * unit))
        into = f.at(panel, block * (lanes * panel_row))
        for first in range(0, rows, lanes * group):
            valid = min(lanes * group, rows - first)
            read = [load_masked(f, type_, f.at(start, (first + j) * source_row), 1, mask) for j in range(valid)]
            if group > 1:
                read = [_zip(f, low, high) for low, high in zip(read[::2], read[1::2])]
            read += [f.const(type_, 0)] * (lanes - len(read))
            turned = _transpose_square(f, read)
            for i in range(units):
                value = turned[i] ^ -0x7F7F7F80 if "x" in flags else turned[i]
                f.store(value, f.at(into, i * panel_row + first * unit), unit)

    f.block("entry")
    full = blocks if last == lanes else blocks - 1
    some = full.compare("ne", 0)
    f.line(f"br i1 {some.text}, label %pre, label %k.end")
    f.block("pre")
    _loop(f, full, "k", lambda k: write(k, lanes), "pre")
    if last != lanes:
        write(blocks - 1, last)
    f.ret()
    return f


def _turn(name: str, bits: str, numbers: str, flags: str) -> Function:
    """`void name(ptr source, ptr panel, i64 elements, i64 pitch, i64 rows)`: the same of so many elements of so many rows,
    `pitch` bytes apart. What lies beyond is not read; of the last square of each way the panel holds any numbers there, but
    zeros in the elements that complete a unit.

    numbers: lanes, most rows, panel row bytes, elements of a unit.
    """
    lanes, most, panel_row, group = (int(n) for n in numbers.split("_"))
    unit, together = int(bits) // 8, lanes * group
    args = [("s", "ptr"), ("d", "ptr"), ("elements", "i64"), ("pitch", "i64"), ("rows", "i64")]
    f = Function(name, "void", args, inline=False, arg_attrs="noalias nocapture")
    source, panel, elements, pitch, rows = f.args
    type_, loaded = vector(f"i{bits}", lanes), vector(f"i{int(bits) // group}", together)

    def write(block: Value, mask: Value | None, label: str) -> None:
        start = f.at(source, block * (lanes * unit))
        into = f.at(panel, block * (lanes * panel_row))
        for first in range(0, most, lanes):
            if first:
                f.line(f"br i1 {rows.compare('ugt', first).text}, label %{label}.{first}, label %{label}.done")
                f.block(f"{label}.{first}")
            read = []
            for j in range(first, min(first + lanes, most)):
                row = rows.compare("ugt", j).select(pitch * j, 0)  # of a row that is not there the first one
                found = load_masked(f, loaded, f.at(start, row), unit // group, mask)
                read.append(found if group == 1 else f.emit(type_, f"bitcast {found.typed()} to {type_}"))
            read += [f.const(type_, 0)] * (lanes - len(read))
            for i, value in enumerate(_transpose_square(f, read)):
                valid = _lane_mask(f, lanes, min(lanes, most - first))
                store_masked(f, value, f.at(into, i * panel_row + first * unit), unit, valid)
        f.line(f"br label %{label}.done")
        f.block(f"{label}.done")

    f.block("entry")
    full, left = elements >> (together.bit_length() - 1), elements & (together - 1)
    f.line(f"br i1 {full.compare('ne', 0).text}, label %pre, label %rest")
    f.block("pre")
    f.line("br label %k")
    f.block("k")
    f.line("%k.i = phi i64 [ 0, %pre ], [ %k.next, %whole.done ]")
    write(f.raw("i64", "%k.i"), None, "whole")
    f.line("%k.next = add nuw nsw i64 %k.i, 1")
    f.line(f"%k.more = icmp ult i64 %k.next, {full.text}")
    f.line("br i1 %k.more, label %k, label %rest")
    f.block("rest")
    f.line(f"br i1 {left.compare('ne', 0).text}, label %part, label %end")
    f.block("part")
    write(full, _some_lanes(f, together, left), "last")
    f.line("br label %end")
    f.block("end")
    f.ret()
    return f


def _transpose_square(f: Function, rows: list[Value]) -> list[Value]:
    """lanes x lanes elements, by log2(lanes) rounds that swap blocks of 1, 2, 4, ... across pairs of rows."""
    lanes = len(rows)
    distance = 1
    while distance < lanes:
        new = list(rows)
        low = [i if not i & distance else i - distance + lanes for i in range(lanes)]
        high = [i + distance if not i & distance else i + lanes for i in range(lanes)]
        for i in range(lanes):
            if not i & distance:
                new[i] = f.shuffle(rows[i], rows[i + distance], low)
                new[i + distance] = f.shuffle(rows[i], rows[i + distance], high)
        rows = new
        distance *= 2
    return rows


def _row_sums(name: str, kind: str, numbers: str, flags: str) -> Function:
    """`void name(ptr a, ptr sums, i64 rows)`: sums[i] = factor * sum of row i of an int8 matrix.

    numbers: elements in a row, row bytes, factor (`m` in flags: negative). `kind` is int8 or uint8.
    """
    k, row, factor = (int(n) for n in numbers.split("_"))
    f = Function(
        name, "void", [("s", "ptr"), ("d", "ptr"), ("rows", "i64")], inline=False, arg_attrs="noalias nocapture"
    )
    source, sums, rows = f.args
    extend = "sext" if kind == "int8" else "zext"

    def write(i: Value) -> None:
        start = f.at(source, i * row)
        total = f.const("<16 x i32>", 0)
        for first in range(0, k, 16):
            mask = _lane_mask(f, 16, min(16, k - first))
            total = total + load_masked(f, "<16 x i8>", f.at(start, first), 1, mask).convert(extend, "i32")
        f.declare("llvm.vector.reduce.add.v16i32", "i32", ["<16 x i32>"])
        one = f.emit("i32", f"call i32 @llvm.vector.reduce.add.v16i32({total.typed()})")
        f.store(one * (-factor if "m" in flags else factor), f.at(sums, i * 4), 4)

    f.block("entry")
    _loop(f, rows, "row", write, "entry")
    f.ret()
    return f


WRITERS: dict[str, Callable[..., Function]] = {
    "gemm": _kernel,
    "interleave": _interleave,
    "pairs": _pairs,
    "transpose": _transpose,
    "turn": _turn,
    "row_sums": _row_sums,
}
