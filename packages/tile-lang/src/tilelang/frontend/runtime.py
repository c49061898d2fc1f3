"""What rewritten kernel text calls while it is traced (`__tl.*`): assignment, loops, branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilelang.errors import (
    AssignToParameter,
    InvalidArgument,
    LoopCarriedValue,
    StaticValueNeeded,
    UndefinedName,
    UnsupportedConstruct,
)
from tilelang.frontend import values
from tilelang.frontend.annotations import TensorAnnotation, TensorSpec
from tilelang.frontend.buffers import Buffer, Element, Region, ScalarVar, subscript
from tilelang.frontend.buffers import store as store_element
from tilelang.frontend.builder import LoopFrame, active, require
from tilelang.frontend.literals import SYMBOL, is_literal
from tilelang.frontend.loops import Loop, serial
from tilelang.frontend.rewrite import Unassigned
from tilelang.frontend.values import Value, as_value, convert
from tilelang.ir.dtypes import DType, dtype_of

_MISSING = object()


def at(line: int, *names: str) -> None:
    """The statement at `line` begins; it assigns `names`."""
    builder = active()
    if builder is not None:
        builder.line = line
        builder.names = list(names)


def _peek(thunk: Callable[[], Any]) -> Any:
    try:
        return thunk()
    except NameError:  # UnboundLocalError too: the name has no value yet
        return _MISSING


def snapshot(peeks: Sequence[Callable[[], Any]]) -> tuple[Any, ...]:
    return tuple(_peek(p) for p in peeks)


# -- assignment -----------------------------------------------------------------------------------------------


def assign(name: str, value: Any, old: Callable[[], Any]) -> Any:
    """`name = value`: bind a run-time value, store into a mutable scalar, or keep a Python object."""
    before = _peek(old)
    if isinstance(before, ScalarVar) and not (isinstance(value, (ScalarVar,)) and value.fresh):
        if isinstance(value, (Value, bool, int, float)) or is_literal(value):
            store_element(before.buffer, 0, value)
            return before
    if isinstance(before, Buffer) and before.parameter and not isinstance(value, Buffer):
        raise AssignToParameter(
            f"{name} is a tensor parameter and is assigned to",
            found=f"`{name} = ...`",
            expected=f"an element `{name}[i] = ...` or a tile operator that writes it",
            repair=f"T.copy(tile, {name}[...]) or T.fill({name}, value)",
        )
    return bind(name, value)


def bind(name: str, value: Any) -> Any:
    """A name for a value. A run-time expression that reads memory is evaluated here, once."""
    if isinstance(value, ScalarVar):
        if value.fresh:
            value.fresh = False
            return value
        return _bind_node(name, value)
    if isinstance(value, Value) and not isinstance(value, values.Dynamic):
        if _is_plain_index(value):
            return value
        return _bind_node(name, value)
    return value


def _bind_node(name: str, value: Value) -> Value:
    from tvm import tirx

    builder = require(f"{name} = ...")
    node = value.node
    variable = tirx.Var(builder.unique(name), node.ty)
    builder.emit(tirx.Bind(variable, node, span=builder.span()))
    return Value(variable, value.dtype)


def _is_plain_index(value: Value) -> bool:
    """Integer arithmetic of loop variables and constants: no memory is read, so it stays an expression."""
    from tvm import ir, tirx

    if isinstance(value, Element):
        return False
    node = value.node
    if isinstance(node, (ir.Var, tirx.IntImm, tirx.FloatImm)):
        return True
    if not value.dtype.is_integer or value.dtype.lanes > 1:
        return False
    budget = 12
    stack = [node]
    while stack:
        part = stack.pop()
        budget -= 1
        if budget < 0:
            return False
        if isinstance(part, (ir.Var, tirx.IntImm)):
            continue
        if isinstance(part, (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)):
            stack += [part.a, part.b]
        else:
            return False
    return True


def unpack(value: Any, count: int) -> list[Any]:
    """The parts of the right side of `a, b = value`, each evaluated now."""
    parts = list(value)
    if len(parts) != count:
        raise InvalidArgument(
            "a tuple assignment does not fit",
            found=f"{len(parts)} values",
            expected=f"{count}",
            repair="match the sides",
        )
    builder = active()
    names = list(builder.names) if builder is not None else []
    done = []
    for i, part in enumerate(parts):
        reads = isinstance(part, Value) and not isinstance(part, values.Dynamic)
        if reads and not (isinstance(part, ScalarVar) and part.fresh) and not _is_plain_index(part):
            part = _bind_node(names[i] if i < len(names) else "value", part)
        done.append(part)
    return done


def augment(name: str, op: str, value: Any, old: Callable[[], Any]) -> Any:
    """`name += value`."""
    before = _peek(old)
    if before is _MISSING:
        raise UndefinedName(
            f"{name} is changed before it is assigned",
            found=f"`{name} {SYMBOL.get(op, op)}= ...` with no value before",
            expected=f"an assignment to {name} first",
            repair=f"{name} = T.alloc_var(dtype, init=0) before the loop, or {name} = 0 for a compile-time value",
        )
    if isinstance(before, Buffer):
        symbol = {**SYMBOL, "pow": "**", "matmul": "@"}[op]
        raise AssignToParameter(
            f"{name} is a buffer and is changed as a whole",
            found=f"`{name} {symbol}= ...`",
            expected="elements",
            repair=f"write the loop: `for {before.indices_text()} in T.Parallel(...): "
            f"{name}[{before.indices_text()}] {symbol}= ...`",
        )
    return assign(name, apply(op, before, value), old)


def apply(op: str, a: Any, b: Any) -> Any:
    if op == "pow":
        return values.power(a, b) if isinstance(a, Value) or isinstance(b, Value) else a**b
    if op == "matmul":
        return a @ b
    if isinstance(a, Value) or isinstance(b, Value) or isinstance(a, Buffer):
        return values.binary(op, a, b)
    import operator

    inplace = {"and": "iand", "or": "ior", "xor": "ixor"}.get(op, f"i{op}")
    return getattr(operator, inplace)(a, b)


def store(buffer: Any, index: Any, value: Any) -> None:
    store_element(buffer, index, value)


def update(buffer: Any, index: Any, op: str, value: Any) -> None:
    """`buffer[index] += value`, the index evaluated once."""
    if isinstance(buffer, (Buffer, Region, ScalarVar)):
        place = subscript(buffer, index) if isinstance(buffer, Buffer) else buffer[index]
        if isinstance(place, Element):
            store_element(place.buffer, tuple(place.indices), apply(op, place, value))
            return
        store_element(buffer, index, value)  # raises: a region is assigned to
    else:
        buffer[index] = apply(op, buffer[index], value)


def declare(name: str, annotation: Any, value: Any, old: Callable[[], Any]) -> Any:
    """`name: annotation` or `name: annotation = value`."""
    if value is Ellipsis:
        if isinstance(annotation, (TensorSpec, TensorAnnotation)):
            builder = require(f"{name}: {annotation}")
            if builder.eager is None:
                raise UnsupportedConstruct(
                    f"{name} is annotated as a tensor in the body of a T.prim_func",
                    expected="tensor annotations in the signature",
                    repair="move the annotation to the parameter, or use the eager style: @tilelang.jit without T.prim_func",
                )
            return builder.eager.declare(name, annotation)
        before = _peek(old)
        return Unassigned(name) if before is _MISSING else before
    if isinstance(annotation, DType) or isinstance(annotation, str) or annotation in (int, float, bool):
        dtype = dtype_of(annotation)
        if isinstance(value, ScalarVar) and value.fresh:
            return assign(name, value, old)
        if isinstance(value, Value) or is_literal(value):
            value = convert(as_value(value, dtype), dtype)
            return assign(name, value, old)
    return assign(name, value, old)


# -- loops ----------------------------------------------------------------------------------------------------


def ranged(function: Any, *args: Any) -> Any:
    """`range(...)` as the object of a `for`: T.serial, also for run-time bounds."""
    return serial(*args) if function is range else function(*args)


def loop(iterable: Any, names: tuple[str, ...]) -> Iterator[Any]:
    """`for names in iterable`: a loop of the kernel for T.serial and its kin and for range, else Python's own."""
    builder = active()
    if isinstance(iterable, range):
        iterable = serial(iterable.start, iterable.stop, iterable.step)
    if isinstance(iterable, Loop) and builder is not None:
        yield from iterable.trace(builder, names)
        return
    frame = LoopFrame("static", builder.branch_depth if builder else 0)
    if builder is not None:
        builder.loops.append(frame)
    try:
        yield from iterable
    finally:
        if builder is not None:
            builder.loops.remove(frame)
            builder.last_loop_static = True


