"""The packing of B that register-tiled kernels need, as LLVM text: panels[k][column] of units of 4 bytes, or of one element."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .ahead import LINE
from .gemm_dots import sums_of_lanes
from .instructions.multiply_accumulate import VPDPBUSD, VPDPBUSD_SWAPPED
from .llvm_text import Function, Value, bits_of, split, vector
from .masks import first_lanes, load_masked, some_lanes, store_masked

#: Squares of a transposed B between those that are packed and those whose lines are fetched meanwhile: they lie in no straight
#: line, which the processor would follow. 4096 x 4096 float32 by 64 columns and 512 steps, EPYC, ms: 4.2 without fetching, 3.4 by
#: 2 to 8 squares, 3.6 by 16.
SQUARES_AHEAD = 4

#: Rows of bytes between those that are zipped and those whose lines are fetched meanwhile.
ROWS_AHEAD = 16

#: Units of four bytes in a vector of 512 bits.
LANES = 16

#: Columns of pairs that are packed at once from which on they are read by 64 bytes: 64 rows by 4096 x 4096, whose panels are 64
#: columns, 20.7 ms by 32 bytes, 21.9 so (a Xeon, by `vdpbf16ps`).
WIDE = 128

#: The sign bits of four bytes.
_OTHER_SIGNS = -0x7F7F7F80


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


def _pieces(f: Function, count: Value, whole: int, last: int, write: Callable[[Value, int], None]) -> None:
    """`write(i, whole)` for each of `count` >= 1 pieces, of the last one `write(i, last)`; follows the block `entry`."""
    full = count if last == whole else count - 1
    f.line(f"br i1 {full.compare('ne', 0).text}, label %pre, label %k.end")
    f.block("pre")
    _loop(f, full, "k", lambda i: write(i, whole), "pre")
    if last != whole:
        write(full, last)


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

    def write(k: Value, rows: int) -> None:
        start = f.at(source, k * (group * source_row))
        into = f.at(panel, k * panel_row)
        for first in range(0, cols, lanes):
            mask = first_lanes(f, lanes, min(lanes, cols - first))
            read = [
                load_masked(f, type_, f.at(start, g * source_row + first * int(bits) // 8), 1, mask)
                for g in range(rows)
            ]
            read += [f.const(type_, 0)] * (group - rows)
            f.store(_united(f, read, flags), f.at(into, first * 4), 4)

    f.block("entry")
    _pieces(f, groups, group, last, write)
    f.ret()
    return f


def _groups(name: str, bits: str, numbers: str, flags: str) -> Function:
    """`void name(ptr source, ptr panel, i64 rows, i64 pitch, i64 columns)`: so many rows of B, `pitch` bytes apart, to panels of
    units, a group of them each. Beyond so many columns, and in the last rows of a group that is not whole, panels have zeros;
    nothing is read there. Flag `x` as in interleave.

    numbers: group (a power of 2), lanes, most columns, panel row bytes, bytes from one panel to the next.
    """
    group, lanes, most, panel_row, distance = (int(n) for n in numbers.split("_"))
    args = [("s", "ptr"), ("d", "ptr"), ("rows", "i64"), ("pitch", "i64"), ("columns", "i64")]
    f = Function(name, "void", args, inline=False, arg_attrs="noalias nocapture")
    source, panel, rows, pitch, columns = f.args
    united = _quads if (group, lanes, bits) == (4, LANES, "8") else _units
    wide = most >= WIDE and most % (2 * LANES) == 0
    united = _pairs if (group, lanes, bits) == (2, LANES, "16") and wide else united
    step = lanes if united is _units else LINE * 8 // int(bits)  # columns at a time
    type_ = vector(f"i{bits}", step)
    f.block("entry")
    starts = range(0, most, step)
    masks = [some_lanes(f, step, columns - first) for first in starts]
    rest = rows & (group - 1)
    there = [f.splat(rest.compare("ugt", g), step) for g in range(1, group)]

    def write(number: Value, whole: bool, all_columns: bool = False) -> None:
        into, start = f.at(panel, number * panel_row), f.at(source, number * pitch * group)
        for first, some_columns in zip(starts, masks):
            mask = None if all_columns and first + step <= most else some_columns
            at = f.at(start, first * int(bits) // 8)
            if united is _quads and whole:
                for g in range(group):
                    f.fetch(f.anywhere(at, pitch * (ROWS_AHEAD + g)))
            read = [load_masked(f, type_, at, 1, mask)]
            for g in range(1, group):
                some = mask if whole or mask is None else mask & there[g - 1]
                read.append(load_masked(f, type_, f.at(at, pitch * g), 1, some))
            for column, units in zip(range(first, most, lanes), united(f, read, flags)):
                number_of_panel, byte = divmod(4 * column, panel_row)
                f.store(units, f.at(into, number_of_panel * distance + byte), 4)

    full = rows >> (group.bit_length() - 1)
    f.line(f"br i1 {full.compare('ne', 0).text}, label %pre, label %k.end")
    f.block("pre")
    f.line(f"br i1 {columns.compare('sge', most).text}, label %all, label %some")
    f.block("all")
    _loop(f, full, "fast", lambda number: write(number, True, True), "all")
    f.line("br label %k.end")
    f.block("some")
    _loop(f, full, "k", lambda number: write(number, True), "some")
    f.line(f"br i1 {rest.compare('ne', 0).text}, label %last, label %done")
    f.block("last")
    write(full, False)
    f.line("br label %done")
    f.block("done")
    f.ret()
    return f


def _units(f: Function, rows: list[Value], flags: str) -> list[Value]:
    return [_united(f, rows, flags)]


def _zipped(f: Function, low: Value, high: Value) -> list[Value]:
    """Both halves of the lanes of 128 bits, as elements of twice the size."""
    scalar, lanes = split(low.type)
    within, type_ = lanes // 4, vector(f"i{2 * bits_of(scalar)}", lanes // 2)
    found = []
    for first in (0, within // 2):
        places = [lane * within + first + i for lane in range(4) for i in range(within // 2)]
        both = f.shuffle(low, high, [half * lanes + place for place in places for half in (0, 1)])
        found.append(f.emit(type_, f"bitcast {both.typed()} to {type_}"))
    return found


def _pairs(f: Function, rows: list[Value], flags: str) -> list[Value]:
    """Two rows of 64 bytes as two vectors of 16 units; as `_quads`, by quarters of 128 bits' halves."""
    wide = vector("i64", 8)
    order = [4 * v + lane for lane in range(4) for v in range(2)]

    def permuted(row: Value) -> Value:
        units = f.emit(wide, f"bitcast {row.typed()} to {wide}")
        turned = f.shuffle(units, units, order)
        return f.emit(row.type, f"bitcast {turned.typed()} to {row.type}")

    units = _zipped(f, *map(permuted, rows))
    return [unit ^ _OTHER_SIGNS for unit in units] if "x" in flags else units


