"""Register-tiled GEMM kernels, as LLVM text. What they read of B is packed by `gemm_packing.py`.

One kernel is one function that adds `mr x (nv * lanes)` elements of C:

    for k: for v < nv: b[v] = B[k, v]; for i < mr: acc[i, v] += A[i, k] * b[v]        then C += acc  (or C = acc)

All `mr * nv` accumulators live in registers; A comes by broadcast, one scalar load for `nv` multiply-accumulates. Strides are
static (in the name), so that each row of A is one base register with a constant displacement. K is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .ahead import LINE, FetchedLines
from .conversions import encode_bfloat, round_by_instruction, to_float
from .instructions.multiply_accumulate import ALL, MultiplyAccumulate
from .llvm_text import Function, Value, vector
from .masks import first_lanes, load_masked, some_lanes, store_masked

#: Steps along K for which a kernel fetches lines at once.
ROUND = 16
#: Rows of B between the one that is packed and the one whose lines are fetched meanwhile.
ROWS_AHEAD = 16
#: Steps in one turn of a round's loop: what a turn costs beside its products would take a fifth of what the processor decodes.
UNROLLED = 4


@dataclass(frozen=True)
class KernelShape:
    """What one kernel function is specialised for. Strides in bytes; `k` counts groups of the instruction.

    `cols` valid columns of `nv * lanes`: the rest of the last vector is masked in C (and in B unless `b_padded`).
    `correction`: the accumulators of row i start at `correction[i]` (int32), see `Emitter.correction`. `c_row` 0: C lies in a
    tensor, the stride is an argument, and so with `a_row`, `a_k` and `b_k`. `some_rows`, `some_columns`: how many there are is an
    argument; the others are neither read nor written, of an A that has `all_of_a` rows not written. `odd`: whether half a pair of
    A follows the groups is an argument. `rounded`: C is bfloat16. `packs`: B lies in a tensor, the distance of its rows is an
    argument, and what is read of it is written to a panel, whose rows are `b_k` apart. `ahead`: of each matrix that is fetched
    into the caches meanwhile.
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
    all_of_a: bool = False
    some_columns: bool = False
    odd: bool = False
    rounded: bool = False
    packs: bool = False
    ahead: tuple[FetchedLines, ...] = ()

    @property
    def c_bytes(self) -> int:
        """Of an element of C."""
        return 2 if self.rounded else ALL[self.instruction].unit_bytes

    @property
    def name(self) -> str:
        numbers = [self.mr, self.nv, self.lanes, self.cols, self.a_row, self.a_k, self.b_k, self.c_row]
        numbers += [n for lines in self.ahead for n in (lines.each, lines.row)]
        flags = "p" * self.b_padded + "c" * self.correction + "r" * self.some_rows + "a" * self.all_of_a
        flags += "s" * self.some_columns + "o" * self.odd + "h" * self.rounded + "w" * self.packs
        return f"tl.gemm.{self.instruction}.{'_'.join(map(str, numbers))}.{flags or 'n'}"

    @classmethod
    def parse(cls, instruction: str, numbers: str, flags: str) -> KernelShape:
        mr, nv, lanes, cols, a_row, a_k, b_k, c_row, *ahead = (int(n) for n in numbers.split("_"))
        fetched = tuple(FetchedLines(*pair) for pair in zip(ahead[::2], ahead[1::2]))
        sizes = mr, nv, lanes, cols, a_row, a_k, b_k, c_row
        padded, correction, rows, all_of_a, columns, odd, rounded, packs = (flag in flags for flag in "pcrasohw")
        return cls(instruction, *sizes, padded, correction, rows, all_of_a, columns, odd, rounded, packs, fetched)


def _kernel(name: str, instruction: str, numbers: str, flags: str) -> Function:
    return write_kernel(name, KernelShape.parse(instruction, numbers, flags))