def while_loop(condition: Callable[[], Any], forever: bool = False) -> Iterator[None]:
    """`while condition`: a loop of the kernel for a run-time condition (or a literal True), else Python's own."""
    builder = require("while")
    test = condition()
    if isinstance(test, Value) or forever:
        from tvm import tirx

        from tilelang.ir import tile_ir

        span = builder.span()
        node = convert(as_value(test), DType("bool")).node
        frame = LoopFrame("serial", builder.branch_depth)
        builder.loops.append(frame)
        with builder.body() as body:
            yield None
            done = tile_ir.sequence(body)
        builder.loops.remove(frame)
        builder.last_loop_static = False
        builder.emit(tirx.While(node, done, span=span))
        return
    frame = LoopFrame("static", builder.branch_depth)
    builder.loops.append(frame)
    turns = 0
    try:
        while test:
            yield None
            turns += 1
            if turns > 1_000_000:
                raise StaticValueNeeded(
                    "a `while` over compile-time values does not end",
                    found="a million turns",
                    expected="a condition that becomes false, or one on run-time values",
                    repair="use T.alloc_var for the values that the condition reads",
                )
            test = condition()
    finally:
        builder.loops.remove(frame)
        builder.last_loop_static = True


def leave(kind: str) -> bool:
    """`break` or `continue`: recorded for a loop of the kernel (False), Python's own for a static one (True)."""
    builder = require(kind)
    if not builder.loops:
        return True
    frame = builder.loops[-1]
    if frame.kind == "static":
        if builder.branch_depth > frame.branch_depth:
            raise StaticValueNeeded(
                f"`{kind}` under a run-time condition leaves a loop that Python unrolls",
                found="a Python loop over compile-time values",
                expected="a loop that exists when the kernel runs",
                repair="use `for i in T.serial(n)`",
            )
        return True
    if frame.kind == "parallel":
        raise UnsupportedConstruct(
            f"`{kind}` stands in T.Parallel",
            expected="iterations that all run",
            repair="put the rest of the body under an `if`, or use T.serial",
        )
    from tvm import tirx

    intrinsic = tirx.break_loop() if kind == "break" else tirx.continue_loop()
    builder.emit(tirx.Evaluate(intrinsic, span=builder.span()))
    return False