def _quads(f: Function, rows: list[Value], flags: str) -> list[Value]:
    """Four rows of 64 bytes as four vectors of 16 units.

    Within 128 bits bytes, then pairs, are zipped by one instruction each, and the four bytes of a lane that end in vector v come
    from its v-th: so rows are permuted first, by one for each, that lane l holds columns 4 l to 4 l + 3 of every vector.
    """
    wide = vector("i32", LANES)
    order = [4 * v + lane for lane in range(4) for v in range(4)]

    def permuted(row: Value) -> Value:
        units = f.emit(wide, f"bitcast {row.typed()} to {wide}")
        turned = f.shuffle(units, units, order)
        return f.emit(row.type, f"bitcast {turned.typed()} to {row.type}")

    first, second, third, fourth = map(permuted, rows)
    pairs = zip(_zipped(f, first, second), _zipped(f, third, fourth))
    units = [unit for low, high in pairs for unit in _zipped(f, low, high)]
    return [unit ^ _OTHER_SIGNS for unit in units] if "x" in flags else units


def _united(f: Function, rows: list[Value], flags: str) -> Value:
    """Rows of a group as units."""
    while len(rows) > 1:  # zip neighbours, widening the element each time: the first row ends up lowest
        rows = [_zip(f, low, high) for low, high in zip(rows[::2], rows[1::2])]
    return rows[0] ^ _OTHER_SIGNS if "x" in flags else rows[0]


def _zip(f: Function, low: Value, high: Value) -> Value:
    scalar, lanes = split(low.type)
    both = f.shuffle(low, high, [half * lanes + i for i in range(lanes) for half in (0, 1)])
    type_ = vector(f"i{2 * bits_of(scalar)}", lanes)
    return f.emit(type_, f"bitcast {both.typed()} to {type_}")


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
        mask = first_lanes(f, lanes, units)
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
                value = turned[i] ^ _OTHER_SIGNS if "x" in flags else turned[i]
                f.store(value, f.at(into, i * panel_row + first * unit), unit)

    f.block("entry")
    _pieces(f, blocks, lanes, last, write)
    f.ret()
    return f


