"""`tl.atomic.<op>.<dtype>`: one atomic update of one element, returning the old value.

Blocks run on several threads, so elements of global memory may be shared. Integers of a byte or more use the
machine's read-modify-write instructions; floats (narrow ones in float32, rounded) a compare-and-swap loop on their bits.
All orders are sequentially consistent: on x86 a locked instruction is.
"""

from __future__ import annotations

from tilelang.ir.dtypes import dtype_of as dtype_facts

from .conversions import llvm_scalar
from .llvm_text import Function, Value, is_float

_INTEGER = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exchange": "xchg", "store": "xchg"}


def write(name: str, op: str, dtype: str) -> Function:
    """`value name(ptr, value)`; values and results are as legalised code holds them."""
    facts = dtype_facts(dtype)
    if facts.bits < 8 and dtype != "bool":
        raise ValueError(f"no atomic operations on {dtype}: elements share bytes")
    held = llvm_scalar(dtype)
    f = Function(name, held, [("p", "ptr"), ("x", held)], inline=False)
    pointer, x = f.args
    f.block("entry")
    bits = f"i{8 * facts.itemsize}"
    code = x.convert("bitcast", bits) if is_float(held) else (x.convert("zext", bits) if held == "i1" else x)
    align = facts.itemsize
    if op == "load":
        old = f.emit(bits, f"load atomic {bits}, ptr {pointer.text} seq_cst, align {align}")
    elif facts.is_float and op in ("add", "max", "min"):
        old = _swap_loop(f, pointer, code, op, dtype, bits, align)
    else:
        sign = "" if dtype.startswith("int") else "u"
        word = _INTEGER.get(op) or sign + op
        old = f.emit(bits, f"atomicrmw {word} ptr {pointer.text}, {code.typed()} seq_cst, align {align}")
    if held == "i1":
        f.ret(old.compare("ne", 0))
    else:
        f.ret(old.convert("bitcast", held) if is_float(held) else old)
    return f


def _swap_loop(f: Function, pointer: Value, code: Value, op: str, dtype: str, bits: str, align: int) -> Value:
    first = f.emit(bits, f"load atomic {bits}, ptr {pointer.text} monotonic, align {align}")
    f.line("br label %try")
    f.block("try")
    f.line(f"%old = phi {bits} [ {first.text}, %entry ], [ %found, %try ]")
    old = f.raw(bits, "%old")
    new = _update(f, old, code, op, dtype).convert("bitcast", bits)
    f.line(f"%swap = cmpxchg ptr {pointer.text}, {old.typed()}, {new.typed()} seq_cst seq_cst, align {align}")
    f.line(f"%found = extractvalue {{ {bits}, i1 }} %swap, 0")
    f.line(f"%won = extractvalue {{ {bits}, i1 }} %swap, 1")
    f.line("br i1 %won, label %done, label %try")
    f.block("done")
    return old


def _update(f: Function, old: Value, code: Value, op: str, dtype: str) -> Value:
    """The new value, rounded to `dtype`."""
    native = {"float32": "float", "float64": "double"}.get(dtype)
    if native:
        a, b = old.convert("bitcast", native), code.convert("bitcast", native)
    else:
        a, b = (_widen(f, v, dtype) for v in (old, code))
    result = a + b if op == "add" else f.intrinsic(f"{op}num", a, b)
    if native:
        return result
    narrow = f"tl.cvt.float32.{dtype}.1"
    return f.call(narrow, llvm_scalar(dtype), result)


def _widen(f: Function, code: Value, dtype: str) -> Value:
    held = llvm_scalar(dtype)
    value = code.convert("bitcast", held) if is_float(held) else code
    return f.call(f"tl.cvt.{dtype}.float32.1", "float", value)
