"""A small writer of LLVM IR text: typed values with operators, one instruction per line.

The helper functions of this target (conversions, vector math, GEMM micro kernels) are LLVM text, because tirx has no
words for masks, shuffles and dot products. A function is written by calling Python on `Value`s:

    f = Function("tl.double.4", "<4 x float>", [("x", "<4 x float>")])
    f.ret(f.args[0] + f.args[0])
    f.text()    # define linkonce_odr hidden <4 x float> @tl.double.4(<4 x float> %x) alwaysinline { ... }

Types are LLVM's own spelling. Python numbers become constants of the other operand's type.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


def vector(scalar: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements; the scalar itself for one."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def split(type_: str) -> tuple[str, int]:
    """(scalar type, lanes) of a type."""
    match = _VECTOR.fullmatch(type_)
    return (match[2], int(match[1])) if match else (type_, 1)


def is_float(type_: str) -> bool:
    return split(type_)[0] in _FLOAT_BITS


def bits_of(type_: str) -> int:
    """Bits of one lane."""
    scalar = split(type_)[0]
    return _FLOAT_BITS.get(scalar) or int(scalar[1:])


def mangle(type_: str) -> str:
    """The suffix that overloaded intrinsics carry: `v16f32`, `i64`."""
    scalar, lanes = split(type_)
    base = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(scalar, scalar)
    return base if lanes == 1 else f"v{lanes}{base}"


def constant(type_: str, value: float | int | bool) -> str:
    """A constant (broadcast to all lanes) as LLVM writes it."""
    scalar, lanes = split(type_)
    if is_float(type_):
        number = float(value)
        if scalar == "float":  # LLVM wants a float32 constant as the hex of the double that equals it
            number = struct.unpack("f", struct.pack("f", number))[0]
        text = "0x" + struct.pack(">d", number).hex().upper()
        if scalar == "half":
            text = "0xH" + struct.pack(">e", number).hex().upper()
    elif scalar == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return text if lanes == 1 else f"splat ({scalar} {text})"


class Value:
    """One SSA value (or constant) of a function being written."""

    def __init__(self, owner: Function, type_: str, text: str) -> None:
        self.owner, self.type, self.text = owner, type_, text

    def typed(self) -> str:
        return f"{self.type} {self.text}"

    def _like(self, other: Operand) -> Value:
        return other if isinstance(other, Value) else Value(self.owner, self.type, constant(self.type, other))

    def _binary(self, op: str, other: Operand) -> Value:
        return self.owner.emit(self.type, f"{op} {self.type} {self.text}, {self._like(other).text}")

    def __add__(self, other: Operand) -> Value:
        return self._binary("fadd" if is_float(self.type) else "add", other)

    def __sub__(self, other: Operand) -> Value:
        return self._binary("fsub" if is_float(self.type) else "sub", other)

    def __mul__(self, other: Operand) -> Value:
        return self._binary("fmul" if is_float(self.type) else "mul", other)

    def __truediv__(self, other: Operand) -> Value:
        return self._binary("fdiv", other)

    def __and__(self, other: Operand) -> Value:
        return self._binary("and", other)

    def __or__(self, other: Operand) -> Value:
        return self._binary("or", other)

    def __xor__(self, other: Operand) -> Value:
        return self._binary("xor", other)

    def __lshift__(self, other: Operand) -> Value:
        return self._binary("shl", other)

    def __rshift__(self, other: Operand) -> Value:
        """Logical shift; `ashr` keeps the sign."""
        return self._binary("lshr", other)

    def ashr(self, other: Operand) -> Value:
        return self._binary("ashr", other)

    def compare(self, predicate: str, other: Operand) -> Value:
        """`fcmp`/`icmp` with LLVM's predicate (`olt`, `ult`, `eq`, ...)."""
        op = "fcmp" if is_float(self.type) else "icmp"
        result = vector("i1", split(self.type)[1])
        return self.owner.emit(result, f"{op} {predicate} {self.type} {self.text}, {self._like(other).text}")

    def convert(self, op: str, scalar: str) -> Value:
        """`zext`, `sext`, `trunc`, `fpext`, `fptrunc`, `sitofp`, `uitofp`, `fptosi`, `bitcast` lane by lane."""
        result = vector(scalar, split(self.type)[1])
        if result == self.type:
            return self
        return self.owner.emit(result, f"{op} {self.typed()} to {result}")

    def bits(self) -> Value:
        """The lanes' bit patterns as integers."""
        return self.convert("bitcast", f"i{bits_of(self.type)}")

    def as_float(self) -> Value:
        """The float32 or float64 of these bit patterns."""
        return self.convert("bitcast", {16: "half", 32: "float", 64: "double"}[bits_of(self.type)])

    def select(self, yes: Operand, no: Operand) -> Value:
        """`self ? yes : no`, lane by lane; one of the two must be a Value."""
        model = yes if isinstance(yes, Value) else no
        assert isinstance(model, Value)
        yes, no = model._like(yes), model._like(no)
        return self.owner.emit(yes.type, f"select {self.typed()}, {yes.typed()}, {no.typed()}")


Operand = Value | float | int


