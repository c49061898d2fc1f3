"""The LLVM helpers that generated code calls, written on demand from their names.

`tl.cvt.<from>.<to>.<lanes>`, `tl.math.<function>.<dtype>.<lanes>`, `tl.load|store|gather|scatter.<dtype>.<lanes>`,
`tl.load_first|store_first.<dtype>.<lanes>`,
`tl.lookup.<dtype>.<entries>.<lanes>.<elements of a register, or "halves">`, `tl.dot2|pack|unpack.<dtype>.<lanes>`,
`tl.popcount|clz|unequal.<dtype>.<lanes>`, `tl.wrapping|division.<op>.<dtype>.<lanes>`, `tl.atomic.<op>.<dtype>`,
and the GEMM kernels (`tl.gemm`, `tl.dots`, `tl.interleave`, `tl.transpose`, `tl.row_sums`, `tl.tiles`, ...).
A name says everything about its function, so equal names are equal functions.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable

from tilelang.ir.dtypes import dtype_of as dtype_facts

from . import ahead, conversions, gemm_dots, gemm_kernels, gemm_packing, gemm_streams, lookup, math, tile_kernels
from .conversions import llvm_scalar
from .features import CpuFeatures
from .flatten import storage_dtype
from .instructions.multiply_accumulate import VDPBF16PS
from .llvm_text import Function, Value, bits_of, mangle, vector
from .masks import load_masked, some_lanes, store_masked


def inline_text(names: Iterable[str], features: CpuFeatures) -> str:
    """LLVM text of the helpers among `names` that are to be inlined; empty for none."""
    functions = [_native(name, features) or helper(name) for name in sorted(set(names))]
    return _text([f for f in functions if f.inline], set())


def function_text(names: Iterable[str], module: str) -> str:
    """LLVM text of the helpers among `names` that stay functions, and of all they call, to be joined to `module`.

    The declarations that `module` has already are left out.
    """
    functions: dict[str, Function] = {}
    waiting = sorted({name for name in names if not helper(name).inline})
    while waiting:
        name = waiting.pop()
        if name not in functions:
            function = functions[name] = helper(name)
            waiting.extend(_name(line) for line in function.declarations() if _name(line).startswith("tl."))
    return _text(list(functions.values()), {_name(line) for line in module.splitlines() if line.startswith("declare ")})


def _text(functions: list[Function], known: set[str]) -> str:
    declared = {_name(line): line for f in functions for line in f.declarations()}
    wanted = [line for name, line in declared.items() if name not in known and not name.startswith("tl.")]
    return "\n".join([*wanted, *(f.text() for f in functions)])


def _name(declaration: str) -> str:
    return declaration.partition("@")[2].partition("(")[0].strip('"')


@functools.lru_cache(maxsize=1024)
def helper(name: str) -> Function:
    """The function called `name`."""
    _, kind, *rest = name.split(".")
    if kind not in _WRITERS:
        raise ValueError(f"no helper is called {name!r}")
    return _WRITERS[kind](name, *rest)


@functools.lru_cache(maxsize=1024)
def _native(name: str, features: CpuFeatures) -> Function | None:
    """The function called `name` by an instruction that not all machines have; None for others."""
    _, kind, *rest = name.split(".")
    if kind not in _NATIVE:
        return None
    first, second, lanes = rest
    return _NATIVE[kind](name, first, second, int(lanes), features)


def _conversion(name: str, source: str, target: str, lanes: str) -> Function:
    return conversions.conversion(name, source, target, int(lanes))


def _math(name: str, function: str, dtype: str, lanes: str) -> Function:
    return math.write(name, function, dtype, int(lanes))


def _element(dtype: str) -> tuple[str, int]:
    return llvm_scalar(dtype), dtype_facts(dtype).itemsize


def _load(name: str, dtype: str, lanes: str) -> Function:
    scalar, align = _element(dtype)
    type_ = vector(scalar, int(lanes))
    f = Function(name, type_, [("p", "ptr")])
    f.ret(f.load(type_, f.args[0], align))
    return f


def _store(name: str, dtype: str, lanes: str) -> Function:
    scalar, align = _element(dtype)
    f = Function(name, "void", [("p", "ptr"), ("x", vector(scalar, int(lanes)))])
    f.store(f.args[1], f.args[0], align)
    f.ret()
    return f


def _load_first(name: str, dtype: str, lanes: str) -> Function:
    """The first `count` lanes; the others are 0, and their memory is left alone."""
    scalar, align = _element(dtype)
    type_ = vector(scalar, int(lanes))
    f = Function(name, type_, [("p", "ptr"), ("count", "i64")])
    f.ret(load_masked(f, type_, f.args[0], align, some_lanes(f, int(lanes), f.args[1])))
    return f


def _store_first(name: str, dtype: str, lanes: str) -> Function:
    scalar, align = _element(dtype)
    f = Function(name, "void", [("p", "ptr"), ("x", vector(scalar, int(lanes))), ("count", "i64")])
    store_masked(f, f.args[1], f.args[0], align, some_lanes(f, int(lanes), f.args[2]))
    f.ret()
    return f


def _gather(name: str, dtype: str, lanes: str) -> Function:
    scalar, align = _element(dtype)
    count = int(lanes)
    type_ = vector(scalar, count)
    f = Function(name, type_, [("p", "ptr"), ("offsets", vector("i64", count))])
    pointer, offsets = f.args
    result = f.raw(type_, "poison")
    for i in range(count):
        offset = f.emit("i64", f"extractelement {offsets.typed()}, i64 {i}")
        element = f.load(scalar, f.at(pointer, offset), align)
        result = f.emit(type_, f"insertelement {result.typed()}, {element.typed()}, i64 {i}")
    f.ret(result)
    return f


def _repeat(name: str, dtype: str, few: str, lanes: str) -> Function:
    """Each of `few` elements in as many neighbouring lanes."""
    scalar, each = _element(dtype)[0], int(lanes) // int(few)
    f = Function(name, vector(scalar, int(lanes)), [("x", vector(scalar, int(few)))])
    f.ret(f.shuffle(f.args[0], f.args[0], [lane // each for lane in range(int(lanes))]))
    return f


def _scatter(name: str, dtype: str, lanes: str) -> Function:
    scalar, align = _element(dtype)
    count = int(lanes)
    f = Function(name, "void", [("p", "ptr"), ("offsets", vector("i64", count)), ("x", vector(scalar, count))])
    pointer, offsets, x = f.args
    for i in range(count):
        offset = f.emit("i64", f"extractelement {offsets.typed()}, i64 {i}")
        f.store(f.emit(scalar, f"extractelement {x.typed()}, i64 {i}"), f.at(pointer, offset), align)
    f.ret()
    return f


def _lookup(name: str, dtype: str, entries: str, lanes: str, width: str) -> Function:
    if width == "halves":
        return lookup.write_halves(name, dtype, int(entries), int(lanes))
    return lookup.write(name, dtype, int(entries), int(lanes), int(width))


def _dot2(name: str, dtype: str, lanes: str) -> Function:
    """c and the products of pairs of bfloat16, for machines that have vdpbf16ps."""
    count, width = int(lanes), max(4, int(lanes))  # the least that a register holds
    words, numbers = vector("i32", count), vector("float", count)
    f = Function(name, numbers, [("a", words), ("b", words), ("c", numbers)])
    a, b, c = (lookup.resized(f, x, range(count), width) for x in f.args)
    f.ret(lookup.resized(f, VDPBF16PS.write(f, c, a, b), range(count), count))
    return f


def _unpack(name: str, dtype: str, lanes: str) -> Function:
    """Bytes -> one element per byte, low bits first."""
    count, bits = int(lanes), dtype_facts(dtype).bits
    per = 8 // bits
    f = Function(name, vector("i8", count), [("x", vector("i8", max(1, count // per)))])
    (x,) = f.args
    if count == 1:
        wide = x
    else:
        spread = x if count // per > 1 else f.emit("<1 x i8>", f"insertelement <1 x i8> poison, {x.typed()}, i64 0")
        repeated = f.shuffle(spread, spread, [i // per for i in range(count)])
        shifts = ", ".join(f"i8 {i % per * bits}" for i in range(count))
        wide = repeated >> f.raw(repeated.type, f"<{shifts}>")
    if storage_dtype(dtype) == "int8":
        f.ret((wide << (8 - bits)).ashr(8 - bits))
    else:
        f.ret(wide & ((1 << bits) - 1))
    return f


def _pack(name: str, dtype: str, lanes: str) -> Function:
    """One element per byte -> bytes, low bits first."""
    count, bits = int(lanes), dtype_facts(dtype).bits
    per = 8 // bits
    packed = max(1, count // per)
    f = Function(name, vector("i8", packed), [("x", vector("i8", count))])
    x = f.args[0] & ((1 << bits) - 1)
    if count == 1:
        f.ret(x)
        return f

    def elements(place: int) -> Value:
        """Every `per`-th element from `place` on."""
        if packed == 1:
            return f.emit("i8", f"extractelement {x.typed()}, i64 {place}")
        return f.shuffle(x, x, list(range(place, count, per)))

    total = elements(0)
    for place in range(1, min(per, count)):
        total = total | (elements(place) << (place * bits))
    f.ret(total)
    return f


def _bit_count(name: str, dtype: str, lanes: str) -> Function:
    type_ = vector(llvm_scalar(dtype), int(lanes))
    f = Function(name, type_, [("x", type_)])
    if ".popcount." in name:
        f.ret(f.intrinsic("ctpop", f.args[0]))
    else:
        f.ret(f.call(f"llvm.ctlz.{mangle(type_)}", type_, f.args[0], f.const("i1", False)))
    return f


def _unequal(name: str, dtype: str, lanes: str) -> Function:
    count = int(lanes)
    type_ = vector(llvm_scalar(dtype), count)
    f = Function(name, vector("i1", count), [("a", type_), ("b", type_)])
    f.ret(f.args[0].compare("une", f.args[1]))
    return f


def _wrapping(name: str, operation: str, dtype: str, lanes: str) -> Function:
    """Integer sum, difference or product that wraps: TVM's own carry `nsw` or `nuw`, by which LLVM may assume otherwise."""
    type_ = vector(llvm_scalar(dtype), int(lanes))
    f = Function(name, type_, [("a", type_), ("b", type_)])
    a, b = f.args
    f.ret(getattr(operator, operation)(a, b))
    return f


