"""`Distribution`: which thread does each iteration of a loop nest, or holds each element of a tile, and in which step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import tirx as tir

from tile_compiler.simt.terms import Ints, is_formula, names, tile_values, to_tir
from tilelang.layout import Const, Fragment, IndexExpr, Placeholder, placeholders, substitute
from tilelang.layout.evaluation import linear_index
from tilelang.layout.fit import expr_of_values

SMALL = 256  # elements of a tile that every thread may hold, iterations that each may repeat


@dataclass(frozen=True)
class Linear:
    """Elements in the order of axes `order` (the last is fastest), dealt out to `threads` in groups of `vector`."""

    order: tuple[int, ...]
    vector: int
    threads: int


@dataclass(frozen=True, eq=False)
class Distribution:
    """A fragment that can be turned round: from (thread, step) back to the element.

    A step is a register of a tile, an iteration of a loop. `threads` is the size of the block. Distributions made by
    `linear` know their formula; others find it by evaluating the fragment.
    """

    fragment: Fragment
    threads: int
    linear_form: Linear | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.fragment.shape

    @property
    def replicas(self) -> int:
        return self.fragment.replicate_size

    @cached_property
    def steps(self) -> int:
        return self.fragment.local_size

    @cached_property
    def thread_of(self) -> Ints:
        """Threads by (replica, *element)."""
        grids = np.indices(self.shape)
        rep = np.arange(self.replicas).reshape([-1, *[1] * len(self.shape)])
        values = self.fragment.thread(*[g[None] for g in grids], rep=rep)
        return np.broadcast_to(np.asarray(values, np.int64), (self.replicas, *self.shape))

    @cached_property
    def step_of(self) -> Ints:
        """Steps by element."""
        return np.broadcast_to(np.asarray(self.fragment.index(*np.indices(self.shape)), np.int64), self.shape)

    @cached_property
    def held(self) -> Ints:
        """The linear number of the element at each (thread, step), -1 where there is none."""
        table = np.full((self.threads, self.steps), -1, np.int64)
        number = np.arange(math.prod(self.shape)).reshape(self.shape)
        for copy in self.thread_of:
            table[copy, self.step_of] = number
        return table

    @cached_property
    def first_of(self) -> tuple[int, int, int] | None:
        """(period, count, end) if those threads hold the first copy of all their elements for which thread % period < count
        and thread < end; None for other patterns."""
        first, others = np.unique(self.thread_of[0]), np.unique(self.thread_of[1:])
        if np.isin(first, others).any():
            return None
        end = int(self.thread_of.max()) + 1
        mask = np.zeros(end, bool)
        mask[first] = True
        for period in (p for p in range(1, end + 1) if end % p == 0):
            count = int(mask[:period].sum())
            if np.array_equal(mask, np.tile(np.arange(period) < count, end // period)):
                return period, count, end
        return None

    @cached_property
    def is_full(self) -> bool:
        """Whether every thread of the block has an element in every step."""
        return bool((self.held >= 0).all())

    @cached_property
    def inverse(self) -> tuple[IndexExpr, ...]:
        """Each index of the element by (thread, step). Where there is none, anything: `place` asks again."""
        variables = placeholders(2)
        used = self.held[: self.fragment.thread_extent]
        found: tuple[IndexExpr, ...] = ()
        fills = (True, False) if self._has_gaps else (None,)
        for forward in fills:
            table = used if forward is None else _without_gaps(used, forward=forward)
            index = np.unravel_index(np.maximum(table, 0), self.shape)
            found = tuple(expr_of_values(np.where(table < 0, -1, part), variables) for part in index)
            if all(is_formula(e) for e in found):
                break
        return found

    @cached_property
    def _has_gaps(self) -> bool:
        """Whether a thread among those that hold something lacks a step; only where nothing is replicated."""
        return self.replicas == 1 and bool((self.held[: self.fragment.thread_extent] < 0).any())

    def _is_held(self, index: list[Any], thread: Any, step: Any) -> list[Any]:
        """The conditions under which `thread` holds the element `index` in `step`."""
        element = dict(zip(names(len(self.shape)), index))
        inside = [c for i, size in zip(index, self.shape) for c in (i >= 0, i < size)]
        return [
            *inside,
            to_tir(self.fragment.thread_expr, element) == thread,
            to_tir(self.fragment.index_expr, element) == step,
        ]

    @cached_property
    def _used(self) -> tuple[range, range] | None:
        """The threads and the steps that have elements, if those are a grid of even steps without holes."""
        grids = [_evenly(np.flatnonzero((self.held >= 0).any(axis=1 - axis))) for axis in (0, 1)]
        if grids[0] is None or grids[1] is None:
            return None
        return (grids[0], grids[1]) if (self.held[np.ix_(*grids)] >= 0).all() else None

    @cached_property
    def _grid_inverse(self) -> tuple[IndexExpr, ...]:
        """Each index of the element by (place of the thread, place of the step) in those that are used."""
        assert self._used is not None
        index = np.unravel_index(self.held[np.ix_(*self._used)], self.shape)
        return tuple(expr_of_values(part, placeholders(2)) for part in index)

    def _place_on_grid(self, used: tuple[range, range], thread: Any, step: Any) -> tuple[list[Any], list[Any]]:
        found = [_place_in(u, value, n) for u, value, n in zip(used, (thread, step), self.held.shape)]
        values = dict(zip(names(2), (place for place, _ in found)))
        return [to_tir(e, values) for e in self._grid_inverse], [c for _, needs in found for c in needs]

    @cached_property
    def emittable(self) -> bool:
        """Whether the way back from (thread, step) has a formula."""
        if self.linear_form is not None:
            return True
        grid = self._has_gaps and self._used is not None
        return all(is_formula(e) for e in (self._grid_inverse if grid else self.inverse))

    def place(self, thread: Any, step: Any) -> tuple[list[Any], list[Any]]:
        """(indices of the element, conditions under which there is one) as tirx, for tirx `thread` and `step`."""
        form = self.linear_form
        if form is None:
            if self._has_gaps and self._used is not None:
                return self._place_on_grid(self._used, thread, step)
            values = dict(zip(names(2), (thread, step)))
            index = [to_tir(e, values) for e in self.inverse]
            if self._has_gaps:
                return index, self._is_held(index, thread, step)
            short = self.fragment.thread_extent < self.threads
            return index, [thread < self.fragment.thread_extent] if short else []
        variables = dict(zip(names(2), (thread, step)))
        t, s = placeholders(2)
        number: IndexExpr = (s // form.vector * form.threads + t) * form.vector + s % form.vector
        if self.steps == form.vector:
            number = t * form.vector + s
        elif form.vector == 1:
            number = s * form.threads + t
        indices: list[Any] = [None] * len(self.shape)
        rest = number
        for position, axis in enumerate(reversed(form.order)):
            outermost = position == len(form.order) - 1
            indices[axis] = to_tir(rest if outermost else rest % self.shape[axis], variables)
            rest = rest // self.shape[axis]
        return indices, [] if self.is_full else [to_tir(number, variables) < math.prod(self.shape)]

    def vector_width(self, axis: int) -> int:
        """Neighbours along `axis` that one thread does in consecutive, aligned steps."""
        if self.linear_form is not None and self.linear_form.order[-1] != axis and self.shape[axis] > 1:
            return 1
        return self.fragment.vector_width(axis)

    def in_pairs(self, axis: int) -> Distribution | None:
        """The same with steps in another order, so that two that follow each other are aligned neighbours along `axis`; None
        where their numbers are not the same power of two apart in all threads."""
        if self.replicas > 1 or not self.is_full:
            return None
        places = np.stack(np.unravel_index(self.held, self.shape))  # axis, thread, step
        apart = 2
        while 2 * apart <= self.steps and self.steps % (2 * apart) == 0:
            one, other = places.reshape(len(places), self.threads, -1, 2, apart).transpose(3, 0, 1, 2, 4)
            step = np.zeros_like(one)
            step[axis] = 1
            if np.array_equal(other, one + step) and not (one[axis] % 2).any():
                step, thread = self.fragment.index_expr, self.fragment.thread_expr
                index = step // apart % 2 + step % apart * 2 + step // (2 * apart) * (2 * apart)
                return Distribution(
                    Fragment.from_exprs(self.shape, thread, index, 1, self.fragment.thread_extent), self.threads
                )
            apart *= 2
        return None

    def describe(self) -> str:
        """The map in the words of an error message."""
        axes = ", ".join(names(len(self.shape)))
        copies = f", held {self.replicas} times" if self.replicas > 1 else ""
        return f"({axes}) -> thread {self.fragment.thread_expr}, register {self.fragment.index_expr}{copies}"


def _without_gaps(table: Ints, *, forward: bool) -> Ints:
    """A table by (thread, step) whose entries of -1 repeat the thread before (or the first one after), or are 0."""
    if not forward:
        return np.maximum(table, 0)
    rows = np.where(table >= 0, np.arange(len(table))[:, None], -1)
    rows = np.maximum.accumulate(rows, axis=0)
    first = (table >= 0).argmax(axis=0)
    return np.maximum(np.take_along_axis(table, np.where(rows < 0, first, rows), axis=0), 0)


def _evenly(numbers: Ints) -> range | None:
    """The range whose members are `numbers`, which ascend; None if their steps differ."""
    step = int(numbers[1] - numbers[0]) if len(numbers) > 1 else 1
    found = range(int(numbers[0]), int(numbers[-1]) + 1, step)
    return found if len(found) == len(numbers) and (np.asarray(found) == numbers).all() else None


def _place_in(used: range, value: Any, extent: int) -> tuple[Any, list[Any]]:
    """(the place of `value` in `used`, conditions under which it is there), for values in 0 .. extent."""
    conditions = []
    if used.start:
        conditions.append(value >= used.start)
        value = value - used.start
    if used.stop < extent:
        conditions.append(value < len(used) * used.step)
    if used.step > 1:
        conditions.append(tir.floormod(value, used.step) == 0)
        value = tir.floordiv(value, used.step)
    return value, conditions


def linear(shape: Sequence[int], threads: int, vector: int = 1, order: Sequence[int] | None = None) -> Distribution:
    """Coalesced: neighbours along the fastest axis go to one thread in groups of `vector`, then to the next thread."""
    order = tuple(order if order is not None else range(len(shape)))
    variables = placeholders(len(shape))
    number = linear_index([variables[d] for d in order], [shape[d] for d in order])
    fragment = Fragment.from_exprs(
        shape,
        number // vector % threads,
        number // (vector * threads) * vector + number % vector,
        1,
        min(threads, -(-math.prod(shape) // vector)),
    )
    return Distribution(fragment, threads, Linear(order, vector, threads))


def replicated(shape: Sequence[int], threads: int) -> Distribution:
    """Every thread has every element, in row-major order."""
    variables = placeholders(len(shape))
    index = linear_index(list(variables), list(shape))
    fragment = Fragment.from_exprs(shape, Placeholder("rep"), index, threads, threads)
    return Distribution(fragment, threads)


def of_fragment(fragment: Fragment, threads: int) -> Distribution:
    return Distribution(fragment, threads)


def pulled_back(held: Distribution, indices: Sequence[IndexExpr], shape: Sequence[int]) -> Distribution:
    """The loop over `shape` in which iteration x runs where element `indices(x)` of `held` is (a one-to-one map)."""
    axes = permutation(indices, shape)
    whole = axes is not None and all(held.shape[d] == 1 for d, a in enumerate(axes) if a is None)
    if held.linear_form is not None and axes is not None and whole:
        order = [a for d in held.linear_form.order if (a := axes[d]) is not None]
        return linear(shape, held.threads, held.linear_form.vector, order)
    named = dict(zip(names(len(held.shape)), indices))
    thread, index = substitute(held.fragment.thread_expr, named), substitute(held.fragment.index_expr, named)
    index = _numbered(index, shape)
    fragment = Fragment.from_exprs(shape, thread, index, held.replicas, held.fragment.thread_extent)
    return Distribution(fragment, held.threads)


def _numbered(index: IndexExpr, shape: Sequence[int]) -> IndexExpr:
    """Registers as steps: those of every eighth element are 8 apart, the steps of a loop over them 1; registers 0, 1, 8, 9,
    16, ... are steps 0, 1, 2, 3, 4, ..."""
    (used,) = tile_values([index], shape)
    registers, step = np.unique(used, return_inverse=True)
    least, apart = int(registers[0]), int(np.gcd.reduce(registers - registers[0]))
    if int(registers[-1]) - least == apart * (len(registers) - 1):
        return (index - least) // apart if apart > 1 else index
    found = expr_of_values(step.reshape(shape), placeholders(len(shape)))
    return found if is_formula(found) else index


def permutation(indices: Sequence[IndexExpr], shape: Sequence[int]) -> list[int | None] | None:
    """The loop axis that each index is, None for a constant, if every axis of `shape` is one of the indices."""
    axes: list[int | None] = []
    for index in indices:
        if not isinstance(index, (Placeholder, Const)):
            return None
        axes.append(names(len(shape)).index(index.name) if isinstance(index, Placeholder) else None)
    return axes if sorted(a for a in axes if a is not None) == list(range(len(shape))) else None


def permuted(loop: Distribution, axes: Sequence[int | None], shape: Sequence[int]) -> Distribution | None:
    """The tile whose dimension d is loop axis `axes[d]`, held where a coalesced loop runs; None for other loops."""
    if loop.linear_form is None:
        return None
    single = [d for d, a in enumerate(axes) if a is None]
    order = [*single, *(list(axes).index(a) for a in loop.linear_form.order)]
    return linear(shape, loop.threads, loop.linear_form.vector, order)


def pushed_forward(loop: Distribution, flat: Ints, shape: Sequence[int]) -> Distribution:
    """The tile over `shape` that holds, in each thread, every element that the thread's iterations touch.

    `flat` is the number of the element that each iteration touches. Elements that several threads need are replicated
    (paper, figure 7); where threads do not need equally many, every thread holds the whole tile.
    """
    size = math.prod(shape)
    pairs = np.unique(
        np.stack([np.broadcast_to(flat, loop.thread_of.shape).ravel(), loop.thread_of.ravel()], axis=1), axis=0
    )
    counts = np.bincount(pairs[:, 0], minlength=size)
    if counts.min() == counts.max() and counts[0] > 0:
        found = _grouped(pairs[:, 1].reshape(size, -1), flat, shape, loop)
        if found is not None:
            return found
    return replicated(shape, loop.threads)


def _grouped(owners: Ints, flat: Ints, shape: Sequence[int], loop: Distribution) -> Distribution | None:
    """A tile whose element n is in the threads `owners[n]`, numbered in each thread by first use."""
    size, copies = owners.shape
    first = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(first, flat.ravel(), loop.step_of.ravel())
    rank = np.empty(size, np.int64)
    groups, group = np.unique(owners, axis=0, return_inverse=True)
    group = group.reshape(-1)
    if len(np.unique(groups)) != groups.size:
        return None  # a thread is in two groups: numbering each group apart would put two elements in one register
    for n in range(len(groups)):
        members = np.flatnonzero(group == n)
        rank[members[np.lexsort((members, first[members]))]] = np.arange(len(members))
    variables = placeholders(len(shape))
    table = owners.T.reshape(copies, *shape)
    thread = expr_of_values(table, (Placeholder("rep"), *variables))
    index = expr_of_values(rank.reshape(shape), variables)
    fragment = Fragment.from_exprs(shape, thread, index, copies, int(owners.max()) + 1)
    candidate = Distribution(fragment, loop.threads)
    return candidate if candidate.emittable else None


def spread(held: Distribution, indices: Sequence[IndexExpr], shape: Sequence[int], vector: int) -> list[Distribution]:
    """Loops over `shape` whose iterations run where the (replicated) element `indices(x)` is: shared out, or repeated."""
    named = dict(zip(names(len(held.shape)), indices))
    number = linear_index(list(placeholders(len(shape))), list(shape))
    found = []
    for width in dict.fromkeys((vector, 1)):
        thread = substitute(held.fragment.thread_expr, {**named, "rep": number // width % held.replicas})
        try:
            fragment = Fragment(shape, forward_thread_fn=lambda *_: thread, threads=held.fragment.thread_extent)
        except ValueError:
            continue
        found.append(Distribution(fragment, held.threads))
    repeated = substitute(held.fragment.thread_expr, named)
    if held.replicas > 1:
        try:
            fragment = Fragment(
                shape,
                forward_thread_fn=lambda *_: repeated,
                replicate=held.replicas,
                threads=held.fragment.thread_extent,
            )
            found.append(Distribution(fragment, held.threads))
        except ValueError:
            pass
    return [d for d in found if d.emittable]