def _turn(name: str, bits: str, numbers: str, flags: str) -> Function:
    """`void name(ptr source, ptr panel, i64 elements, i64 pitch, i64 rows)`: the same of so many elements of so many rows,
    `pitch` bytes apart. What lies beyond is not read; of the last square of each way the panel holds any numbers there, but
    zeros in the elements that complete a unit. Flag `x` as in interleave.

    numbers: lanes, most rows, panel row bytes, elements of a unit.
    """
    lanes, most, panel_row, group = (int(n) for n in numbers.split("_"))
    unit, together = int(bits) // 8, lanes * group
    args = [("s", "ptr"), ("d", "ptr"), ("elements", "i64"), ("pitch", "i64"), ("rows", "i64")]
    f = Function(name, "void", args, inline=False, arg_attrs="noalias nocapture")
    source, panel, elements, pitch, rows = f.args
    type_, loaded = vector(f"i{bits}", lanes), vector(f"i{int(bits) // group}", together)
    f.block("entry")
    full, left = elements >> (together.bit_length() - 1), elements & (together - 1)
    some = some_lanes(f, together, left)

    def square(first: int, block: Value, mask: Value | None) -> None:
        """Rows from `first` on, of the block of elements."""
        count, byte = min(lanes, most - first), block * (lanes * unit)
        # Of a row that is not there the first one.
        lines = [rows.compare("ugt", row).select(pitch * row, 0) for row in range(first, first + count)]
        if mask is None:
            later = block + SQUARES_AHEAD
            ahead = f.anywhere(source, later.compare("ult", full).select(later, block) * (lanes * unit))
            for line in lines:
                f.fetch(f.anywhere(ahead, line))
        read = []
        for line in lines:
            found = load_masked(f, loaded, f.at(f.at(source, byte), line), unit // group, mask)
            read.append(found if group == 1 else f.emit(type_, f"bitcast {found.typed()} to {type_}"))
        read += [f.const(type_, 0)] * (lanes - count)
        into, valid = f.at(panel, block * (lanes * panel_row)), first_lanes(f, lanes, count)
        for i, value in enumerate(_transpose_square(f, read)):
            value = value ^ _OTHER_SIGNS if "x" in flags else value
            store_masked(f, value, f.at(into, i * panel_row + first * unit), unit, valid)

    for first in range(0, most, lanes):  # few rows at a time lie in a straight line each
        here = f"rows{first}"
        f.line(f"br i1 {rows.compare('ugt', first).text}, label %{here}, label %end")
        f.block(here)
        f.line(f"br i1 {full.compare('ne', 0).text}, label %{here}.pre, label %{here}.k.end")
        f.block(f"{here}.pre")
        _loop(f, full, f"{here}.k", partial(square, first, mask=None), f"{here}.pre")
        f.line(f"br i1 {left.compare('ne', 0).text}, label %{here}.last, label %{here}.done")
        f.block(f"{here}.last")
        square(first, full, some)
        f.line(f"br label %{here}.done")
        f.block(f"{here}.done")
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
    """`void name(ptr a, ptr sums, i64 k, i64 rows)`: sums[i] = factor * sum of the first k elements of row i of an int8 matrix.

    numbers: row bytes, factor (`m` in flags: negative). `kind` is int8 or uint8. Four rows at a time, of which those that are
    not there are the last one again.
    """
    row, factor = (int(n) for n in numbers.split("_"))
    args = [("s", "ptr"), ("d", "ptr"), ("k", "i64"), ("rows", "i64")]
    f = Function(name, "void", args, inline=False, arg_attrs="noalias nocapture")
    source, sums, k, rows = f.args
    size, wide, together = 64, vector("i32", 16), range(4)
    ones, instruction = f.const(wide, 0x01010101), VPDPBUSD if kind == "uint8" else VPDPBUSD_SWAPPED
    f.block("entry")
    full, some = k >> (size.bit_length() - 1), some_lanes(f, size, k & (size - 1))

    def added(totals: list[Value], starts: list[Value], offset: Value, mask: Value | None) -> list[Value]:
        found = (load_masked(f, vector("i8", size), f.at(start, offset), 1, mask) for start in starts)
        units = [f.emit(wide, f"bitcast {bytes_.typed()} to {wide}") for bytes_ in found]
        return [instruction.write(f, total, unit, ones) for total, unit in zip(totals, units)]

    with f.count("row", "entry", rows, len(together), "end") as first:
        left = rows - first
        places = [first + left.compare("sgt", i).select(f.const("i64", i), left - 1) for i in together]
        starts = [f.at(source, place * row) for place in places]
        f.line(f"br i1 {full.compare('ne', 0).text}, label %step, label %end")
        f.block("step")
        f.line("%t = phi i64 [ 0, %row ], [ %t.next, %step ]")
        for i in together:
            f.line(f"%sum{i} = phi {wide} [ zeroinitializer, %row ], [ %sum{i}.next, %step ]")
        new = added([f.raw(wide, f"%sum{i}") for i in together], starts, f.raw("i64", "%t") * size, None)
        for i, value in enumerate(new):
            f.line(f"%sum{i}.next = freeze {value.typed()}")
        f.line("%t.next = add nuw nsw i64 %t, 1")
        f.line(f"%further = icmp ult i64 %t.next, {full.text}")
        f.line("br i1 %further, label %step, label %end")
        f.block("end")
        for i in together:
            f.line(f"%whole{i} = phi {wide} [ zeroinitializer, %row ], [ %sum{i}.next, %step ]")
        all_ = added([f.raw(wide, f"%whole{i}") for i in together], starts, full * size, some)
        total = sums_of_lanes(f, all_) * (-factor if "m" in flags else factor)
        store_masked(f, total, f.at(sums, first * 4), 4, some_lanes(f, len(together), left))
    f.ret()
    return f


WRITERS: dict[str, Callable[..., Function]] = {
    "interleave": _interleave,
    "groups": _groups,
    "transpose": _transpose,
    "turn": _turn,
    "row_sums": _row_sums,
}