def _division(name: str, operation: str, dtype: str, lanes: str) -> Function:
    """Integer quotient or remainder: `floordiv` and `floormod` round down, `truncdiv` and `truncmod` toward zero.

    TVM lowers floor division by what its analyzer knows of the operands' signs, and that takes a narrowing conversion
    for one that keeps the value. Division by 0, and of the smallest number by -1, would stop the process: their
    result is unspecified here.
    """
    type_ = vector(llvm_scalar(dtype), int(lanes))
    f = Function(name, type_, [("a", type_), ("b", type_)])
    a, b = f.args
    signed = dtype_facts(dtype).kind == "int"
    unusable = b.compare("eq", 0)
    if signed:
        smallest = -(1 << (bits_of(type_) - 1))
        unusable = unusable | (a.compare("eq", smallest) & b.compare("eq", -1))
    b = unusable.select(1, b)
    quotient, remainder = (a._binary(op, b) for op in (("sdiv", "srem") if signed else ("udiv", "urem")))
    if signed and operation.startswith("floor"):
        down = remainder.compare("ne", 0) & (remainder ^ b).compare("slt", 0)
        quotient, remainder = quotient - down.select(1, quotient._like(0)), remainder + down.select(b, 0)
    f.ret(quotient if operation.endswith("div") else remainder)
    return f


def _atomic(name: str, op: str, dtype: str) -> Function:
    from .atomics import write

    return write(name, op, dtype)


_NATIVE: dict[str, Callable[[str, str, str, int, CpuFeatures], Function | None]] = {
    "cvt": conversions.native,
    "math": math.native,
}

_WRITERS: dict[str, Callable[..., Function]] = {
    "cvt": _conversion,
    "math": _math,
    "load": _load,
    "store": _store,
    "load_first": _load_first,
    "store_first": _store_first,
    "gather": _gather,
    "repeat": _repeat,
    "scatter": _scatter,
    "lookup": _lookup,
    "dot2": _dot2,
    "unpack": _unpack,
    "pack": _pack,
    "popcount": _bit_count,
    "clz": _bit_count,
    "unequal": _unequal,
    "wrapping": _wrapping,
    "division": _division,
    "atomic": _atomic,
    **ahead.WRITERS,
    **gemm_dots.WRITERS,
    **gemm_kernels.WRITERS,
    **gemm_packing.WRITERS,
    **gemm_streams.WRITERS,
    **tile_kernels.WRITERS,
}