def write_kernel(name: str, shape: KernelShape) -> Function:
    """`void name(a, b, c, [correction], [panel], k, i32 clear, [a_row], [a_k], [b_row], [c_row], [rows], [columns], [odd], [next,
    stride]...)`

    Numbers are i64, strides in bytes; `next` and `stride` for each of `ahead`.
    """
    op = ALL[shape.instruction]
    pointers = [("a", "ptr"), ("b", "ptr"), ("c", "ptr"), *([("correction", "ptr")] if shape.correction else [])]
    pointers += [("panel", "ptr")] if shape.packs else []
    b_row = 0 if shape.packs else shape.b_k
    known: dict[str, Any] = {"a_row": shape.a_row, "a_k": shape.a_k, "b_row": b_row, "c_row": shape.c_row}
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
    walk = _Walk.of(f, shape, given, k)
    for i in range(shape.mr):
        first = f.const(type_, 0)
        if shape.correction:
            first = f.splat(f.load("i32", f.at(f.args[3], 4 * i), 4), shape.lanes)
        start.update({(i, v): first for v in range(shape.nv)})
    walks = {"a": f.args[0], "b": f.args[1]} | ({"panel": f.args[len(pointers) - 1]} if shape.packs else {})
    state = _State(walks, start)
    rest, left = _rounds(f, op, shape, state, walk, k, fetched)
    some, after = left.compare("ne", 0), "whole" if shape.odd else "finish"
    f.line(f"br i1 {some.text}, label %loop, label %{after}")
    last = _steps(f, op, shape, "loop", "rest", rest, walk, left, after)
    f.block(after)
    done = rest.join(f, after, ("rest", rest), ("loop", last))
    if shape.odd:
        f.line(f"br i1 {given['odd'].compare('ne', 0).text}, label %half, label %finish")
        f.block("half")
        half = _State(done.at, _step(f, op, shape, walk, done, done.sums, half=True))
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
                at = f.at(row, v * shape.lanes * shape.c_bytes)
                _store(f, shape, at, done.sums[i, v], label == "update", walk.masks[v])
        f.ret()
    if shape.some_rows and shape.mr > 1:
        f.block("done")
        f.ret()
    return f


@dataclass(frozen=True)
class _Walk:
    """Where the operands of a step lie, in bytes from its begin: rows of A, and so many steps on in A and in B; and the lanes of
    each vector of columns that are there (None: all). Where B is packed: bytes to the row that is fetched, and the end of B."""

    rows_of_a: Sequence[Value | int]
    steps_of_a: Sequence[Value | int]
    steps_of_b: Sequence[Value | int]
    masks: Sequence[Value | None]
    fetched: tuple[Value, Value] | None

    @classmethod
    def of(cls, f: Function, shape: KernelShape, given: Mapping[str, Any], k: Value) -> _Walk:
        rows: list[Value | int] = [0]
        for i in range(1, shape.mr):
            row = given["a_row"] * i
            if shape.some_rows and not shape.all_of_a:  # those that are not there: the first one again
                row = given["rows"].compare("ugt", i).select(f.const("i64", row) if shape.a_row else row, 0)
            rows.append(row)
        steps_of_a, steps_of_b = ([given[name] * i for i in range(UNROLLED + 1)] for name in ("a_k", "b_row"))
        masks = [first_lanes(f, shape.lanes, min(shape.lanes, shape.cols - v * shape.lanes)) for v in range(shape.nv)]
        if shape.some_columns:
            masks[-1] = some_lanes(f, shape.lanes, given["columns"] - (shape.nv - 1) * shape.lanes)
        pitch = given["b_row"]
        fetched = (pitch * ROWS_AHEAD, f.anywhere(f.args[1], k * pitch)) if shape.packs else None
        return cls(rows, steps_of_a, steps_of_b, masks, fetched)


#: The accumulators of (row, vector of columns).
Sums = dict[tuple[int, int], Value]