def after_loop(
    names: tuple[str, ...], carried: tuple[str, ...], before: tuple[Any, ...], peeks: Sequence[Callable[[], Any]]
) -> tuple[Any, ...]:
    """The values of names that a loop's body assigns, after the loop."""
    builder = active()
    was_static = builder is None or builder.last_loop_static
    result = []
    for name, old, peek in zip(names, before, peeks):
        new = _peek(peek)
        if was_static or new is old:
            result.append(Unassigned(name) if new is _MISSING else new)
        elif name in carried and not (old is _MISSING or isinstance(old, Unassigned) or isinstance(new, Buffer)):
            raise LoopCarriedValue(
                f"{name} carries a value from one iteration of a run-time loop to the next",
                found=f"{name} is read and then assigned in the loop's body, which is traced once",
                expected="a mutable scalar",
                repair=f"declare `{name} = T.alloc_var(dtype, init=...)` before the loop",
            )
        else:
            result.append(Unassigned(name, "loop"))
    return tuple(result)


# -- branches -------------------------------------------------------------------------------------------------


class Branch:
    """One `if`. For a compile-time condition one side runs; for a run-time one both are traced."""

    def __init__(self, test: Any, names: tuple[str, ...], before: tuple[Any, ...]) -> None:
        self.names, self.before, self.after_then = names, before, before
        self.dynamic = isinstance(test, Value)
        if self.dynamic:
            self.builder = require("if")
            self.span = self.builder.span()
            self.condition = convert(test, DType("bool")).node
            self.then_body: list[Any] = []
        else:
            if isinstance(test, (Buffer, Region)):
                raise StaticValueNeeded(
                    "a whole tile is the condition of an `if`",
                    found=f"{test!r}",
                    expected="one element or a comparison",
                    repair="index it: `if A[i] > 0:`",
                )
            self.taken = bool(test)

    def then(self) -> bool:
        if not self.dynamic:
            return self.taken
        self.builder.open()
        self.builder.branch_depth += 1
        return True

    def restore(self, peeks: Sequence[Callable[[], Any]]) -> tuple[Any, ...]:
        current = snapshot(peeks)
        if not self.dynamic:
            return tuple(Unassigned(n) if v is _MISSING else v for n, v in zip(self.names, current))
        self.after_then = current
        return tuple(Unassigned(n) if v is _MISSING else v for n, v in zip(self.names, self.before))

    def otherwise(self) -> bool:
        if not self.dynamic:
            return not self.taken
        self.then_body = self.builder.close()
        self.builder.open()
        return True

    def end(self, peeks: Sequence[Callable[[], Any]]) -> tuple[Any, ...]:
        current = snapshot(peeks)
        if not self.dynamic:
            return tuple(Unassigned(n) if v is _MISSING else v for n, v in zip(self.names, current))
        from tvm import tirx

        from tilelang.ir import tile_ir

        else_body = self.builder.close()
        self.builder.branch_depth -= 1
        if self.then_body or else_body:
            orelse = tile_ir.sequence(else_body) if else_body else None
            body = tile_ir.sequence(self.then_body)
            self.builder.emit(tirx.IfThenElse(self.condition, body, orelse, span=self.span))
        merged = []
        for name, old, first, second in zip(self.names, self.before, self.after_then, current):
            if isinstance(second, Unassigned) and old is _MISSING:
                second = _MISSING
            if first is old and second is old:
                merged.append(Unassigned(name) if old is _MISSING else old)
            elif first is second:
                merged.append(first)
            elif _same_constant(first, second):
                merged.append(first)
            else:
                merged.append(Unassigned(name, "if"))
        return tuple(merged)