class Function:
    """One LLVM function under construction.

    `inline` helpers disappear into their callers; the others stay functions of their own, private to the object.
    """

    def __init__(
        self, name: str, result: str, args: Sequence[tuple[str, str]], *, inline: bool = True, arg_attrs: str = ""
    ) -> None:
        self.name, self.result, self.inline = name, result, inline
        self.args = [Value(self, type_, f"%{arg}") for arg, type_ in args]
        self._signature = ", ".join(
            f"{type_} {arg_attrs + ' ' if type_ == 'ptr' and arg_attrs else ''}%{arg}" for arg, type_ in args
        )
        self._lines: list[str] = []
        self._declared: dict[str, None] = {}
        self._count = 0

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def emit(self, type_: str, instruction: str) -> Value:
        name = self.fresh()
        self._lines.append(f"  {name} = {instruction}")
        return Value(self, type_, name)

    def line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def block(self, label: str) -> None:
        self._lines.append(f"{label}:")

    @contextmanager
    def count(
        self, label: str, before: str, end: Value, step: int = 1, last: str = "", done: str = "done"
    ) -> Iterator[Value]:
        """A loop, the block `label`, that what is emitted inside is the body of: numbers 0, `step`, .. below `end`, perhaps none.
        It stands behind the block `before`; `done` follows. `last`: the body's last block, where it has more."""
        self.line(f"br i1 {end.compare('sgt', 0).text}, label %{label}, label %{done}")
        self.block(label)
        self.line(f"%{label}.i = phi i64 [ 0, %{before} ], [ %{label}.next, %{last or label} ]")
        yield self.raw("i64", f"%{label}.i")
        self.line(f"%{label}.next = add nuw nsw i64 %{label}.i, {step}")
        self.line(f"%{label}.more = icmp slt i64 %{label}.next, {end.text}")
        self.line(f"br i1 %{label}.more, label %{label}, label %{done}")
        self.block(done)

    def const(self, type_: str, value: float | int | bool) -> Value:
        return Value(self, type_, constant(type_, value))

    def raw(self, type_: str, text: str) -> Value:
        return Value(self, type_, text)

    def call(self, name: str, result: str, *args: Value) -> Value:
        """A call of another function, declared in this module."""
        self.declare(name, result, [a.type for a in args])
        return self.emit(result, f"call {result} @{name}({', '.join(a.typed() for a in args)})")

    def call_void(self, name: str, *args: Value) -> None:
        self.declare(name, "void", [a.type for a in args])
        self.line(f"call void @{name}({', '.join(a.typed() for a in args)})")

    def intrinsic(self, name: str, *args: Value) -> Value:
        """An overloaded intrinsic whose result has the type of its first argument."""
        return self.call(f"llvm.{name}.{mangle(args[0].type)}", args[0].type, *args)

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        return self.intrinsic("fma", a, a._like(b), a._like(c))

    def declare(self, name: str, result: str, types: Sequence[str]) -> None:
        self._declared[f"declare {result} @{name}({', '.join(types)})"] = None

    def load(self, type_: str, pointer: Value, align: int) -> Value:
        return self.emit(type_, f"load {type_}, ptr {pointer.text}, align {align}")

    def store(self, value: Value, pointer: Value, align: int) -> None:
        self.line(f"store {value.typed()}, ptr {pointer.text}, align {align}")

    def at(self, pointer: Value, offset: Value | int) -> Value:
        """`pointer` plus a byte offset."""
        if isinstance(offset, int) and offset == 0:
            return pointer
        text = str(offset) if isinstance(offset, int) else offset.text
        return self.emit("ptr", f"getelementptr inbounds i8, ptr {pointer.text}, i64 {text}")

    def anywhere(self, pointer: Value, offset: Value) -> Value:
        """`pointer` plus a byte offset that may leave what it points into: for `fetch` alone."""
        return self.emit("ptr", f"getelementptr i8, ptr {pointer.text}, {offset.typed()}")

    def fetch(self, pointer: Value, *, stored: bool = False, level: int = 1) -> None:
        """A line on its way into the caches from the first or second on, `stored`: to be written; harmless where there is no
        memory."""
        self.call_void("llvm.prefetch.p0", pointer, *(self.const("i32", x) for x in (int(stored), 4 - level, 1)))

    def splat(self, scalar: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1:
            return scalar
        type_ = vector(scalar.type, lanes)
        one = self.emit(type_, f"insertelement {type_} poison, {scalar.typed()}, i64 0")
        return self.shuffle(one, one, [0] * lanes)

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Lanes of the concatenation of `a` and `b` (which have one type)."""
        mask = f"<{len(lanes)} x i32> <{', '.join(f'i32 {i}' for i in lanes)}>"
        result = vector(split(a.type)[0], len(lanes))
        return self.emit(result, f"shufflevector {a.typed()}, {b.typed()}, {mask}")

    def ret(self, value: Value | None = None) -> None:
        self.line("ret void" if value is None else f"ret {value.typed()}")

    def text(self) -> str:
        """The definition, without the declarations of what it calls."""
        linkage = "linkonce_odr hidden" if self.inline else "internal"
        attributes = "alwaysinline nounwind" if self.inline else "noinline nounwind"
        head = f"define {linkage} {self.result} @{self.name}({self._signature}) {attributes} {{"
        return "\n".join([head, *self._lines, "}", ""])

    def declarations(self) -> list[str]:
        return list(self._declared)
