"""The lowering of parallel nests: steps of each thread, vectors of memory, predicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.passes.bounds import zero
from tile_compiler.ranges import conjunction, reads_memory
from tile_compiler.rewrite import is_call, substitute
from tile_compiler.simt.accesses import WideAccess, addressed, per_byte
from tile_compiler.simt.distribution import Distribution
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.ask_once import asked_once
from tile_compiler.simt.operators.exchange_lanes import QuadStore
from tile_compiler.simt.operators.gemm import multiplies_alone
from tile_compiler.simt.operators.interior import interior
from tile_compiler.simt.operators.limit_loads import MOST, MOST_BESIDE_PRODUCTS, limit_loads
from tile_compiler.simt.operators.load_to_lds import straight_to_lds
from tile_compiler.simt.operators.neighbour_atomics import NestAdditions
from tile_compiler.simt.operators.nests import (
    ASYNC,
    CACHE,
    REGISTERS,
    int32,
    is_fragment,
    is_global,
    is_shared,
    load,
    local,
    run,
    under,
    unrolled,
)
from tile_compiler.simt.operators.parallel import NestRule
from tile_compiler.simt.operators.store_matrices import MatrixStore
from tile_compiler.simt.terms import Ints, from_tir, is_formula, names, tile_values, to_tir
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import placeholders
from tilelang.layout.fit import expr_of_values

#: Where threads load different registers of an array, the number is compared with that of each of so many at most. A longer
#: array lies in local memory.
MOST_CHOICES = 16


def lower_nest(rule: NestRule, low: Lowering) -> Any:
    """`for i, j in T.Parallel: body` -> the steps of one thread.

    after:      for c in unroll(4):                         steps in groups of a vector
                    i = c * 16 + tx // 8;  j = tx % 8 * 8
                    A_part[0:8] = A[i, j:j+8] if i < n else 0
                    for u in unroll(8): out[u] = A_part[u] * scale[i, j + u]
                    B[i, j:j+8] = out[0:8]

    A nest that only moves elements moves vectors directly, by `cp.async` where it may complete later. One whose accesses
    need predicates is written twice, under a condition of the block: without them where the whole tile is in bounds.
    Where a few registers decide whether a nest does anything, that is asked before it (`asked_once`).
    """
    loop = low.layouts.solution.values[rule.loop]
    assert isinstance(loop, Distribution)
    nest = _Nest(rule, low, loop)
    question = asked_once(rule.nest, loop.steps, nest.register_table, low)
    return nest.lower() if question is None else tir.IfThenElse(question, nest.lower(), None, span=low.span)


class _Nest:
    def __init__(self, rule: NestRule, low: Lowering, loop: Distribution) -> None:
        self.rule, self.low, self.loop = rule, low, loop
        if not loop.emittable:
            raise UnsupportedOnTarget(
                f"{rule.text} over an irregular distribution",
                at=rule.span,
                found=loop.describe(),
                expected="a part of the tile that threads hold as they hold a tile of that size",
                repair="loop over all of the tile, and ask: for i, j in T.Parallel(...): if low <= j and j < high: ...",
            )
        self.nest = rule.nest
        self._bound: dict[Any, Any] = {}
        self._tables: dict[int, Ints | None] = {}
        self.axis, self.width = self._vector()
        self.additions = NestAdditions(rule, low, self.width, lambda a: self._access_width(a, self.axis))

    def _access_width(self, access: WideAccess, axis: int) -> int:
        layout = self.low.layout(access.buffer) if is_shared(access.buffer) else None
        return access.width(axis, layout)

    def _vector(self) -> tuple[int, int]:
        """(the loop axis that vectors run along, their width)."""
        best, least = (len(self.loop.shape) - 1, 1), self.rule.accesses.least_width
        for axis in reversed(range(len(self.loop.shape))):
            have = self.loop.vector_width(axis)
            widths = [w for a in self.rule.accesses.wide if (w := min(have, self._access_width(a, axis))) > 1]
            width = max(min(widths), least) if widths else 1
            if best[1] < width <= have:
                best = (axis, width)
        self._check_whole_bytes(*best)
        return best

    def _check_whole_bytes(self, axis: int, width: int) -> None:
        """Two threads may not store to one byte: the second would write back what the first has overwritten."""
        for access in self.rule.accesses.wide:
            per = per_byte(access.buffer)
            if access.is_write and per > 1 and min(width, self._access_width(access, axis)) < per:
                raise UnsupportedOnTarget(
                    f"{self.rule.text} stores parts of the bytes of {access.buffer.name}",
                    at=self.rule.span,
                    found=f"elements of type {tile_ir.dtype_name(access.buffer)}, {per} in a byte, by different threads",
                    expected=f"{per} neighbours stored by one thread, the first at a multiple of {per}",
                    repair=f"make the last extent a multiple of {per} and index it by the last loop variable alone",
                )

    def lower(self) -> Any:
        if ASYNC in self.nest.annotations and self.low.ctx.arch.has_load_to_lds:
            straight = straight_to_lds(self.rule, self.low)
            if not isinstance(straight, str):
                self.low.ctx.report.note(self.low.span, "T.copy: straight to LDS, 4 bytes a lane")
                return straight
            self.low.ctx.report.note(self.low.span, f"T.copy: not straight to LDS, as {straight}")
        # Elements one by one gain nothing; loads with an eviction policy have predicates without a branch.
        splits = self.width > 1 and CACHE not in self.nest.annotations
        needed = interior(self.rule, self.low) if splits else None
        if needed is None or any(tile_ir.static(c) == 0 for c in needed):  # the tile itself hangs over
            return self._steps()
        self.low.ctx.report.note(self.low.span, f"{self.rule.text}: no predicates where the whole tile is in bounds")
        with self.low.ranges.all_inside():
            inside = self._steps()
        return tir.IfThenElse(conjunction(needed), inside, self._steps(), span=self.low.span)

    def _steps(self) -> Any:
        together = self._together()
        if together is not None:
            return together
        most = MOST_BESIDE_PRODUCTS if multiplies_alone(self.low.layouts.rules) else MOST
        return limit_loads(unrolled("c", self.loop.steps // self.width, self._group, self.low.span), most)

    def _together(self) -> Any | None:
        """By lanes that work together, if all that the nest does is to store values of registers to memory, where a condition
        on the place holds if there is one."""
        body, accesses, condition = tile_ir.statements(self.nest.body), self.rule.accesses, None
        if len(body) == 1 and isinstance(body[0], tir.IfThenElse) and body[0].else_case is None:
            condition, body = body[0].condition, tile_ir.statements(body[0].then_case)
        if len(body) != 1 or not isinstance(body[0], tir.BufferStore) or len(accesses.wide) != 1:
            return None
        statement, (written,) = body[0], accesses.wide
        maps = [self._table(n) for n in range(len(accesses.fragments))]
        if is_fragment(statement.buffer) or any(m is None for m in maps):
            return None

        def value(step: Any) -> Any:
            def register(node: Any) -> Any:
                named = (n for n, a in enumerate(accesses.fragments) if a.buffer.same_as(node.source))
                n = next((n for n in named if self._indices_of(n, node.indices)), None)
                if n is None:  # a variable of the thread's own (T.alloc_var)
                    return node
                return load(self.low.registers(node.source), self._register(n, step, {}))

            return tvm_ffi.structural_map(statement.value, (ir.TensorLoad, register))

        if any(n in self.nest.loop_vars for n in tile_ir.walk(tir.Evaluate(value(int32(0)))) if isinstance(n, ir.Var)):
            return None

        def width(axis: int) -> int:
            return self._access_width(written, axis)

        how = (statement, self.loop, tuple(self.nest.loop_vars), value, width, self.low)
        if condition is None:
            return MatrixStore(*how).lower() or QuadStore(*how).lower()
        if reads_memory(condition) or self.low.varies(condition):  # another lane would find another answer
            return None
        return QuadStore(*how, condition).lower()

    def _group(self, c: Any) -> Any:
        """The statements of one group of `width` steps."""
        low, width = self.low, self.width
        if isinstance(c, ir.Var):
            low.ranges.iterate(c, int32(0), int32(self.loop.steps // width))
        step = c * width if width > 1 else c
        indices, conditions = self.loop.place(low.tx, low.simplify(step))
        binds: list[Any] = []
        base: dict[Any, Any] = {}
        for var, index in zip(self.nest.loop_vars, indices):
            index = low.simplify(index)
            if str(var.ty) != str(index.ty):
                index = tir.Cast(str(var.ty), index)
            if isinstance(index, (ir.Var, tir.IntImm)):
                base[var] = index
                continue
            name = tir.Var(var.name, str(var.ty))
            binds.append(tir.Bind(name, index))
            low.ranges.define(name, index)
            base[var] = name
        conditions = [low.simplify(k) for k in conditions]
        owned = self._owner(base)
        if owned and not any(a.is_write for a in self.rule.accesses.fragments):
            conditions, owned = [*conditions, *owned], []  # nothing for the others to do
        with low.ranges.given(*conditions):
            moved = self._move(base, step, owned)
            body = self._general(base, step, owned) if moved is None else moved
        work = under(conditions, body)
        used = set(tile_ir.walk(work, ir.Var))
        return tile_ir.sequence([*(b for b in binds if b.var in used), *tile_ir.statements(work)])

    def _owner(self, base: dict[Any, Any]) -> list[Any]:
        """The condition that this thread is the first of those that repeat the iteration."""
        if self.loop.replicas == 1:
            return []
        every = self.loop.first_of
        if every is not None:  # whichever the iteration: a question of the thread alone
            period, count, end = every
            place = self.low.tx if period == end else tir.floormod(self.low.tx, int32(period))
            found = [place < int32(count) if count > 1 else place == int32(0)]
            return found if period == end or end == self.loop.threads else [*found, self.low.tx < int32(end)]
        thread = self.loop.fragment.thread_expr
        if not is_formula(thread):
            raise UnsupportedOnTarget(f"{self.rule.text} repeated over irregular threads", at=self.rule.span)
        values = dict(zip(names(len(self.loop.shape)), (base[v] for v in self.nest.loop_vars)))
        return [self.low.tx == self.low.simplify(to_tir(thread, {**values, "rep": int32(0)}))]

    # -- fragments ---------------------------------------------------------------------------------------------

    def _register(self, n: int, step: Any, values: dict[Any, Any]) -> Any:
        """The register that fragment access n touches in a step; `values` are those of the loop variables."""
        access = self.rule.accesses.fragments[n]
        held, table = self.low.distribution(access.buffer), self._table(n)
        if table is None:  # threads differ
            assert access.indices is not None
            among = len(self._choices(n))
            how = f"chosen among {among} registers by comparisons" if among else "no registers"
            self.low.ctx.report.note(self.rule.span, f"{access.buffer.name} is indexed at run time: {how}")
            named = dict(zip(names(len(self.loop.shape)), (values[v] for v in self.nest.loop_vars)))
            place = dict(zip(names(len(held.shape)), (to_tir(i, named) for i in access.indices)))
            return self.low.simplify(to_tir(held.fragment.index_expr, place))
        expr = expr_of_values(table, placeholders(1))
        if not is_formula(expr):
            return self._selected(table, step)
        return self.low.simplify(to_tir(expr, {"i": step}))

    def _table(self, n: int) -> Ints | None:
        """For each step the register that fragment access n touches; None if threads differ."""
        if n not in self._tables:
            held = self.low.distribution(self.rule.accesses.fragments[n].buffer)
            self._tables[n] = self.rule.register_map(n, self.loop, held)
        return self._tables[n]

    def _choices(self, n: int) -> list[int]:
        """The registers among which threads choose in fragment access n, a load; empty where they do not, or among too many."""
        access, flat = self.rule.accesses.fragments[n], self.rule.element_of(n)
        if access.is_write or flat is None or self._table(n) is not None:
            return []
        registers = np.unique(self.low.distribution(access.buffer).step_of.ravel()[flat.ravel()])
        return [int(r) for r in registers] if len(registers) <= MOST_CHOICES else []

    def register_table(self, node: Any) -> Ints | None:
        """The register that a load of a fragment reads, by step; None if that differs between threads."""
        for n, access in enumerate(self.rule.accesses.fragments):
            if access.buffer.same_as(node.source) and self._indices_of(n, node.indices):
                return self._table(n)
        return None

    @staticmethod
    def _chosen(array: Any, choices: Sequence[int], number: Any) -> Any:
        """`array[number]` by indices that are constant, so that the array stays in registers."""
        value = load(array, int32(choices[-1]))
        for r in reversed(choices[:-1]):
            value = tir.Select(number == r, load(array, int32(r)), value)
        return value

    @staticmethod
    def _selected(table: Ints, step: Any) -> Any:
        """An irregular register number: a choice that folds once the loop is unrolled."""
        value: Any = int32(int(table[-1]))
        for s in reversed(range(len(table) - 1)):
            value = tir.Select(step == s, int32(int(table[s])), value)
        return value

    # -- moves ------------------------------------------------------------------------------------------------

    def _move(self, base: dict[Any, Any], step: Any, owned: list[Any]) -> Any | None:
        """One vector store of one vector load; None if the body is more than a move, or too narrow for a vector."""
        body = tile_ir.statements(self.nest.body)
        if len(body) != 1 or not isinstance(body[0], tir.BufferStore):
            return None
        statement, width = body[0], self.width
        value, dtype = statement.value, tile_ir.dtype_name(statement.buffer)
        source = value.value if isinstance(value, ir.prim.Cast) else value
        if not isinstance(source, ir.TensorLoad) or any(isinstance(n, ir.TensorLoad) for n in _inside(source)):
            return None
        if dtype == "bool" or tile_ir.dtype_name(source.source) == "bool":
            return None
        if width == 1:
            return self._async(statement, source, base, owned) if source is value else None
        into = self._vector_place(statement.buffer, statement.indices, base, step)
        out_of = self._vector_place(source.source, source.indices, base, step)
        if into is None or out_of is None:
            return None
        started = self._async(statement, source, base, owned) if source is value else None
        if started is not None:
            return started
        read = self._guarded_load(source.source, out_of[0], out_of[1])
        if source is not value:
            read = tir.Cast(f"{dtype}x{width}", read)
        conditions = into[1] + ([] if is_fragment(statement.buffer) else owned)
        target = self.low.registers(statement.buffer) if is_fragment(statement.buffer) else statement.buffer
        return under(conditions, tir.BufferStore(target, read, into[0], span=self.low.span))

    def _vector_place(
        self, buffer: Any, indices: Sequence[Any], base: dict[Any, Any], step: Any
    ) -> tuple[list[Any], list[Any]] | None:
        """(indices with a vector as the last one, predicates) of an access; None if it is no aligned vector."""
        width = self.width
        if is_fragment(buffer):
            n = next(i for i, a in enumerate(self.rule.accesses.fragments) if a.buffer.same_as(buffer))
            table = self._table(n)
            if table is None:
                return None
            groups = table.reshape(-1, width)
            if (groups[:, 0] % width).any() or (groups != groups[:, :1] + range(width)).any():
                return None
            return [tir.Ramp(self._register(n, step, base), int32(1), width)], []
        access = self._wide(buffer, indices)
        if access is None or self._access_width(access, self.axis) < width:
            return None
        return self._wide_place(buffer, indices, base)

    def _wide_place(self, buffer: Any, indices: Sequence[Any], base: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
        width = self.width
        moved = [self.low.simplify(substitute(i, base)) for i in indices]
        predicates = self.low.ranges.outside(buffer, moved)
        if is_global(buffer):
            self.low.ctx.aligned(buffer, width * dtype_of(tile_ir.dtype_name(buffer)).bits // 8)
        last = moved[-1]
        if width == 1:
            return moved, predicates
        return [*moved[:-1], tir.Ramp(last, tir.const(1, str(last.ty)), width)], predicates

    def _wide(self, buffer: Any, indices: Sequence[Any]) -> WideAccess | None:
        for access in self.rule.accesses.wide:
            same = access.buffer.same_as(buffer) and len(access.indices) == len(indices)
            if same and all(tvm_ffi.structural_equal(a, b) for a, b in zip(access.indices, indices)):
                return access
        return None

    def _guarded_load(self, buffer: Any, indices: list[Any], predicates: list[Any]) -> Any:
        if is_fragment(buffer):
            return tir.BufferLoad(self.low.registers(buffer), indices)
        value = tir.BufferLoad(buffer, indices)
        if not predicates:
            return value
        dtype = tile_ir.dtype_name(buffer)
        other = self.low.safe.get(buffer)
        other = zero(dtype) if other is None else other if str(other.ty) == dtype else tir.Cast(dtype, other)
        return tir.if_then_else(_all(predicates), value, tir.Broadcast(other, self.width))

    def _async(self, statement: Any, source: Any, base: dict[Any, Any], owned: list[Any]) -> Any | None:
        """`cp.async` for a copy that may complete later, where the hardware moves that many bytes at once."""
        low, buffer, origin = self.low, statement.buffer, source.source
        wanted = ASYNC in self.nest.annotations and low.ctx.arch.has_cp_async
        if not wanted or not is_shared(buffer) or not is_global(origin) or origin in low.safe:
            return None
        size = self.width * dtype_of(tile_ir.dtype_name(buffer)).bits // 8
        if size not in (4, 8, 16):
            low.ctx.report.note(low.span, f"T.copy: synchronous, pieces of {size} bytes are too small for cp.async")
            return None
        into, into_needs = self._wide_place(buffer, statement.indices, base)
        out_of, needs = self._wide_place(origin, source.indices, base)
        first = [[*place[:-1], place[-1].base] if self.width > 1 else place for place in (into, out_of)]
        valid = low.simplify(_all(needs)) if needs else tir.const(True, "bool")
        target, origin_at = (tir.address_of(tir.BufferLoad(b, p)) for b, p in zip((buffer, origin), first))
        low.ctx.report.note(low.span, f"T.copy: cp.async of {size} bytes")
        return under(into_needs + owned, run(f"tl::cp_async<{size}>", target, origin_at, valid, span=low.span))

    # -- everything else --------------------------------------------------------------------------------------

    def _general(self, base: dict[Any, Any], step: Any, owned: list[Any]) -> Any:
        """Vector loads before, the body for each element, vector stores after."""
        width = self.width
        if width == 1:
            return self._scalar(base, step, owned, None)
        parts: list[tuple[WideAccess, Any, bool]] = []
        before: list[Any] = []
        after: list[Any] = []
        for access in self._vectorizable():
            dtype = tile_ir.dtype_name(access.buffer)
            part = local(width, dtype, f"{access.buffer.name}_part")
            indices, predicates = self._wide_place(access.buffer, access.indices, base)
            lanes = [tir.Ramp(int32(0), int32(1), width)]
            before.append(tir.AllocBuffer(part))
            if access.is_write:
                out = tir.BufferStore(access.buffer, tir.BufferLoad(part, lanes), indices, span=self.low.span)
                after.append(under(predicates + owned, out))
            else:
                before.append(tir.BufferStore(part, self._guarded_load(access.buffer, indices, predicates), lanes))
            parts.append((access, part, access.is_write))
        for addition in self.additions.found:
            part = addition.part(width)
            before.append(tir.AllocBuffer(part))
            indices = [substitute(i, base) for i in addition.access.indices]
            after.extend(addition.updates(part, width, indices, owned, self.low))
            parts.append((addition.access, part, True))
        u = tir.Var("u", "int32")
        self.low.ranges.iterate(u, int32(0), int32(width))
        moving = {**base, self.nest.loop_vars[self.axis]: base[self.nest.loop_vars[self.axis]] + u}
        body = self._scalar(moving, step + u, owned, (parts, u))
        notes = {REGISTERS: 1}
        inner = tir.For(u, int32(0), int32(width), tir.ForKind.UNROLLED, body, annotations=notes)
        return tile_ir.sequence([*before, inner, *after])

    def _vectorizable(self) -> list[WideAccess]:
        """Accesses that can move to before or after the elements' work."""
        body = tile_ir.statements(self.nest.body)
        single = len(body) == 1
        stores = [s for s in body if isinstance(s, tir.BufferStore)]
        found: list[WideAccess] = []
        for access in self.rule.accesses.wide:
            if self._access_width(access, self.axis) < self.width or self._listed(access, found):
                continue
            if dtype_of(tile_ir.dtype_name(access.buffer)).kind == "bool":
                continue
            others = [a for a in self.rule.accesses.wide if a.buffer.same_as(access.buffer) and a is not access]
            alone = all(a.is_write == access.is_write and self._same(a, access) for a in others)
            if access.is_write:
                plain = any(s.buffer.same_as(access.buffer) for s in stores)
                if plain and not [a for a in others if a.is_write] and (single or not others):
                    found.append(access)
            elif alone or (single and stores and not any(a.is_write and not self._same(a, access) for a in others)):
                found.append(access)
        return found

    @staticmethod
    def _same(a: WideAccess, b: WideAccess) -> bool:
        return all(tvm_ffi.structural_equal(x, y) for x, y in zip(a.indices, b.indices))

    def _listed(self, access: WideAccess, found: list[WideAccess]) -> bool:
        return any(
            f.buffer.same_as(access.buffer) and f.is_write == access.is_write and self._same(f, access) for f in found
        )

    def _scalar(self, values: dict[Any, Any], step: Any, owned: list[Any], vectors: Any | None) -> Any:
        """The body for one element: fragments are registers, vectors are parts, the rest is guarded."""
        parts, u = vectors if vectors is not None else ([], None)
        numbers: dict[int, tuple[Any, list[int]]] = {}
        binds: list[Any] = []
        accesses = self.rule.accesses.fragments
        passed = addressed(self.nest.body)

        def register(buffer: Any, indices: Sequence[Any]) -> tuple[Any, list[int]]:
            """(the number of the register, those among which threads choose)."""
            for n, access in enumerate(accesses):
                if access.buffer.same_as(buffer) and self._indices_of(n, indices):
                    if n not in numbers:
                        number, choices = self._register(n, step, values), self._choices(n)
                        if choices:
                            binds.append(tir.Bind(tir.Var(f"{buffer.name}_at", "int32"), number))
                            number = binds[-1].var
                        numbers[n] = number, choices
                    return numbers[n]
            raise UnsupportedOnTarget(f"an index of {buffer.name} that the compiler cannot follow", at=self.rule.span)

        def part_of(buffer: Any, indices: Sequence[Any], is_write: bool) -> Any | None:
            for access, part, writes in parts:
                if writes == is_write and access.buffer.same_as(buffer):
                    if all(tvm_ffi.structural_equal(a, self._unbound(b)) for a, b in zip(access.indices, indices)):
                        return part
            return None

        def on_load(node: Any) -> Any:
            has_address = any(node.same_as(p) for p in passed)
            if is_fragment(node.source):
                array, (number, choices) = self.low.registers(node.source), register(node.source, node.indices)
                return self._chosen(array, choices, number) if choices and not has_address else load(array, number)
            if has_address:
                return node
            part = part_of(node.source, node.indices, False)
            return node if part is None else load(part, u)

        def on_store(node: Any) -> Any:
            if is_fragment(node.buffer):
                target = self.low.registers(node.buffer)
                return tir.BufferStore(target, node.value, [register(node.buffer, node.indices)[0]], span=node.span)
            part = part_of(node.buffer, node.indices, True)
            if part is not None:
                return tir.BufferStore(part, node.value, [u], span=node.span)
            if owned and str(node.buffer.scope()) not in tile_ir.PRIVATE:
                return under(owned, node, node.span)
            return node

        def on_effect(node: Any) -> Any:
            added = self.additions.of(node)
            part = None if added is None else part_of(added.access.buffer, added.access.indices, True)
            if part is not None:
                return tir.BufferStore(part, node.value.args[1], [u], span=node.span)
            return under(owned, node, node.span) if owned and _has_effect(node) else node

        self._bound = {n.var: n.value for n in tile_ir.walk(self.nest.body, tir.Bind)}
        rules = [(ir.TensorLoad, on_load), (tir.BufferStore, on_store), (tir.Evaluate, on_effect)]
        body = tvm_ffi.structural_map(self.nest.body, rules)
        return tile_ir.sequence([*binds, *tile_ir.statements(self.low.guard(substitute(body, values)))])

    def _unbound(self, index: Any) -> Any:
        """An index without the names that the body gives to parts of it."""
        return substitute(substitute(index, self._bound), self._bound) if self._bound else index

    def _indices_of(self, n: int, indices: Sequence[Any]) -> bool:
        """Whether fragment access n is the one with these indices."""
        mine = self.rule.accesses.fragments[n].indices
        variables = dict(zip(self.nest.loop_vars, placeholders(len(self.nest.loop_vars))))
        exprs = [from_tir(self._unbound(i), variables) for i in indices]
        if mine is None or any(e is None for e in exprs):
            return False
        known = [e for e in exprs if e is not None]
        if all(a.key == b.key for a, b in zip(mine, known)):
            return True
        shape = self.loop.shape
        return all((a == b).all() for a, b in zip(tile_values(mine, shape), tile_values(known, shape)))


def _inside(node: Any) -> list[Any]:
    return [n for i in node.indices for n in tile_ir.walk(tir.Evaluate(i))]


def _all(conditions: Sequence[Any]) -> Any:
    total = conditions[0]
    for part in conditions[1:]:
        total = tir.And(total, part)
    return total


def _has_effect(node: Any) -> bool:
    return any(is_call(n, "tl.atomic_elem", "tirx.call_extern") for n in tile_ir.walk(node, ir.Call))
