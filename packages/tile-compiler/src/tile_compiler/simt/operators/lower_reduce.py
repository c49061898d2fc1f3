"""The lowering of `T.reduce_*`: registers, then shuffles, then shared memory between warps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx as tir

from tile_compiler.simt.distribution import Distribution, pushed_forward
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import call, int32, load, local, serial, store, under, unrolled
from tile_compiler.simt.operators.reduce import result_of
from tile_compiler.simt.terms import Ints, is_formula, to_tir
from tile_compiler.tileops.combine import Combine, accumulator_type, combine_of, custom_combine
from tile_compiler.tileops.site import cast, element_type
from tilelang.ir import tile_ir
from tilelang.layout import placeholders
from tilelang.layout.fit import expr_of_values
from tilelang.ops import Reduce

LONG_CHAIN, CHAINS = 16, 4  # steps of one result from which on it is summed in several chains, and in how many


@dataclass(frozen=True)
class Butterfly:
    """Threads t and t ^ mask hold parts of the same results, for each mask; each part is in exactly one of them.

    `register[s]` is where element s of a thread goes.
    """

    register: Ints
    masks: tuple[int, ...]


def butterfly(src: Distribution, dst: Distribution, dim: int) -> Butterfly | None:
    """The exchange pattern of a reduction, found by evaluation; None if threads do not pair up regularly."""
    if not src.is_full:
        return None
    result = result_of(src.shape, dim).ravel()[src.held]  # by (thread, step)
    held = dst.held
    registers = np.empty(src.steps, np.int64)
    for s in range(src.steps):
        match = held == result[:, s, None]
        if not match.any(axis=1).all():
            return None
        columns = match.argmax(axis=1)
        if (columns != columns[0]).any():
            return None
        registers[s] = columns[0]
    if not set(range(dst.steps)) <= set(registers.tolist()):
        return None
    groups = _offsets(result, src.threads)
    owners = _offsets(held, src.threads)
    copies = _offsets(src.held, src.threads)
    if groups is None or owners != groups or copies is None:
        return None
    return Butterfly(registers, _basis(groups, copies))


def _offsets(content: Ints, threads: int) -> frozenset[int] | None:
    """The set {t ^ u} over threads u that share a number with thread t, if it is the same for all; must be closed."""
    lowest = int(content.min())
    if lowest < 0:
        return None
    member = np.zeros((int(content.max()) + 1, threads), bool)
    member[content, np.arange(threads)[:, None]] = True
    moved = np.flatnonzero(member[content[0, 0]])
    first = frozenset(moved.tolist())
    if not first.issuperset(np.unique(moved[:, None] ^ moved).tolist()):
        return None
    shared = member[member.any(axis=1)]
    partners = shared.argmax(axis=1)[:, None] ^ moved  # of one holder: what is closed says the same of all
    if (shared.sum(axis=1) != len(first)).any() or partners.max() >= threads:
        return None
    if not np.take_along_axis(shared, partners, axis=1).all():
        return None
    return first


def _basis(group: frozenset[int], without: frozenset[int]) -> tuple[int, ...]:
    """Masks that generate `group` from the subgroup `without`, smallest first."""
    reached, masks = set(without), []
    for mask in sorted(group):
        if mask not in reached:
            masks.append(mask)
            reached |= {r ^ mask for r in reached}
    return tuple(masks)


def lower_reduce(op: Reduce, low: Lowering) -> Any:
    """`tl.reduce(src, dst)` -> partial results in registers, combined between the threads that share a result.

    after:      for r: part[r] = identity
                for s: part[q(s)] = step(part[q(s)], src[s])
                part[r] = step(part[r], shfl_xor(part[r], mask))       for each mask inside a warp
                dst[r] = part[r]                                       or step(dst[r], part[r]) to keep dst's content

    Where a result is summed in several chains that the first elements begin, the identity comes last.
    Threads in other warps exchange through shared memory. Where other threads need the results than those that hold their
    elements (two tiles with rows of their own share them), the results go through shared memory. What is held irregularly
    goes there at once, whole.
    """
    src, dst = low.distribution(op.src.source), low.distribution(op.dst.source)
    dim = op.dim % len(src.shape)
    result = element_type(op.dst)
    if op.kind == "custom":
        combine = custom_combine(op.lhs, op.rhs, op.combined, op.identity)
    else:
        combine = combine_of(op.kind, accumulator_type(element_type(op.src), result), result, op.nan_propagate)
    pattern = butterfly(src, dst, dim)
    if pattern is not None:
        part, body = _exchanged(op, low, pattern, dst.steps, combine)
        return tile_ir.sequence(
            [*body, unrolled("r", dst.steps, lambda r: _finish(op, low, combine, r, load(part, r)))]
        )
    near = pushed_forward(src, result_of(src.shape, dim), dst.shape)
    pattern = butterfly(src, near, dim)
    if pattern is not None:
        return _handed_on(op, low, pattern, near, dst, combine)
    return _through_shared(op, low, src, dst, dim, combine)


def _finish(op: Reduce, low: Lowering, combine: Combine, register: Any, partial: Any) -> Any:
    into = low.registers(op.dst.source)
    if not op.clear:
        partial = combine.step(partial, cast(load(into, register), combine.dtype))
    return store(into, cast(partial, element_type(op.dst)), register, span=low.span)


def _chains(register: Ints, count: int, low: Lowering) -> tuple[Ints, int]:
    """(where each element goes, how many partial results each result has): where warps are few, a result is summed in
    several chains, as each step waits for the one before it (4 cycles and more, which no other warp fills)."""
    if not low.ctx.arch.has_wgmma or len(register) < LONG_CHAIN * count:
        return register, 1
    seen = np.zeros(count, np.int64)
    spread = np.empty_like(register)
    for s, r in enumerate(register):
        spread[s] = r + count * (seen[r] % CHAINS)
        seen[r] += 1
    fits = is_formula(expr_of_values(spread, placeholders(1))) and seen.min() >= CHAINS
    return (spread, CHAINS) if fits else (register, 1)


def _joined(part: Any, count: int, chains: int, combine: Combine) -> list[Any]:
    """The chains of each result brought together, in pairs."""
    body, apart = [], chains
    while apart > 1:
        apart //= 2

        def join(r: Any, apart: int = apart) -> Any:
            return store(part, combine.step(load(part, r), load(part, r + count * apart)), r)

        body.append(unrolled("r", count * apart, join))
    return body


def _exchanged(op: Reduce, low: Lowering, pattern: Butterfly, count: int, combine: Combine) -> tuple[Any, list[Any]]:
    """(The results of each thread, `count` of them, what computes them)."""
    register, chains = _chains(pattern.register, count, low)
    part = local(count * chains, combine.dtype, f"{op.dst.source.name}_part")
    low.temporaries.append(tir.AllocBuffer(part))
    source = low.registers(op.src.source)
    steps = len(register)
    place = expr_of_values(register, placeholders(1))

    def element(s: Any) -> Any:
        return combine.prepare(cast(load(source, s), combine.dtype))

    def begin(s: Any) -> Any:
        return store(part, element(s), to_tir(place, {"i": s}), span=low.span)

    def gather(s: Any) -> Any:
        to = to_tir(place, {"i": s})
        return store(part, combine.step(load(part, to), element(s)), to, span=low.span)

    def neutral(r: Any) -> Any:
        return store(part, combine.step(combine.identity, load(part, r)), r)

    many = count * chains
    if chains > 1 and np.array_equal(np.sort(register[:many]), np.arange(many)):  # one element of each chain
        body = [unrolled("s", many, begin), unrolled("s", steps - many, lambda s: gather(s + many))]
        body += [*_joined(part, count, chains, combine), unrolled("r", count, neutral)]
    else:
        body = [unrolled("r", many, lambda r: store(part, combine.identity, r))]
        alone = [] if is_formula(place) else [_one(register, s, part, source, combine) for s in range(steps)]
        body += alone or [unrolled("s", steps, gather)]
        body += _joined(part, count, chains, combine)
    for mask in [m for m in pattern.masks if m < low.ctx.arch.warp]:

        def exchange(r: Any, mask: int = mask) -> Any:
            # Bound: all lanes must take part in the shuffle, and a step may evaluate its operand under a condition.
            other = tir.Var(f"{op.dst.source.name}_other", combine.dtype)
            received = call("tl::shfl_xor", load(part, r), int32(mask), dtype=combine.dtype)
            return tir.SeqStmt([tir.Bind(other, received), store(part, combine.step(load(part, r), other), r)])

        body.append(unrolled("r", count, exchange))
    across = [m for m in pattern.masks if m >= low.ctx.arch.warp]
    if across:
        inside = [m for m in pattern.masks if m < low.ctx.arch.warp]
        body += _between_warps(low, part, count, _low_bits(inside), across, combine, str(op.dst.source.name))
    return part, [s for b in body for s in tile_ir.statements(b)]


def _one(register: Ints, s: int, part: Any, source: Any, combine: Combine) -> Any:
    to = int(register[s])
    value = combine.prepare(cast(load(source, s), combine.dtype))
    return store(part, combine.step(load(part, to), value), to)


def _low_bits(masks: list[int]) -> int:
    """n if the threads 0 to 2^n - 1 are those that the masks reach from thread 0; else 0."""
    bits = len(masks)
    return bits if sorted(masks) == [1 << n for n in range(bits)] else 0


def _between_warps(
    low: Lowering, part: Any, count: int, same: int, masks: list[int], combine: Combine, name: str
) -> list[Any]:
    """One of each 2^same neighbours, which hold equal parts, writes them; each thread reads those of its partners.

    All read in one order: equal bits in all.
    """
    scratch = low.shared([count, low.threads >> same], combine.dtype, f"{name}_exchange")
    slot = low.tx >> same if same else low.tx

    def write(r: Any) -> Any:
        return store(scratch, load(part, r), r, slot, span=low.span)

    own = under([tir.bitwise_and(low.tx, int32((1 << same) - 1)) == 0] if same else [], unrolled("r", count, write))
    sums = [0]
    for mask in masks:
        sums += [s ^ mask for s in sums]
    lead = _lead(low.tx, masks)
    lead = lead >> same if same else lead

    def collect(r: Any) -> Any:
        total: Any = None
        for offset in sorted(sums):
            value = load(scratch, r, lead ^ (offset >> same) if offset else lead)
            total = value if total is None else combine.step(total, value)
        return store(part, total, r, span=low.span)

    return [own, unrolled("r", count, collect)]


def _lead(thread: Any, masks: list[int]) -> Any:
    """The smallest of the threads reached from `thread` by the masks."""
    reduced: list[int] = []
    for mask in sorted(masks, reverse=True):  # Gaussian elimination: every mask owns its highest bit
        for other in reduced:
            mask = min(mask, mask ^ other)
        if mask:
            reduced = [min(o, o ^ mask) for o in reduced] + [mask]
    lead = thread
    if all(m & (m - 1) == 0 for m in reduced):
        return tir.bitwise_and(thread, int32(~sum(reduced)))
    for mask in sorted(reduced, reverse=True):
        bit = mask.bit_length() - 1
        lead = lead ^ ((lead >> bit) % 2 * mask)
    return lead


def _handed_on(
    op: Reduce, low: Lowering, pattern: Butterfly, near: Distribution, dst: Distribution, combine: Combine
) -> Any:
    """Results of the threads that hold their elements, distributed as `near`; through shared memory to those of `dst`."""
    low.ctx.report.note(
        low.span, f"reduce: {op.dst.source.name} goes through shared memory to the threads that need it"
    )
    part, body = _exchanged(op, low, pattern, near.steps, combine)
    scratch = low.shared(list(dst.shape), combine.dtype, f"{op.dst.source.name}_results")

    def put(r: Any) -> Any:
        return _put(near, low, scratch, r, load(part, r))

    def take(r: Any) -> Any:
        index, conditions = dst.place(low.tx, r)
        return under(conditions, _finish(op, low, combine, r, load(scratch, *index)))

    return tile_ir.sequence([*body, unrolled("r", near.steps, put), unrolled("r", dst.steps, take)])


def _put(held: Distribution, low: Lowering, scratch: Any, step: Any, value: Any) -> Any:
    """Write a thread's element to its place in shared memory; of those that hold a copy, one does."""
    index, conditions = held.place(low.tx, step)
    if held.replicas > 1:
        owner = to_tir(held.fragment.thread_expr, {**dict(zip("ijkl", index)), "rep": int32(0)})
        conditions = [*conditions, low.tx == owner]
    return under(conditions, store(scratch, value, *index, span=low.span))


