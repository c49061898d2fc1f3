"""Register-tiled GEMM kernels and the packing they need, as LLVM text.

One kernel is one function that adds `mr x (nv * lanes)` elements of C:

    for k: for v < nv: b[v] = B[k, v]; for i < mr: acc[i, v] += A[i, k] * b[v]        then C += acc  (or C = acc)

All `mr * nv` accumulators live in registers; A comes by broadcast, one scalar load for `nv` multiply-accumulates. Strides are
static (in the name), so that each row of A is one base register with a constant displacement. K is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    tensor, the stride is an argument, and so with `b_k`. `ahead`: of each matrix that is fetched into the caches meanwhile.
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
    ahead: tuple[FetchedLines, ...] = ()

    @property
    def name(self) -> str:
        numbers = [self.mr, self.nv, self.lanes, self.cols, self.a_row, self.a_k, self.b_k, self.c_row]
        numbers += [n for lines in self.ahead for n in (lines.each, lines.row)]
        flags = "p" * self.b_padded + "c" * self.correction
        return f"tl.gemm.{self.instruction}.{'_'.join(map(str, numbers))}.{flags or 'n'}"

    @classmethod
    def parse(cls, instruction: str, numbers: str, flags: str) -> KernelShape:
        mr, nv, lanes, cols, a_row, a_k, b_k, c_row, *ahead = (int(n) for n in numbers.split("_"))
        fetched = tuple(FetchedLines(*pair) for pair in zip(ahead[::2], ahead[1::2]))
        return cls(instruction, mr, nv, lanes, cols, a_row, a_k, b_k, c_row, "p" in flags, "c" in flags, fetched)


def _kernel(name: str, instruction: str, numbers: str, flags: str) -> Function:
    return write_kernel(name, KernelShape.parse(instruction, numbers, flags))


def write_kernel(name: str, shape: KernelShape) -> Function:
    """`void name(a, b, c, [correction], i64 k, i32 clear, [i64 b_row], [i64 c_row], [next, i64 stride]...)`

    `next` and `stride` (bytes between rows) for each of `ahead`.
    """
    op = ALL[shape.instruction]
    pointers = [("a", "ptr"), ("b", "ptr"), ("c", "ptr"), *([("correction", "ptr")] if shape.correction else [])]
    pitch = [(name, "i64") for name, known in (("b_row", shape.b_k), ("c_row", shape.c_row)) if not known]
    ahead = [arg for i in range(len(shape.ahead)) for arg in ((f"next{i}", "ptr"), (f"stride{i}", "i64"))]
    arguments = [*pointers, ("k", "i64"), ("clear", "i32"), *pitch, *ahead]
    f = Function(name, "void", arguments, inline=False, arg_attrs="noalias nocapture")
    c = f.args[2]
    k, clear, *more = f.args[len(pointers) :]
    given, fetched = dict(zip((name for name, _ in pitch), more)), more[len(pitch) :]
    type_ = vector(op.acc_type, shape.lanes)
    tiles = [(i, v) for i in range(shape.mr) for v in range(shape.nv)]
    start: dict[tuple[int, int], Value] = {}
    f.block("entry")
    rows_of_b = [given["b_row"] * i if "b_row" in given else shape.b_k * i for i in range(UNROLLED + 1)]
    for i in range(shape.mr):
        first = f.const(type_, 0)
        if shape.correction:
            first = f.splat(f.load("i32", f.at(f.args[3], 4 * i), 4), shape.lanes)
        start.update({(i, v): first for v in range(shape.nv)})
    state = _State(f.args[0], f.args[1], start)
    rest, left = _rounds(f, op, shape, state, rows_of_b, k, fetched)
    some = left.compare("ne", 0)
    f.line(f"br i1 {some.text}, label %loop, label %finish")
    last = _steps(f, op, shape, "loop", "rest", rest, rows_of_b, left, "finish")
    f.block("finish")
    done = rest.join(f, "finish", ("rest", rest), ("loop", last)).sums
    fresh = clear.compare("ne", 0)
    f.line(f"br i1 {fresh.text}, label %write, label %update")
    for label in ("write", "update"):
        f.block(label)
        starts = [f.at(c, given["c_row"] * i if "c_row" in given else i * shape.c_row) for i in range(shape.mr)]
        for i, v in tiles:
            at = f.at(starts[i], v * shape.lanes * op.unit_bytes)
            mask = _mask(f, shape, v)
            total = done[i, v]
            if label == "update":
                total = total + load_masked(f, type_, at, op.unit_bytes, mask)
            store_masked(f, total, at, op.unit_bytes, mask)
        f.ret()
    return f


@dataclass(frozen=True)
class _State:
    """Where the kernel is along K, and the accumulators."""

    a: Value
    b: Value
    sums: dict[tuple[int, int], Value]

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
    rows_of_b: Sequence[Value | int],
    turns: Value,
    end: str,
    unrolled: int = 1,
) -> _State:
    """The block `label`, a loop of `turns` times `unrolled` steps along K from `before` to `end`: its last state. `rows_of_b`:
    bytes that so many groups along K take in B."""
    f.block(label)
    last = start.named(f, label)
    f.line(f"%{label}.turn = phi i64 [ 0, %{before} ], [ %{label}.turn.next, %{label} ]")
    now = start.join(f, label, (before, start), (label, last))
    sums = dict(now.sums)
    for step in range(unrolled):
        b = f.at(now.b, rows_of_b[step]) if step else now.b
        columns = [_load_b(f, op, shape, f.at(b, v * shape.lanes * op.unit_bytes), v) for v in range(shape.nv)]
        for i in range(shape.mr):
            at = f.at(now.a, i * shape.a_row + step * shape.a_k)
            wide = f.splat(f.load(op.unit_type, at, max(1, op.unit_bytes // op.group)), shape.lanes)
            for v in range(shape.nv):
                new = op.write(f, sums[i, v], wide, columns[v])
                sums[i, v] = f.emit(new.type, f"freeze {new.typed()}")
    for t, value in sums.items():
        f.line(f"{last.sums[t].text} = freeze {value.typed()}")
    f.line(f"{last.a.text} = getelementptr inbounds i8, ptr {now.a.text}, i64 {shape.a_k * unrolled}")
    turn = rows_of_b[unrolled]
    f.line(
        f"{last.b.text} = getelementptr inbounds i8, ptr {now.b.text}, i64 {turn if isinstance(turn, int) else turn.text}"
    )
    f.line(f"%{label}.turn.next = add nuw nsw i64 %{label}.turn, 1")
    f.line(f"%{label}.more = icmp ult i64 %{label}.turn.next, {turns.text}")
    f.line(f"br i1 %{label}.more, label %{label}, label %{end}")
    return last


def _rounds(
    f: Function,
    op: MultiplyAccumulate,
    shape: KernelShape,
    start: _State,
    rows_of_b: Sequence[Value | int],
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
    _steps(f, op, shape, "inner", "round", now, rows_of_b, turns, "round.end", UNROLLED)
    f.block("round.end")
    f.line("%round.number.next = add nuw nsw i64 %round.number, 1")
    f.line(f"%round.more = icmp ult i64 %round.number.next, {rounds.text}")
    f.line("br i1 %round.more, label %round, label %rest")
    f.block("rest")
    state = start.join(f, "rest", ("entry", start), ("round.end", last))
    return state, k & (ROUND - 1)


def _load_b(f: Function, op: MultiplyAccumulate, shape: KernelShape, at: Value, v: int) -> Value:
    mask = None if shape.b_padded else _mask(f, shape, v)
    return load_masked(f, vector(op.unit_type, shape.lanes), at, max(1, op.unit_bytes // op.group), mask)


def _mask(f: Function, shape: KernelShape, v: int) -> Value | None:
    """The valid lanes of column vector `v`; None when all are."""
    valid = min(shape.lanes, shape.cols - v * shape.lanes)
    if valid == shape.lanes:
        return None
    lanes = ", ".join(f"i1 {'true' if lane < valid else 'false'}" for lane in range(shape.lanes))
    return f.raw(vector("i1", shape.lanes), f"<{lanes}>")


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
    the units of column j of B; panel[k][j] = source[j][k]. A block is `lanes` units of k. Flag `x` as in interleave.
    """
    lanes, rows, last, source_row, panel_row = (int(n) for n in numbers.split("_"))
    unit = int(bits) // 8
    f = Function(
        name, "void", [("s", "ptr"), ("d", "ptr"), ("blocks", "i64")], inline=False, arg_attrs="noalias nocapture"
    )
    source, panel, blocks = f.args
    type_ = vector(f"i{bits}", lanes)

    def write(block: Value, units: int) -> None:
        mask = _lane_mask(f, lanes, units)
        start = f.at(source, block * (lanes * unit))
        into = f.at(panel, block * (lanes * panel_row))
        for first in range(0, rows, lanes):
            valid = min(lanes, rows - first)
            read = [load_masked(f, type_, f.at(start, (first + j) * source_row), 1, mask) for j in range(valid)]
            read += [f.const(type_, 0)] * (lanes - valid)
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
    "transpose": _transpose,
    "row_sums": _row_sums,
}
