"""Elements of a small table by vectors of indices, as permutations in registers: no lane reads memory by itself.

    value_of[code]    (16 float32, 8 lanes)    ->    vpermps of either half of the table, vblendvps by bit 3 of the code

The table is loaded whole, which LLVM moves out of loops. Elements of less than 32 bits are widened there and cut in the end;
but those of 16 bits by indices of 16 bits or less are found 32 at a time (vpermw) where there is AVX-512.
"""

from __future__ import annotations

from collections.abc import Sequence

from .conversions import llvm_scalar
from .features import CpuFeatures
from .llvm_text import Function, Value, bits_of, split, vector

#: Registers that a table may take: of 16, half are left for the code around.
MOST_REGISTERS = 4
#: Elements of 16 bits in a register of AVX-512, the most that are found by indices of 16 bits.
HALVES = 32


def are_halves(dtype: str, entries: int, index_bits: int, features: CpuFeatures) -> bool:
    """Whether elements are found as they are, by indices of 16 bits."""
    wide = features.lanes(16) >= HALVES
    return wide and bits_of(llvm_scalar(dtype)) == 16 and index_bits <= 16 and entries <= HALVES


def helper_name(dtype: str, entries: int, lanes: int, features: CpuFeatures, index_bits: int = 32) -> str | None:
    """The name of the function that looks up `lanes` elements; None for tables that are read from memory."""
    if are_halves(dtype, entries, index_bits, features):
        return f"tl.lookup.{dtype}.{entries}.{lanes}.halves"
    if bits_of(llvm_scalar(dtype)) > 32 or entries > MOST_REGISTERS * features.lanes(32):
        return None
    return f"tl.lookup.{dtype}.{entries}.{lanes}.{features.lanes(32)}"


def looks_at(entries: int, features: CpuFeatures, halves: bool = False) -> bool:
    """Whether a look-up looks at no more bits of an index than count for so many entries, which fill their registers."""
    return (halves or entries >= features.lanes(32)) and not entries & entries - 1


def write(name: str, dtype: str, entries: int, lanes: int, width: int) -> Function:
    """`f(table, indices)`, with registers of `width` elements of 32 bits."""
    scalar = llvm_scalar(dtype)
    f = Function(name, vector(scalar, lanes), [("table", "ptr"), ("at", vector("i32", lanes))])
    table, at = f.args
    wide = "float" if scalar == "float" else "i32"
    registers = [_register(f, table, scalar, wide, first, entries, width) for first in range(0, entries, width)]
    found = None
    for first in range(0, lanes, width):
        some = resized(f, at, range(first, min(first + width, lanes)), width)
        part = resized(f, _chosen(f, registers, some), range(min(width, lanes - first)), min(width, lanes - first))
        found = part if found is None else _joined(f, found, part)
    assert found is not None
    f.ret(_narrow(found, scalar))
    return f


def write_halves(name: str, dtype: str, entries: int, lanes: int) -> Function:
    """The same for elements and indices of 16 bits. As many entries as a power of two fill the register again and again, so
    that further bits of an index do not count."""
    scalar = llvm_scalar(dtype)
    f = Function(name, vector(scalar, lanes), [("table", "ptr"), ("at", vector("i16", lanes))])
    table, at = f.args
    loaded = f.load(vector("i16", entries), table, 2)
    again = entries & entries - 1 == 0
    filled = [lane % entries if again else min(lane, entries - 1) for lane in range(HALVES)]
    register = f.splat(loaded, HALVES) if entries == 1 else f.shuffle(loaded, loaded, filled)
    found = None
    for first in range(0, lanes, HALVES):
        count = min(HALVES, lanes - first)
        some = resized(f, at, range(first, first + count), HALVES)
        part = f.call("llvm.x86.avx512.permvar.hi.512", register.type, register, some)
        part = resized(f, part, range(count), count)
        found = part if found is None else _joined(f, found, part)
    assert found is not None
    f.ret(_narrow(found, scalar))
    return f


def _register(f: Function, table: Value, scalar: str, wide: str, first: int, entries: int, width: int) -> Value:
    """Entries `first`, `first + 1`, ... of the table."""
    count, size = min(width, entries - first), bits_of(scalar) // 8
    loaded = f.load(vector(scalar, count), f.at(table, first * size), size)
    value = loaded if scalar == wide else loaded.bits().convert("zext", wide)
    return resized(f, value, range(count), width)


def resized(f: Function, x: Value, lanes: range, width: int) -> Value:
    """These lanes of `x` in a vector of `width`, or a scalar for 1; what follows them is any value."""
    count = split(x.type)[1]
    if width == 1:
        return x if count == 1 else f.emit(split(x.type)[0], f"extractelement {x.typed()}, i64 {lanes.start}")
    if count == 1:
        return f.splat(x, width)
    if count == width and lanes.start == 0:
        return x
    return f.shuffle(x, x, [*lanes, *[lanes.start] * (width - len(lanes))])


def _chosen(f: Function, registers: Sequence[Value], at: Value) -> Value:
    """Element `at` of the registers side by side."""
    scalar, width = split(registers[0].type)
    if len(registers) == 1:
        return _permuted(f, registers[0], at)
    if len(registers) == 2 and width == 16:
        kind, (low, high) = "ps" if scalar == "float" else "d", registers
        return f.call(f"llvm.x86.avx512.vpermi2var.{kind}.512", low.type, low, at, high)
    half = 1 << (len(registers) - 1).bit_length() - 1
    low, high = _chosen(f, registers[:half], at), _chosen(f, registers[half:], at)
    return (at & (half * width)).compare("ne", 0).select(high, low)


def _permuted(f: Function, register: Value, at: Value) -> Value:
    """vpermps or vpermd, which look at no more bits of an index than they need."""
    scalar, width = split(register.type)
    if width == 8:
        kind = "ps" if scalar == "float" else "d"
        return f.call(f"llvm.x86.avx2.perm{kind}", register.type, register, at)
    kind = "sf" if scalar == "float" else "si"
    return f.call(f"llvm.x86.avx512.permvar.{kind}.512", register.type, register, at)


def _joined(f: Function, a: Value, b: Value) -> Value:
    lanes = split(a.type)[1] + split(b.type)[1]
    b = resized(f, b, range(split(b.type)[1]), split(a.type)[1])
    return f.shuffle(a, b, range(lanes))


def _narrow(x: Value, scalar: str) -> Value:
    if split(x.type)[0] == scalar:
        return x
    bits = x if bits_of(scalar) == 32 else x.convert("trunc", f"i{bits_of(scalar)}")
    return bits.convert("bitcast", scalar)
