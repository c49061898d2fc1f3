"""Prints kernels of the SIMT IR (docs/internals/simt-ir.md) as C++ that a person can read.

    For(i, 0, 4, UNROLLED)                      #pragma unroll
      acc[i] = acc[i] + A[row, i] * s     ->    for (int i = 0; i < 4; ++i) {
                                                  acc[i] += A[row * 64 + i] * s;
                                                }

Declarations that nothing uses are left out; a loop that runs once is its body; `tl.origin` becomes a comment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import ir
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.cfamily.dialect import Dialect
from tile_compiler.cfamily.helpers import definitions
from tile_compiler.cfamily.intervals import UNKNOWN, Interval
from tile_compiler.cfamily.literals import UNARY, int_literal
from tile_compiler.cfamily.memory import Array, Line, parenthesized
from tile_compiler.cfamily.names import Names
from tile_compiler.cfamily.vectors import Vectors
from tile_compiler.errors import where
from tile_compiler.ranges import conjuncts, reads_memory
from tile_compiler.rewrite import UNROLL, is_call
from tilelang.ir import tile_ir

INDENT = "  "
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_COMPOUND = {prim.Add: "+=", prim.Sub: "-=", prim.Mul: "*="}


@dataclass(frozen=True)
class KernelInput:
    """One kernel to print.

    `params` are its buffers, then `scalars` its numbers, in the order of the launch's arguments. `grid` and `threads`
    are (variable, extent), x first. `nothing_negative` are the scalars that are never negative: extents of tensors.
    `narrow` are buffers of dynamic extents whose elements int32 can count: the launch's guard sees to it. `maps` are
    tensor maps, the last parameters. `beside_others`: other blocks, or an earlier launch, write what it reads while it runs,
    so that the compiler may not move its accesses across the calls that wait for them.
    """

    symbol: str
    params: tuple[Any, ...]
    scalars: tuple[Any, ...]
    grid: tuple[tuple[Any, Any], ...]
    threads: tuple[tuple[Any, Any], ...]
    body: Any
    aliases: tuple[Any, ...] = ()
    nothing_negative: frozenset[Any] = frozenset()
    narrow: frozenset[Any] = frozenset()
    min_blocks: int | None = None
    maps: tuple[Any, ...] = ()
    beside_others: bool = False

    @property
    def num_threads(self) -> int:
        total = 1
        for _, extent in self.threads:
            total *= int(extent)
        return total


@dataclass(frozen=True)
class Printed:
    """A source file, and what of it a debugger asks for.

    `lines`: (line of the text, the user's statement as file:line), where that changes. `arrays`: for each symbol the
    arrays in registers as (declaration, buffer), in the order of the text; `shared`: those in shared memory as (line of
    the declaration, buffer).
    """

    text: str
    lines: list[tuple[int, str]]
    arrays: dict[str, list[tuple[str, Any]]]
    shared: dict[str, list[tuple[int, Any]]]


def print_source(kernels: Sequence[KernelInput], dialect: Dialect, imported: Sequence[str] = ()) -> str:
    """The text of one source file; `imported` are the user's own C++ texts (`T.import_source`), which stand above."""
    return print_kernels(kernels, dialect, imported).text


def print_kernels(kernels: Sequence[KernelInput], dialect: Dialect, imported: Sequence[str] = ()) -> Printed:
    """As `print_source`, with what stands where."""
    printers = [Printer(kernel, dialect) for kernel in kernels]
    printed = [printer.kernel() for printer in printers]
    helpers = set[str]().union(*(p.helpers for p in printers))
    above = [f'#include "{dialect.header}"\n', *(text.strip() + "\n" for text in imported)]
    parts = [*above, *([definitions(helpers)] if helpers else [])]
    lines: list[tuple[int, str]] = []
    shared: dict[str, list[tuple[int, Any]]] = {}
    for printer, text in zip(printers, printed):
        first = 1 + sum(part.count("\n") + 1 for part in parts)
        lines += [(first + number, at) for number, at in printer.places]
        shared[printer.input.symbol] = [(first + number, buffer) for number, buffer in printer.placed]
        parts.append(text)
    return Printed("\n".join(parts), lines, {p.input.symbol: p.declared for p in printers}, shared)


class Printer(Vectors):
    """Prints one kernel: `kernel()`, once; then `places`, `declared` and `placed` say what its lines are (see Printed)."""

    def __init__(self, kernel: KernelInput, dialect: Dialect) -> None:
        super().__init__(Names([kernel.symbol]))
        self.input = kernel
        self.dialect = dialect
        self.fast = dialect.fast_math
        self.places: list[tuple[int, str]] = []
        self.declared: list[tuple[str, Any]] = []
        self.placed: list[tuple[int, Any]] = []

    def kernel(self) -> str:
        """Head and body."""
        for var in self.input.scalars:
            self.names[var] = self.identifiers.new(var.name)
            if var in self.input.nothing_negative:
                self.intervals.set(var, (0, UNKNOWN[1]))
        for var in self.input.maps:
            self.names[var] = f"&{self.identifiers.new(var.name)}"
        for buffer in self.input.params:
            self.add_array(buffer, "global", narrow=buffer in self.input.narrow)
        for axes, hardware in ((self.input.grid, "blockIdx"), (self.input.threads, "threadIdx")):
            for (var, extent), axis in zip(axes, "xyz"):
                self._axis(var, extent, f"{hardware}.{axis}")
        for alias in self.input.aliases:
            self.statement(alias)
        self.statement(self.input.body)
        lines = [f"{self._head()} {{"]
        buffers = {id(array): buffer for buffer, array in self.arrays.items()}
        number = lines[0].count("\n") + 1
        for line in live_lines(self.lines):
            if not self.places or self.places[-1][1] != line.at:
                self.places.append((number, line.at))
            if line.array is not None:
                self.declared.append((line.text, buffers[id(line.array)]))
            if line.places is not None:
                self.placed.append((number, line.places))
            parts = line.text.split("\n")
            lines += [INDENT * line.depth + part for part in parts]
            number += len(parts)
        return "\n".join([*lines, "}", ""])

    def _head(self) -> str:
        params = []
        for buffer in self.input.params:
            array = self.arrays[buffer]
            constant = "" if array.written else "const "
            alone = "" if self.input.beside_others else "__restrict__ "
            params.append(f"{constant}{array.pointee} *{alone}{array.name}")
        params += [f"{self.type_of(v)[0].text} {self.names[v]}" for v in self.input.scalars]
        params += [f"const __grid_constant__ tl::tensor_map {self.names[v][1:]}" for v in self.input.maps]
        bounds = self.dialect.launch_bounds(self.input.num_threads, self.input.min_blocks)
        line = f'extern "C" __global__ void {bounds} {self.input.symbol}('
        inner = ", ".join(params)
        return f"{line}{inner})" if len(line) + len(inner) < 118 else f"{line}\n    " + ",\n    ".join(params) + ")"

    def _axis(self, var: Any, extent: Any, hardware: str) -> None:
        size = self.intervals(extent)[1]
        self.intervals.set(var, (0, size - 1))
        if size == 1:
            self.constants[var] = 0
            return
        name = self.names[var] = self.identifiers.new(var.name)
        self.put(f"const {self.type_of(var)[0].text} {name} = {hardware};", declares=name)
        if hardware.startswith("threadIdx"):
            self.thread_indices.add(var)

    # -- statements --------------------------------------------------------------------------------------------------

    def statement(self, node: Any) -> None:
        rule = _STATEMENTS.get(type(node))
        if rule is None:
            raise self.unsupported(node, f"no rule for the statement {type(node).__name__}")
        # Not in the heads of loops and branches: what stands there may be evaluated again, or not at all.
        self.may_name = rule in _SIMPLE
        outside, self.at = self.at, where(node.span) or self.at
        rule(self, node)
        self.at = outside
        self.may_name = False

    @contextmanager
    def _block(self, head: str) -> Any:
        self.put(head)
        with self._inside():
            yield
        self.put("}")

    @contextmanager
    def _inside(self) -> Any:
        self.depth += 1
        self.identifiers.enter()
        yield
        self.identifiers.leave()
        self.depth -= 1

    def _sequence(self, node: Any) -> None:
        for part in node.seq:
            self.statement(part)

    def _origin(self, node: Any) -> None:
        if str(node.attr_key) == "tl.cache":
            outside, self.cache = self.cache, str(getattr(node.value, "value", node.value))
            self.statement(node.body)
            self.cache = outside
            return
        if str(node.attr_key) == tile_ir.GROUP:
            self.statement(node.body)
            return
        if str(node.attr_key) != "tl.origin":
            raise self.unsupported(node, f"the attribute {node.attr_key} has no meaning here")
        comment = re.sub(r"\s+", " ", str(getattr(node.value, "value", node.value))).rstrip("\\ ")
        self.put(f"// {comment}")
        before = len(self.lines)
        self.statement(node.body)
        if len(self.lines) == before:
            self.lines.pop()

    def _allocate(self, node: Any) -> None:
        buffer, scope = node.buffer, str(node.buffer.scope())
        if scope in ("shared.dyn", tile_ir.BARRIER):
            array = self.add_array(buffer, "shared")
            offset = int(tile_ir.plain(dict(node.annotations or {}).get("tl.offset", 0)))
            place = f"(tl::shared_memory() + {offset})" if offset else "tl::shared_memory()"
            text = f"{array.pointee} *{array.name} = ({array.pointee} *){place};"
            self.put(text, declares=array.name, places=buffer)
        elif scope in tile_ir.PRIVATE:
            array = self.add_array(buffer, "local")
            array.scalar = [self.constant(s) for s in buffer.ty.shape] == [1]
            self.put("", declares=array.name, array=array)  # its text follows from how it is used
        else:
            raise self.unsupported(node, f"memory of scope {scope}")

    def _view(self, node: Any) -> None:
        """Other elements over the storage of another buffer."""
        if not is_call(node.data, "tirx.buffer_data"):
            raise self.unsupported(node, "a view shows a buffer's data")
        root = node.data.args[0]
        owner = self.array_of(node, root)
        array = self.add_array(node.buffer, owner.scope, owner)
        owner.mark(addressed=True)
        start = f"&{owner.name}" if owner.scalar else owner.name
        pointer = f"({array.pointee} *){parenthesized(start)}"
        self.put(f"{array.pointee} *{array.name} = {pointer};", declares=array.name)

    def _bind(self, node: Any) -> None:
        var, value = node.var, node.value
        element, lanes = self.type_of(value)
        if lanes > 1:
            self.bind_vector(var, value, lanes)
            return
        known = self.constant(value)
        if element.is_integer:
            self.intervals.set(var, self.intervals(value))
            if known is not None:
                self.constants[var] = known
                return
        before = self.reads
        text = self.text(value)
        if self.reads != before:
            self.data.add(var)
        name = self.names[var] = self.identifiers.new(var.name)
        effect = any(is_call(n, "tirx.call_extern") for n in tile_ir.walk(value, ir.Call))
        self.assign(f"const {element.text} {name}", "=", text, "" if effect else name)

    def _store(self, node: Any) -> None:
        lanes = max(self.type_of(node.value)[1], *(self.type_of(i)[1] for i in node.indices))
        if lanes > 1:
            self.store_vector(node, lanes)
            return
        array = self.array_of(node, node.buffer)
        array.mark(written=True)
        if array.packed:
            self.put_packed(node, self.text(node.value))
            return
        place, value = self.element_at(node, node.buffer, node.indices), node.value
        compound = _COMPOUND.get(type(value))
        again = compound and self._reads(value.a, node)
        self.modular = True
        text = self.text(value.b if again else value)
        self.modular = False
        self.assign(place, compound if compound and again else "=", text)

    def _reads(self, value: Any, store: Any) -> bool:
        """Whether `value` is the element that `store` overwrites."""
        return (
            isinstance(value, ir.TensorLoad)
            and value.source.same_as(store.buffer)
            and all(a.same_as(b) or self.text(a) == self.text(b) for a, b in zip(value.indices, store.indices))
        )

    def _evaluate(self, node: Any) -> None:
        value = node.value
        if is_call(value, "tirx.break_loop", "tirx.continue_loop"):
            self.put("break;" if "break" in value.op.name else "continue;")
        elif is_call(value, "tirx.call_extern", "tirx.call_pure_extern"):
            self.put(f"{self.text(value)};")
        elif isinstance(value, prim.IntImm):
            return
        elif any(is_call(n, "tirx.call_extern") for n in tile_ir.walk(value, ir.Call)):
            self.put(f"{self.text(value)};")
        elif isinstance(value, ir.Call):
            raise self.unsupported(node, f"{value.op.name} cannot be printed: a pass before should have lowered it")

    def _loop(self, node: Any) -> None:
        if node.kind not in (tir.ForKind.SERIAL, tir.ForKind.UNROLLED):
            raise self.unsupported(node, "only serial and unrolled loops can be printed")
        low, extent = self.constant(node.min), self.constant(node.extent)
        if extent == 1 and low is not None:
            self.constants[node.loop_var] = low
            self.intervals.set(node.loop_var, (low, low))
            self.statement(node.body)
        elif extent != 0:
            self._counted_loop(node, low, extent)

    def _counted_loop(self, node: Any, low: int | None, extent: int | None) -> None:
        kind = self.type_of(node.loop_var)[0]
        if low is not None and extent is not None:
            end = int_literal(low + extent, kind)[0]
        else:
            end = (
                self.tight(node.extent, 8) if low == 0 else f"{self.tight(node.min, 6)} + {self.tight(node.extent, 5)}"
            )
        start = self.text(node.min)
        if reads_memory(node.extent) or reads_memory(node.min):  # the body may change what the bound reads
            end = self._kept(node.loop_var, "end", end)
        (first, _), (_, longest) = self.intervals(node.min), self.intervals(node.extent)
        self.intervals.set(node.loop_var, (first, self.intervals(node.min)[1] + longest - 1))
        if node.kind == tir.ForKind.UNROLLED:
            by = (node.annotations or {}).get(UNROLL)
            self.put("#pragma unroll" if by is None else f"#pragma unroll {int(by)}")
        self.identifiers.enter()
        name = self.names[node.loop_var] = self.identifiers.new(node.loop_var.name)
        with self._block(f"for ({kind.text} {name} = {start}; {name} < {end}; ++{name}) {{"):
            self.statement(node.body)
        self.identifiers.leave()

    def _kept(self, var: Any, what: str, text: str) -> str:
        name = self.identifiers.new(f"{var.name}_{what}")
        self.put(f"const {self.type_of(var)[0].text} {name} = {text};", declares=name)
        return name

    def _while(self, node: Any) -> None:
        with self._block(f"while ({self.text(node.condition)}) {{"):
            self.statement(node.body)

    def _if(self, node: Any, opening: str = "if") -> None:
        known = self.constant(node.condition)
        if known is not None and opening == "if":
            chosen = node.then_case if known else node.else_case
            if chosen is not None:
                self.statement(chosen)
            return
        yes, no = node.then_case, node.else_case
        if not tile_ir.statements(yes) and no is not None:
            with self._block(f"{opening} (!{self.tight(node.condition, UNARY)}) {{"):
                self.statement(no)
            return
        self.put(f"{opening} ({self.text(node.condition)}) {{")
        with self._inside(), self._given(node.condition):
            self.statement(yes)
        rest = tile_ir.statements(no) if no is not None else []
        if len(rest) == 1 and isinstance(rest[0], tir.IfThenElse):
            self._if(rest[0], "} else if")
        elif rest:
            with self._block("} else {"):
                self.statement(no)
        else:
            self.put("}")

    @contextmanager
    def _given(self, condition: Any) -> Any:
        """Inside, integers have the bounds that the condition gives them."""
        outside = dict(self.intervals.of_var)
        for part in conjuncts(condition):
            if isinstance(part, (prim.LT, prim.LE, prim.GT, prim.GE)):
                flipped = isinstance(part, (prim.GT, prim.GE))
                small, large = (part.b, part.a) if flipped else (part.a, part.b)
                gap = 1 if isinstance(part, (prim.LT, prim.GT)) else 0
                self._narrow(small, (UNKNOWN[0], self.intervals(large)[1] - gap))
                self._narrow(large, (self.intervals(small)[0] + gap, UNKNOWN[1]))
        yield
        self.intervals.of_var = outside

    def _narrow(self, node: Any, interval: Interval) -> None:
        if isinstance(node, ir.Var) and self.type_of(node)[0].is_integer:
            low, high = self.intervals(node)
            self.intervals.set(node, (max(low, interval[0]), min(high, interval[1])))


def declaration(array: Array) -> str:
    """The line that declares a local array. It is aligned if its elements are also moved as vectors."""
    if array.scalar:
        return f"{array.element.text} {array.name};"
    count = 1
    for extent in array.shape:
        count *= int(extent)
    size = count * array.element.bytes
    alignment = min(16, size & -size)
    aligned = f"alignas({alignment}) " if array.addressed and alignment > array.element.bytes else ""
    return f"{aligned}{array.element.text} {array.name}[{count}];"


def live_lines(lines: Sequence[Line]) -> list[Line]:
    """The lines without declarations of what no line below mentions, each with its text."""
    kept: list[Line] = []
    mentioned: set[str] = set()
    for line in reversed(lines):
        if line.declares and line.declares not in mentioned:
            continue
        if line.text.startswith("//") and (not kept or kept[-1].depth < line.depth):
            continue  # nothing is left of what it speaks of
        if line.array is not None:
            line = replace(line, text=declaration(line.array))
        if not line.text.startswith("//"):
            mentioned.discard(line.declares)  # above, the name is another thing's
            mentioned.update(name for name in _IDENTIFIER.findall(line.text) if name != line.declares)
        kept.append(line)
    return kept[::-1]


_STATEMENTS: dict[type, Any] = {
    tir.SeqStmt: Printer._sequence,
    tir.AttrStmt: Printer._origin,
    tir.AllocBuffer: Printer._allocate,
    tir.DeclBuffer: Printer._view,
    tir.Bind: Printer._bind,
    tir.BufferStore: Printer._store,
    tir.Evaluate: Printer._evaluate,
    tir.For: Printer._loop,
    tir.While: Printer._while,
    tir.IfThenElse: Printer._if,
}
_SIMPLE = (Printer._bind, Printer._store, Printer._evaluate)
