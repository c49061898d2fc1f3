"""Vectors of which some lanes are not there: masks, and the loads and stores that leave memory beside them alone."""

from __future__ import annotations

from .llvm_text import Function, Value, mangle, vector


def first_lanes(f: Function, lanes: int, valid: int) -> Value | None:
    """The mask of the first `valid`; None when all are."""
    if valid == lanes:
        return None
    return f.raw(
        vector("i1", lanes), "<" + ", ".join(f"i1 {'true' if i < valid else 'false'}" for i in range(lanes)) + ">"
    )


def some_lanes(f: Function, lanes: int, count: Value) -> Value:
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
