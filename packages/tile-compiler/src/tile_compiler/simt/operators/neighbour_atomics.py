"""Atomic additions to neighbours by one instruction, where the architecture has it and the address allows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.passes.bounds import Guard
from tile_compiler.ranges import Ranges
from tile_compiler.rewrite import is_call
from tile_compiler.simt.accesses import WideAccess, aligned
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import int32, is_global, local, under
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ops.atomic import ELEMENT


def addition(stmt: Any) -> Any | None:
    """The call of a statement that adds to one element and drops the old value; None for any other statement."""
    found = isinstance(stmt, tir.Evaluate) and is_call(stmt.value, ELEMENT)
    return stmt.value if found and str(tile_ir.attrs_of(stmt.value)["op"]) == "add" else None


def place_of(call: Any) -> Any:
    """The element that an atomic updates, as a load."""
    return call.args[0].args[0]


def why_single(call: Any, ctx: SimtContext) -> str:
    """What keeps additions like `call` from being made several at once on any address; "" if nothing does."""
    buffer, order = place_of(call).source, str(tile_ir.attrs_of(call).get("memory_order", "relaxed"))
    if order != "relaxed":
        return f"additions of several are relaxed, and these are to be {order}"
    if not is_global(buffer):
        return "additions of several are of global memory only"
    if ctx.arch.atomic_neighbours(tile_ir.dtype_name(buffer)) == 1:
        return f"{ctx.arch.name} has no addition of several {tile_ir.dtype_name(buffer)}"
    return ""


def note_single(buffer: Any, why: str, span: Any, ctx: SimtContext) -> None:
    ctx.report.note(span, f"atomic additions to {buffer.name}: one by one, as {why}")


def add_several(
    call: Any, buffer: Any, indices: Sequence[Any], part: Any, lane: int, width: int, ctx: SimtContext, span: Any
) -> Any:
    """`buffer[indices : + width] += part[lane : + width]`, atomic for each element; `call` is the addition of one."""
    ctx.aligned(buffer, width * dtype_of(tile_ir.dtype_name(buffer)).bits // 8)
    ctx.report.note(span, f"atomic additions to {buffer.name}: {width} neighbours at once")
    last = indices[-1]
    place = tir.BufferLoad(buffer, [*indices[:-1], tir.Ramp(last, tir.const(1, str(last.ty)), width)])
    value = tir.BufferLoad(part, [tir.Ramp(int32(lane), int32(1), width)])
    made = tile_ir.call(
        ELEMENT, [tir.address_of(place), value], tile_ir.attrs_of(call), dtype=str(call.ty), span=call.span
    )
    return tir.Evaluate(made, span=span)


class JoiningGuard(Guard):
    """Guards accesses, and joins additions to neighbours that follow each other.

    before:     T.tl.atomic_elem(address_of(S[4 * i]), a); ...; T.tl.atomic_elem(address_of(S[4 * i + 3]), d)
    after:      S_part[0] = a; ...; S_part[3] = d
                if 4 * i < n: T.tl.atomic_elem(address_of(S[4 * i : + 4]), S_part[0:4])
    """

    def __init__(self, ranges: Ranges, safe: dict[Any, Any], ctx: SimtContext) -> None:
        super().__init__(ranges, safe)
        self.ctx = ctx

    def statements(self, stmts: list[Any]) -> list[Any]:
        for start, stmt in enumerate(stmts):
            if isinstance(stmt, tir.Evaluate) and is_call(stmt.value, "tirx.assume"):
                break  # what follows is seen again, with what is assumed
            count = self._neighbours(stmts[start:])
            if count > 1:
                before = super().statements(stmts[:start])
                run = self._joined(stmts[start : start + count])
                return [*before, *run, *self.statements(stmts[start + count :])]
        return super().statements(stmts)

    def _neighbours(self, stmts: Sequence[Any]) -> int:
        """How many of the first statements add to elements that follow each other."""
        first = addition(stmts[0])
        if first is None:
            return 1
        target, count = place_of(first), 1
        for stmt in stmts[1:]:
            call = addition(stmt)
            if call is None or str(tile_ir.attrs_of(call)) != str(tile_ir.attrs_of(first)):
                break
            place = place_of(call)
            same = place.source.same_as(target.source) and all(
                tvm_ffi.structural_equal(a, b) for a, b in zip(place.indices[:-1], target.indices[:-1])
            )
            if not same or not self.ranges.proves(place.indices[-1] == target.indices[-1] + count):
                break
            count += 1
        return count

    def _joined(self, stmts: list[Any]) -> list[Any]:
        calls = [s.value for s in stmts]
        buffer, span = place_of(calls[0]).source, stmts[0].span
        why = why_single(calls[0], self.ctx)
        if not why and any(_depends_on(c.args[1], buffer) for c in calls):
            why = "a value may depend on what is added before"
        if why:
            note_single(buffer, why, span, self.ctx)
            return super().statements(stmts)
        out: list[Any] = []
        done = 0
        while done < len(calls):
            width = self._width(calls[done:])
            if width == 1:
                note_single(buffer, _misaligned(calls[done], self.ranges), span, self.ctx)
                out.extend(super().statements([stmts[done]]))
            else:
                out.extend(self._at_once(calls[done : done + width], span))
            done += width
        return out

    def _width(self, calls: Sequence[Any]) -> int:
        """How many of the first additions one instruction can make."""
        target = place_of(calls[0])
        most = self.ctx.arch.atomic_neighbours(tile_ir.dtype_name(target.source))
        for width in (4, 2):
            first, last = target.indices[-1], place_of(calls[min(width, len(calls)) - 1]).indices[-1]
            if width <= min(most, len(calls)) and aligned(target.source, first, last, width, self.ranges):
                return width
        return 1

    def _at_once(self, calls: Sequence[Any], span: Any) -> list[Any]:
        target, width = place_of(calls[0]), len(calls)
        buffer, indices = target.source, target.indices
        part = local(width, tile_ir.dtype_name(buffer), f"{buffer.name}_part")
        needed = self.ranges.outside(buffer, indices)
        with self.ranges.given(*needed):
            values = [self.expr(c.args[1]) for c in calls]
            filled = [tir.BufferStore(part, v, [int32(k)], span=span) for k, v in enumerate(values)]
            update = add_several(calls[0], buffer, [self.expr(i) for i in indices], part, 0, width, self.ctx, span)
        work = under([self.expr(c) for c in needed], tile_ir.sequence([*filled, update]), span)
        return [tir.AllocBuffer(part), *tile_ir.statements(work)]


@dataclass(frozen=True)
class NestAddition:
    """An addition of every iteration of a nest, to neighbours that one thread has."""

    call: Any
    access: WideAccess

    def part(self, length: int) -> Any:
        """A new array for what is added to `length` neighbours."""
        return local(length, tile_ir.dtype_name(self.access.buffer), f"{self.access.buffer.name}_part")

    def updates(self, part: Any, length: int, indices: list[Any], owned: list[Any], low: Any) -> list[Any]:
        """The additions of `part` from the element `indices` on, where this thread is to make them."""
        buffer = self.access.buffer
        width = min(length, low.ctx.arch.atomic_neighbours(tile_ir.dtype_name(buffer)))
        indices = [low.simplify(i) for i in indices]
        needed = low.ranges.outside(buffer, indices)
        made = []
        for lane in range(0, length, width):
            place = [*indices[:-1], low.simplify(indices[-1] + lane)]
            made.append(add_several(self.call, buffer, place, part, lane, width, low.ctx, low.span))
        return [under([*needed, *owned], tile_ir.sequence(made), low.span)]


class NestAdditions:
    """The additions of a nest, moved `width` elements at a time, that are made after the work on these elements."""

    def __init__(self, rule: Any, low: Any, width: int, access_width: Callable[[WideAccess], int]) -> None:
        self.found: list[NestAddition] = []
        calls = [call for stmt in tile_ir.statements(rule.nest.body) if (call := addition(stmt)) is not None]
        for call in calls:
            buffer = place_of(call).source
            if sum(place_of(c).source.same_as(buffer) for c in calls) > 1:
                continue  # several to one buffer: neighbours among them are joined where accesses are guarded
            access = _access_of(rule.accesses.wide, place_of(call))
            why = why_single(call, low.ctx)
            if not why and not _alone(rule.nest.body, buffer):
                why = f"the loop does more with {buffer.name}, or calls a function that may"
            elif not why and (access is None or width == 1 or access_width(access) < width):
                why = "no thread is known to have neighbours at a multiple of their size, in bounds all or none"
            if why:
                note_single(buffer, why, rule.span, low.ctx)
            elif access is not None:
                self.found.append(NestAddition(call, access))

    def of(self, stmt: Any) -> NestAddition | None:
        """What is found for a statement of the nest's body, in which fragments may have become registers."""
        call = addition(stmt)
        if call is None:
            return None
        return next((a for a in self.found if place_of(a.call).source.same_as(place_of(call).source)), None)