@dataclass(frozen=True)
class _State:
    """Where the kernel is along K, in "a", "b" and the "panel" that it writes, and the accumulators."""

    at: Mapping[str, Value]
    sums: Sums

    def join(self, f: Function, label: str, *ways: tuple[str, _State]) -> _State:
        """At the top of block `label`: the state of the way that was taken, given as (block, state)."""

        def phi(name: str, type_: str, values: list[tuple[str, Value]]) -> Value:
            arms = ", ".join(f"[ {value.text}, %{source} ]" for source, value in values)
            f.line(f"%{label}.{name} = phi {type_} {arms}")
            return f.raw(type_, f"%{label}.{name}")

        at = {p: phi(p, "ptr", [(source, way.at[p]) for source, way in ways]) for p in self.at}
        names = {t: f"acc{t[0]}_{t[1]}" for t in self.sums}
        sums = {t: phi(names[t], v.type, [(s, way.sums[t]) for s, way in ways]) for t, v in self.sums.items()}
        return _State(at, sums)

    def named(self, f: Function, prefix: str) -> _State:
        """The state under the names that it will have at the end of block `prefix`."""
        sums = {t: f.raw(v.type, f"%{prefix}.acc{t[0]}_{t[1]}.next") for t, v in self.sums.items()}
        return _State({p: f.raw("ptr", f"%{prefix}.{p}.next") for p in self.at}, sums)


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
    if walk.fetched is not None and unrolled > 1:
        _fetch_rows(f, shape, walk, *walk.fetched, now.at["b"], unrolled)
    for step in range(unrolled):
        sums = _step(f, op, shape, walk, now, sums, step)
    for t, value in sums.items():
        f.line(f"{last.sums[t].text} = freeze {value.typed()}")
    turn = {"a": walk.steps_of_a[unrolled], "b": walk.steps_of_b[unrolled], "panel": shape.b_k * unrolled}
    for name, pointer in now.at.items():
        size = turn[name]
        text = size if isinstance(size, int) else size.text
        f.line(f"{last.at[name].text} = getelementptr inbounds i8, ptr {pointer.text}, i64 {text}")
    f.line(f"%{label}.turn.next = add nuw nsw i64 %{label}.turn, 1")
    f.line(f"%{label}.more = icmp ult i64 %{label}.turn.next, {turns.text}")
    f.line(f"br i1 %{label}.more, label %{label}, label %{end}")
    return last


def _fetch_rows(f: Function, shape: KernelShape, walk: _Walk, far: Value, end: Value, b: Value, count: int) -> None:
    """Lines of so many rows of B, from the one on that lies `far` from `b`."""
    later = f.anywhere(b, far)
    first = later.compare("ult", end).select(later, b)
    for row in walk.steps_of_b[:count]:
        at = f.anywhere(first, f.const("i64", row) if isinstance(row, int) else row)
        for line in range(-(-shape.cols * ALL[shape.instruction].unit_bytes // LINE)):
            f.fetch(f.anywhere(at, f.const("i64", line * LINE)))


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
    b = f.at(now.at["b"], walk.steps_of_b[step]) if step else now.at["b"]
    columns = [_load_b(f, op, shape, f.at(b, v * shape.lanes * op.unit_bytes), walk, v) for v in range(shape.nv)]
    for v, column in enumerate(columns if shape.packs else ()):
        f.store(column, f.at(now.at["panel"], step * shape.b_k + v * shape.lanes * op.unit_bytes), op.unit_bytes)
    align = max(1, op.unit_bytes // op.group)
    for i in range(shape.mr):
        at = f.at(f.at(now.at["a"], walk.rows_of_a[i]), walk.steps_of_a[step])
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


def _store(f: Function, shape: KernelShape, at: Value, total: Value, adds: bool, mask: Value | None) -> None:
    """A vector of C becomes `total`, or is added to; of a rounded C the sum is rounded once."""
    if not shape.rounded:
        if adds:
            total = total + load_masked(f, total.type, at, shape.c_bytes, mask)
        store_masked(f, total, at, shape.c_bytes, mask)
        return
    if adds:
        old = to_float(f, load_masked(f, vector("i16", shape.lanes), at, shape.c_bytes, mask), "bfloat16")
        halves = encode_bfloat(total + old)
    else:  # it takes denormals for zeros, which sums by vdpbf16ps never are
        halves = round_by_instruction(f, total)
    store_masked(f, halves, at, shape.c_bytes, mask)


def _load_b(f: Function, op: MultiplyAccumulate, shape: KernelShape, at: Value, walk: _Walk, v: int) -> Value:
    mask = None if shape.b_padded else walk.masks[v]
    return load_masked(f, vector(op.unit_type, shape.lanes), at, max(1, op.unit_bytes // op.group), mask)


WRITERS: dict[str, Callable[..., Function]] = {"gemm": _kernel}
