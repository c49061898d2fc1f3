"""`T.Parallel` nests (and the operators that are nests): the layout rule. The lowering is `lower_nest.py`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tile_compiler.simt.accesses import FragmentAccess, NestAccesses
from tile_compiler.simt.distribution import (
    SMALL,
    Distribution,
    linear,
    permutation,
    permuted,
    pulled_back,
    pushed_forward,
    replicated,
    spread,
)
from tile_compiler.simt.layout.equations import Level, Rule, Unknown, Value
from tile_compiler.simt.operators.bank_conflicts import less_conflicting
from tile_compiler.simt.operators.nests import is_global, is_shared
from tile_compiler.simt.terms import Ints, is_formula, tile_values
from tilelang.ir import tile_ir


@dataclass
class NestRule(Rule):
    """A nest runs where the fragments that it touches are; fragments lie where the nest runs.

    common: a known fragment that each iteration touches elsewhere gives the loop; a known loop gives its fragments.
    free:   coalesced, or spread over the threads that hold a replicated fragment; a shared buffer that its threads
            would meet in the same banks of is swizzled.
    """

    nest: tile_ir.ParallelNest
    accesses: NestAccesses
    loop: Unknown
    buffers: Mapping[Any, Unknown]
    threads: int
    #: Whether a nest that touches no memory chooses as those that do: the order that is left where theirs leads nowhere.
    leads: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.loop.shape

    def unknowns(self) -> tuple[Unknown, ...]:
        return tuple(dict.fromkeys(self.buffers[a.buffer] for a in self.accesses.fragments))

    @property
    def demand(self) -> int:
        """Elements of less than a byte need neighbours in one thread; other nests can follow that. A nest that touches no memory
        (as `T.clear` of an accumulator) follows those that do, which load vectors where they lead. One with fewer iterations than
        the block has threads (statistics of rows) follows all: led by it, rows of a tile would lie in one thread each, and most
        threads would idle."""
        if math.prod(self.shape) < self.threads:
            return -2
        return self.accesses.least_width - 1 if self.accesses.wide or self.leads else -1

    @cached_property
    def _flat(self) -> dict[int, Ints | None]:
        """For each fragment access the number of the element that each iteration touches; None if one is outside."""
        found: dict[int, Ints | None] = {}
        for n, access in enumerate(self.accesses.fragments):
            found[n] = None
            if access.indices is not None:
                values = tile_values(access.indices, self.shape)
                target = self.buffers[access.buffer].shape
                if all(v.min() >= 0 and v.max() < size for v, size in zip(values, target)):
                    found[n] = np.ravel_multi_index(tuple(np.array(v) for v in values), target)
        return found

    def _is_identity(self, n: int) -> bool:
        """Whether iteration x touches element x."""
        flat = self._flat[n]
        return flat is not None and np.array_equal(flat.ravel(), np.arange(flat.size))

    def _is_one_to_one(self, n: int) -> bool:
        flat = self._flat[n]
        return flat is not None and len(np.unique(flat)) == flat.size

    def propose(self, level: Level, known: Mapping[Unknown, Value]) -> Iterator[tuple[Unknown, Value]]:
        if level == Level.STRICT:
            return
        if self.loop not in known:
            found = self._loop(level, known)
            if found is not None:
                yield self.loop, found
        elif level == Level.COMMON:
            loop = known[self.loop]
            assert isinstance(loop, Distribution)
            for n, access in enumerate(self.accesses.fragments):
                unknown = self.buffers[access.buffer]
                flat = self._flat[n]
                if unknown not in known and flat is not None:
                    value = self._tile_of(loop, n, unknown, flat)
                    if value is not None:
                        yield unknown, value
        elif level == Level.FREE:
            yield from self._swizzled(known)

    def _swizzled(self, known: Mapping[Unknown, Value]) -> Iterator[tuple[Unknown, Value]]:
        loop = known[self.loop]
        assert isinstance(loop, Distribution)
        for access in self.accesses.wide:
            unknown = self.buffers.get(access.buffer) if is_shared(access.buffer) else None
            if unknown is not None and unknown not in known:
                layout = less_conflicting(access, self.nest.loop_vars, loop, unknown.shape)
                if layout is not None:
                    yield unknown, layout

    def _tile_of(self, loop: Distribution, n: int, unknown: Unknown, flat: Ints) -> Distribution | None:
        if loop.shape == unknown.shape and self._is_identity(n):
            return loop
        if len(np.unique(flat)) < math.prod(unknown.shape):
            return None  # the nest touches a part of the tile
        axes = permutation(self.accesses.fragments[n].indices or (), self.shape)
        if axes is not None and unknown.shape == tuple(1 if a is None else self.shape[a] for a in axes):
            turned = permuted(loop, axes, unknown.shape)
            if turned is not None:
                return turned
        return pushed_forward(loop, flat, unknown.shape)

    def _loop(self, level: Level, known: Mapping[Unknown, Value]) -> Distribution | None:
        candidates: list[Distribution] = []
        partial: list[tuple[Distribution, FragmentAccess]] = []
        for n, access in enumerate(self.accesses.fragments):
            value = known.get(self.buffers[access.buffer])
            flat = self._flat[n]
            if not isinstance(value, Distribution) or access.indices is None or flat is None:
                continue
            if not self._is_one_to_one(n):
                partial.append((value, access))
            elif value.shape == self.shape and self._is_identity(n):
                candidates += [*self._by_neighbours(value), value]
            else:
                candidates.append(pulled_back(value, access.indices, self.shape))
        if candidates:
            emittable = [c for c in candidates if c.emittable]
            return self._best(emittable, known) or (emittable or candidates)[0]
        if level != Level.FREE:
            return None
        coalesced = self._coalesced(known)
        choices = [coalesced]
        for value, access in partial:
            assert access.indices is not None
            width = coalesced.linear_form.vector if coalesced.linear_form else 1
            choices += spread(value, access.indices, self.shape, width)
        choices.append(replicated(self.shape, self.threads))
        return self._best(choices, known) or coalesced

    def _by_neighbours(self, held: Distribution) -> Iterator[Distribution]:
        """A fragment with neighbours in memory one after the other, where its registers have them apart."""
        for access in self.accesses.wide:
            axis = next((a for a, step in enumerate(access.steps) if step), None)
            if (
                axis is not None
                and is_global(access.buffer)
                and held.vector_width(axis) == 1 < access.width(axis, None)
            ):
                pairs = held.in_pairs(axis)
                yield from () if pairs is None else (pairs,)

    def _best(self, choices: list[Distribution], known: Mapping[Unknown, Value]) -> Distribution | None:
        """The first that all fragments allow, preferably without registers that are indexed at run time; but rather with them
        than with many iterations that each thread repeats."""
        shared_out = [c for c in choices if c.replicas == 1 or c.steps <= SMALL]
        found = (
            c
            for some in (shared_out, choices)
            for indexed in (False, True)
            for c in some
            if self._suits(c, known, indexed)
        )
        return next(found, None)

    def _suits(self, loop: Distribution, known: Mapping[Unknown, Value], indexed: bool = False) -> bool:
        return all(self._clash(n, loop, known, indexed) is None for n in range(len(self.accesses.fragments)))

    def _coalesced(self, known: Mapping[Unknown, Value]) -> Distribution:
        rank = len(self.shape)

        def score(axis: int) -> tuple[int, int]:
            merit = sum(
                (4 if is_global(a.buffer) else 1) for a in self.accesses.wide if a.steps[axis] and self.shape[axis] > 1
            )
            return merit, axis

        axis = max(range(rank), key=score)
        widths = [a.width(axis, known.get(self.buffers.get(a.buffer))) for a in self.accesses.wide]  # type: ignore[arg-type]
        least = self.accesses.least_width
        vector = max(least, min((w for w in widths if w > 1), default=1))
        while vector > 1 and (
            self.shape[axis] % vector or (vector > least and math.prod(self.shape) < self.threads * vector)
        ):
            vector //= 2
        order = [d for d in range(rank) if d != axis] + [axis]
        return linear(self.shape, self.threads, vector, order)

    def element_of(self, n: int) -> Ints | None:
        """The number of the element that each iteration touches by fragment access n; None if one is outside."""
        return self._flat[n]

    def register_map(self, n: int, loop: Distribution, held: Distribution) -> Ints | None:
        """For each step of the loop the register of `held` that fragment access n touches; None if threads differ."""
        flat = self._flat[n]
        if flat is None:
            return None
        registers = held.step_of.ravel()[flat.ravel()]
        table = np.full(loop.steps, -1, np.int64)
        steps = loop.step_of.ravel()
        table[steps] = registers
        return np.maximum(table, 0) if np.array_equal(table[steps], registers) else None

    def _clash(self, n: int, loop: Distribution, known: Mapping[Unknown, Value], indexed: bool) -> str | None:
        """Why the nest cannot run as `loop`; with `indexed`, registers may be chosen at run time."""
        access = self.accesses.fragments[n]
        name = access.buffer.name
        if access.indices is None:
            return f"indices of {name} made of the nest's loop variables and constants"
        flat = self._flat[n]
        if flat is None:
            return f"indices inside {name}"
        held = known.get(self.buffers[access.buffer])
        if held is None or (held is loop and self._is_identity(n)):
            return None
        assert isinstance(held, Distribution)
        owners = held.thread_of.reshape(held.replicas, -1)[:, flat.ravel()]
        runs = loop.thread_of.reshape(loop.replicas, -1)
        if not _contains(owners, runs):
            return f"the threads that run an iteration hold its element of {name}"
        if access.is_write and not _contains(runs, owners):
            return f"every thread that holds an element of {name} runs the iteration that writes it"
        if self.register_map(n, loop, held) is None and not (indexed and is_formula(held.fragment.index_expr)):
            return f"in each step all threads touch the same register of {name}"
        return None

    def fault(self, known: Mapping[Unknown, Value]) -> tuple[Unknown, str] | None:
        loop = known[self.loop]
        assert isinstance(loop, Distribution)
        for n, access in enumerate(self.accesses.fragments):
            why = self._clash(n, loop, known, indexed=True)
            if why is not None:
                return self.buffers[access.buffer], why
        return None

    def wanted(self, unknown: Unknown, known: Mapping[Unknown, Value]) -> Distribution | None:
        """The tile held where the nest runs."""
        loop = known.get(self.loop)
        for n, access in enumerate(self.accesses.fragments):
            flat = self._flat[n]
            if isinstance(loop, Distribution) and self.buffers[access.buffer] is unknown and flat is not None:
                return self._tile_of(loop, n, unknown, flat)
        return None


def _contains(owners: Ints, runs: Ints) -> bool:
    """Whether each column of `runs` is a subset of that column of `owners`."""
    if owners.shape == runs.shape and np.array_equal(owners, runs):
        return True
    return all(bool((owners == row).any(axis=0).all()) for row in runs)