def _alone(body: Any, buffer: Any) -> bool:
    """Whether an addition is all that the body does with the buffer: its place is the only mention."""
    mentions = sum(n.source.same_as(buffer) for n in tile_ir.walk(body, ir.TensorLoad))
    stored = any(n.buffer.same_as(buffer) for n in tile_ir.walk(body, tir.BufferStore))
    return mentions == 1 and not stored and not any(is_call(n, "tirx.call_extern") for n in tile_ir.walk(body, ir.Call))


def _access_of(accesses: Sequence[WideAccess], place: Any) -> WideAccess | None:
    """The access that an atomic on `place` is, where its index names nothing that the nest's body binds."""
    for access in accesses:
        if access.is_write and access.buffer.same_as(place.source):
            if all(tvm_ffi.structural_equal(a, b) for a, b in zip(access.indices, place.indices)):
                return access
    return None


def _depends_on(value: Any, buffer: Any) -> bool:
    """Whether an addition to `buffer` may change the value."""
    return any(
        (isinstance(n, ir.TensorLoad) and n.source.same_as(buffer)) or is_call(n, ELEMENT, "tirx.call_extern")
        for n in tile_ir.walk(tir.Evaluate(value))
    )


def _misaligned(call: Any, ranges: Ranges) -> str:
    target = place_of(call)
    if target.source in ranges.any_address:
        return "any address is allowed for"
    where = f"{target.source.name}[{', '.join(str(i) for i in target.indices)}]"
    return f"{where} is not provably at a multiple of two elements, with its neighbour in bounds"