def _through_shared(op: Reduce, low: Lowering, src: Distribution, dst: Distribution, dim: int, combine: Combine) -> Any:
    """Write the tile to shared memory; each thread sums the rows of its results."""
    low.ctx.report.note(low.span, f"reduce: {op.src.source.name} goes through shared memory, row by row")
    scratch = low.shared(list(src.shape), element_type(op.src), f"{op.src.source.name}_rows")
    source = low.registers(op.src.source)
    total = local(1, combine.dtype, f"{op.dst.source.name}_part")
    low.temporaries.append(tir.AllocBuffer(total))

    def put(s: Any) -> Any:
        return _put(src, low, scratch, s, load(source, s))

    def take(r: Any) -> Any:
        index, conditions = dst.place(low.tx, r)
        if len(dst.shape) == len(src.shape):
            row = list(index)
        else:
            row = [*index[:dim], None, *index[dim:]] if len(src.shape) > 1 else [None]

        def step(k: Any) -> Any:
            at = [k if d == dim else i for d, i in enumerate(row)]
            value = combine.prepare(cast(load(scratch, *at), combine.dtype))
            return store(total, combine.step(load(total, 0), value), 0, span=low.span)

        body = [
            store(total, combine.identity, 0),
            serial("k", src.shape[dim], step),
            _finish(op, low, combine, r, load(total, 0)),
        ]
        return under(conditions, tile_ir.sequence(body))

    assert math.prod(dst.shape) * src.shape[dim] == math.prod(src.shape)
    return tile_ir.sequence([unrolled("s", src.steps, put), unrolled("r", dst.steps, take)])