def _same_constant(a: Any, b: Any) -> bool:
    return type(a) is type(b) and isinstance(a, (bool, int, float, str)) and a == b


def branch(test: Any, names: tuple[str, ...], peeks: Sequence[Callable[[], Any]]) -> Branch:
    return Branch(test, names, snapshot(peeks))


# -- expressions ----------------------------------------------------------------------------------------------


def logical(op: str, a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    """`a and b`, `a or b`: Python's rule for compile-time values, both sides for run-time ones."""
    left = a()
    if not isinstance(left, Value):
        return (left and b()) if op == "and" else (left or b())
    right = b()
    if not isinstance(right, Value) and isinstance(right, bool):
        if right is (op == "and"):
            return values.convert(left, DType("bool"))
    return values.logical(op, left, right)


logical_not = values.logical_not


def select(condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    if not isinstance(condition, Value):
        return then() if condition else otherwise()
    return values.select(condition, then(), otherwise())


def returning(value: Any) -> Any:
    """`return value`: legal wherever every path reaches it."""
    builder = active()
    if builder is not None and (builder.branch_depth or any(f.kind != "static" for f in builder.loops)):
        base = builder.macro_frames[-1] if builder.macro_frames else (0, 0)
        if builder.branch_depth > base[0] or len([f for f in builder.loops if f.kind != "static"]) > base[1]:
            raise UnsupportedConstruct(
                "`return` under a run-time condition or in a run-time loop",
                expected="one return that is always reached",
                repair="put the rest of the function under the opposite `if`",
            )
    return value


slice = slice
