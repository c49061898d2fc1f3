"""Unknowns of layout inference, and what an operator says about them."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tile_compiler.simt.distribution import Distribution
from tilelang.layout import Layout

Value = Distribution | Layout


class Level(enum.IntEnum):
    """How much an operator insists (paper, section 4.2): what is strict is settled first."""

    STRICT = 0
    COMMON = 1
    FREE = 2


@dataclass(frozen=True, eq=False)
class Unknown:
    """A fragment or shared buffer, or a loop nest, whose layout is to be found. Identity is equality."""

    name: str
    shape: tuple[int, ...]
    key: Any = None


@dataclass
class Rule:
    """What one operator says. `text` names it in messages, `span` is the user's line.

    `propose` yields values for unknowns that are not known yet; `fault` says what contradicts the operator, as
    (the unknown that it cannot live with, why), once everything is known.
    """

    text: str
    span: Any

    def meet(self, others: Sequence[Rule]) -> None:
        """All rules of the kernel, once they are known and before any is asked."""

    def propose(self, level: Level, known: Mapping[Unknown, Value]) -> Iterator[tuple[Unknown, Value]]:
        return iter(())

    def fault(self, known: Mapping[Unknown, Value]) -> tuple[Unknown, str] | None:
        return None

    def unknowns(self) -> tuple[Unknown, ...]:
        return ()

    def wanted(self, unknown: Unknown, known: Mapping[Unknown, Value]) -> Distribution | None:
        """The distribution of `unknown` that would suit the operator, for messages: by default what it insists on."""
        demands = dict(self.propose(Level.STRICT, {}))
        found = demands.get(unknown)
        return found if isinstance(found, Distribution) else None

    @property
    def is_tie(self) -> bool:
        """Whether the rule says that tiles share their registers: it is applied as soon as one of them is known."""
        return False

    @property
    def demand(self) -> int:
        """Who has the larger demand makes free choices first."""
        return 0


@dataclass
class Annotation(Rule):
    """The user's own word: no copy may get round it."""


@dataclass
class Solution:
    """The value of each unknown, and the rule that gave it."""

    values: dict[Unknown, Value] = field(default_factory=dict)
    origin: dict[Unknown, Rule] = field(default_factory=dict)

    def set(self, unknown: Unknown, value: Value, rule: Rule) -> None:
        self.values[unknown] = value
        self.origin[unknown] = rule
