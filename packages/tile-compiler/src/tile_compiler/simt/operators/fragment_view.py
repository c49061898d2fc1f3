"""`T.view` and `T.reshape` of a fragment: the same registers, with other indices or another element type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tile_compiler.simt.distribution import Distribution, linear
from tile_compiler.simt.layout.equations import Level, Rule, Unknown, Value
from tilelang.layout import Fragment, Placeholder, placeholders
from tilelang.layout.fit import expr_of_values


@dataclass
class ViewRule(Rule):
    """An element of the view is where the storage that it shows is: either layout gives the other one.

    `bits` and `view_bits` are the widths of the elements.
    """

    owner: Unknown
    view: Unknown
    bits: int
    view_bits: int

    @property
    def is_tie(self) -> bool:
        return True

    def propose(self, level: Level, known: Mapping[Unknown, Value]) -> Iterator[tuple[Unknown, Value]]:
        for unknown in (self.view, self.owner):
            found = self.wanted(unknown, known)
            if unknown not in known and found is not None:
                yield unknown, found

    def unknowns(self) -> tuple[Unknown, ...]:
        return (self.owner, self.view)

    def fault(self, known: Mapping[Unknown, Value]) -> tuple[Unknown, str] | None:
        held, shown = known[self.owner], self.wanted(self.owner, known)
        assert isinstance(held, Distribution)
        if shown is None:
            return self.view, f"the {self.bits // self.view_bits or self.view_bits // self.bits} elements of one word"
        same = np.array_equal(held.thread_of, shown.thread_of) and np.array_equal(held.step_of, shown.step_of)
        return None if same else (self.owner, f"{self.owner.name} and {self.view.name} in the same registers")

    def wanted(self, unknown: Unknown, known: Mapping[Unknown, Value]) -> Distribution | None:
        """Where the other of the two has the storage of `unknown`."""
        shown = unknown is self.view
        other = known.get(self.owner if shown else self.view)
        widths = (self.bits, self.view_bits) if shown else (self.view_bits, self.bits)
        return viewed(other, unknown.shape, *widths) if isinstance(other, Distribution) else None


def viewed(held: Distribution, shape: Sequence[int], bits: int, view_bits: int) -> Distribution | None:
    """The registers of `held`, elements of `bits` each, as a tile of `shape` with elements of `view_bits`.

    Both tiles are the same storage in row-major order. None if some elements that are one element of the view are not
    neighbours in one thread.
    """
    threads, steps = held.thread_of.reshape(held.replicas, -1), held.step_of.ravel()
    parts, whole = max(1, bits // view_bits), max(1, view_bits // bits)
    groups, first = threads.reshape(held.replicas, -1, whole), steps.reshape(-1, whole)
    aligned = not (first[:, 0] % whole).any() and not (first != first[:, :1] + np.arange(whole)).any()
    if not aligned or (groups != groups[..., :1]).any():
        return None
    form = held.linear_form
    if form is not None and form.order == tuple(range(len(form.order))):
        return linear(shape, held.threads, max(1, form.vector * parts // whole))
    thread = np.repeat(groups[..., 0], parts, axis=1)
    step = np.repeat(first[:, 0] // whole * parts, parts) + np.tile(np.arange(parts), len(first))
    variables = placeholders(len(shape))
    fragment = Fragment.from_exprs(
        shape,
        expr_of_values(thread.reshape(held.replicas, *shape), (Placeholder("rep"), *variables)),
        expr_of_values(step.reshape(shape), variables),
        held.replicas,
        held.fragment.thread_extent,
    )
    return Distribution(fragment, held.threads)
