"""Which tensors a kernel writes more than once, so that it matters whose write comes last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, sym
from tvm import tirx as tir

from tile_compiler.errors import where
from tile_compiler.loops.affine import depends
from tile_compiler.rewrite import is_call, substitute
from tile_compiler.simt.beside import Names, beside, in_whole_steps, is_computed, same_threads
from tile_compiler.simt.memory_effects import Effect, Interval
from tile_compiler.simt.operators.nests import REGISTERS, is_global, is_shared
from tile_compiler.simt.uniformity import Uniformity
from tilelang.ir import tile_ir


@dataclass
class WrittenAgain:
    """`tensors`: those that a kernel writes on several lines, atomics being one, or in several iterations of a loop where these
    may write one place by different threads. `in_loops`: those that a loop writes where memory says, or a thread's registers.
    `in_one_statement`: those of which a store may write one element by several threads. `in_independent`: those that a loop
    whose iterations are said to be independent may write so. `stores` to any of them, and whether it is memory (True) or
    registers (False) that say the place (absent: neither)."""

    tensors: set[Any] = field(default_factory=set)
    in_loops: set[Any] = field(default_factory=set)
    in_one_statement: set[Any] = field(default_factory=set)
    in_independent: set[Any] = field(default_factory=set)
    stores: dict[Any, list[Any]] = field(default_factory=dict)
    by_memory: dict[Any, bool] = field(default_factory=dict)

    def unknown(self, tensors: set[Any]) -> list[Any]:
        """Those of which a line writes where memory says, by name."""
        found = [t for t in tensors if any(self.by_memory.get(s) for s in self.stores.get(t, []))]
        return sorted(found, key=lambda tensor: str(tensor.name))


def tracked_buffers(kernel: tile_ir.Kernel) -> set[Any]:
    """Shared memory, and tensors that one kernel both reads and writes, or writes again."""
    return {
        *(n.buffer for n in tile_ir.walk(kernel.body, tir.AllocBuffer) if is_shared(n.buffer)),
        *read_and_written(kernel),
        *written_again(kernel).tensors,
    }


def read_and_written(kernel: tile_ir.Kernel) -> set[Any]:
    """Tensors that a kernel both reads and writes."""
    loaded: set[Any] = set()
    stored: set[Any] = set()
    for node in tile_ir.walk(kernel.body, ir.TensorLoad, tir.BufferStore, ir.Call):
        if isinstance(node, ir.TensorLoad):
            loaded.add(node.source)
        elif isinstance(node, tir.BufferStore):
            stored.add(node.buffer)
        elif is_call(node, "tl.atomic_elem"):
            stored.add(node.args[0].args[0].source)
    return {tensor for tensor in loaded & stored if is_global(tensor)}


def written_again(kernel: tile_ir.Kernel) -> WrittenAgain:
    """See `WrittenAgain`."""
    return _Search(kernel).found


class _Search:
    def __init__(self, kernel: tile_ir.Kernel) -> None:
        self.found = WrittenAgain()
        self.lines: dict[Any, set[str]] = {}
        self.bound: dict[Any, list[Any]] = {}
        self.names = Names(kernel, Uniformity(kernel))
        self.threads = {v: int(e) for v, e in kernel.threads}
        self.extents: dict[Any, int] = {}
        self.ranges: dict[Any, Interval] = {v: (0, e - 1) for v, e in self.threads.items()}
        for node in tile_ir.walk(kernel.body, tir.Bind, tir.For):
            if isinstance(node, tir.Bind):
                self.bound.setdefault(node.var, []).append(node.value)
                continue
            self.bound.setdefault(node.loop_var, []).extend((node.min, node.extent))
            low, size = tile_ir.static(node.min), tile_ir.static(node.extent)
            if low is not None and size is not None:
                self.ranges[node.loop_var] = (low, low + size - 1)
                if low == 0:
                    self.extents[node.loop_var] = size
        self.independent: set[Any] = set()  # loops of which, as is said, no two iterations write one element
        self._visit(kernel.body, (), {})
        self.found.tensors |= {tensor for tensor, lines in self.lines.items() if len(lines) > 1}

    def _visit(self, stmt: Any, loops: tuple[Any, ...], values: dict[Any, Any]) -> None:
        """`values`: of variables, those that they have here. Copies of a statement bind one to something else each."""
        for part in tile_ir.statements(stmt):
            if isinstance(part, tir.Bind):
                value = substitute(part.value, values)
                values.pop(part.var, None)
                if is_computed(value):
                    values[part.var] = value
            if isinstance(part, (tir.For, tir.While)):
                notes = getattr(part, "annotations", None) or {}
                if tile_ir.INDEPENDENT in notes:
                    self.independent.add(part)
                self._visit(part.body, loops if REGISTERS in notes else (*loops, part), dict(values))
            elif isinstance(part, tir.IfThenElse):
                for case in (part.then_case, part.else_case):
                    if case is not None:
                        self._visit(case, loops, dict(values))
            elif isinstance(part, tir.AttrStmt):
                self._visit(part.body, loops, dict(values))
            else:
                self._leaf(part, loops, values)

    def _leaf(self, stmt: Any, loops: tuple[Any, ...], values: dict[Any, Any]) -> None:
        for node in tile_ir.walk(stmt, tir.BufferStore, ir.Call):
            if isinstance(node, tir.BufferStore):
                tensor, place, line = node.buffer, node.indices, where(node.span)
            elif is_call(node, "tl.atomic_elem"):
                tensor, place, line = node.args[0].args[0].source, node.args[0].args[0].indices, "atomic"
            else:
                continue
            if not is_global(tensor):
                continue
            self.lines.setdefault(tensor, set()).add(line)
            self.found.stores.setdefault(tensor, []).append(node)
            said = {by for index in place for by in _said_by(index, self.bound)}
            if said:
                self.found.by_memory[node] = True in said
            place = tuple(substitute(index, values) for index in _counted(tensor, place))
            if not said and isinstance(node, tir.BufferStore) and not self._has_threads(tensor, place, loops):
                self.found.in_one_statement.add(tensor)
            if said and isinstance(node, tir.BufferStore) and not self.independent.issuperset(loops):
                self.found.in_loops.add(tensor)
            elif not said and isinstance(node, tir.BufferStore):
                meet = [loop for n, loop in enumerate(loops, 1) if not self._apart(tensor, place, loops[:n])]
                if any(loop in self.independent for loop in meet):
                    self.found.in_independent.add(tensor)
                if any(loop not in self.independent for loop in meet):
                    self.found.tensors.add(tensor)

    def _has_threads(self, tensor: Any, place: Any, loops: tuple[Any, ...]) -> bool:
        """Whether each element that a store writes, in one iteration of the loops around, is one thread's."""
        names = self.names.within(loops)
        inside = {var: within for var, within in self.ranges.items() if var in names.inside}
        once = Effect("write", tensor, None, 1, place=place)
        return same_threads(once, once, inside, names, self.threads, self.extents)

    def _apart(self, tensor: Any, place: Any, loops: tuple[Any, ...]) -> bool:
        """Whether no element is written by different threads in different iterations of the last of these loops."""
        *around, loop = loops
        names = self.names.within(around)
        inside = {var: within for var, within in self.ranges.items() if var in names.inside}
        var = loop.loop_var if isinstance(loop, tir.For) else None
        if var is None or not any(depends(index, {var}) for index in place):
            once = Effect("write", tensor, None, 1, place=place)
            return same_threads(once, once, inside, names, self.threads, self.extents)
        if all(_is_straight(index.base if isinstance(index, tir.Ramp) else index, var) for index in place):
            # What lies beside the next iteration's lies beside all later ones'.
            here = (tuple(_at(place, var, tir.const(n, str(var.ty)))) for n in (0, 1))
            one, other = (Effect("write", tensor, None, 1, place=at) for at in here)
            if beside(one, other, inside, names):
                return True
        whole = Effect("write", tensor, None, 1, place=place)
        return in_whole_steps(whole, var, inside, names.within([loop])) and self._has_threads(tensor, place, loops)


def _at(place: tuple[Any, ...], var: Any, value: Any) -> tuple[Any, ...]:
    return tuple(substitute(index, {var: value}) for index in place)


def _counted(tensor: Any, place: Any) -> tuple[Any, ...]:
    """The indices that say where an element lies: a stride of 0 makes all of a dimension one."""
    strides = list(tensor.ty.strides or ())
    return tuple(i for n, i in enumerate(place) if not strides or tile_ir.static(strides[n]) != 0)


def _is_straight(index: Any, var: Any) -> bool:
    """Whether an index grows by the same in each step of a loop's variable."""
    now, then = (_at((index,), var, value)[0] for value in (var, var + 1))
    return not depends(sym.Analyzer().simplify(then - now), {var})


def _said_by(index: Any, bound: Mapping[Any, list[Any]]) -> Iterator[bool]:
    """Where memory has a say in it, True; where registers do, False."""
    for node in tile_ir.walk(tir.Evaluate(index), ir.TensorLoad, ir.Var):
        if isinstance(node, ir.TensorLoad):
            yield str(node.source.scope()) not in tile_ir.PRIVATE
        else:
            for value in bound.get(node, []):
                yield from _said_by(value, bound)
