"""The state of the checker's walk, or where it is that of an earlier walk, which: it is made when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tile_compiler.simt.checker.asynchronous import Asynchronous
from tile_compiler.simt.checker.replay import Told
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.shadow import Shadow
from tile_compiler.simt.thread_values import Array
from tilelang.ir import tile_ir


@dataclass(frozen=True, eq=False)
class Runs:
    """A table in which neighbours (rows, if it has two dimensions) are mostly alike: where others begin, and these."""

    first: Array
    values: Array
    size: int

    @staticmethod
    def of(table: Array) -> Runs:
        differs = table[1:] != table[:-1]
        changes = differs if table.ndim == 1 else differs.any(axis=1)
        first = np.concatenate([[0], np.flatnonzero(changes) + 1])[: len(table)]
        return Runs(first, table[first], len(table))

    def whole(self) -> Array:
        return np.repeat(self.values, np.diff(np.append(self.first, self.size)), axis=0)


@dataclass(frozen=True, eq=False)
class Walk:
    """`before`, `ended`: of each mbarrier, the phases that had ended before the walk, and after it; `after`: the state that
    it left, and `key`, that state's; `told`: what its warps did to barriers; `trace`: the hash of what it did."""

    before: list[int]
    ended: list[int]
    after: Shadow
    key: int
    told: list[Told]
    trace: int


@dataclass(frozen=True, eq=False)
class Left:
    """The state that a walk left, where of each mbarrier so many phases have `ended`."""

    walk: Walk
    ended: list[int]

    def state(self) -> Shadow:
        state = self.walk.after.copy(Runs.whole)
        assert state.engines is not None
        for barrier, count in zip(state.engines.barriers, self.ended):
            barrier.ended = count
        return state


class HeldState(Asynchronous):
    """`state` for whoever looks at it; questions that a recalled walk answers without."""

    def __init__(
        self,
        kernel: tile_ir.Kernel,
        ctx: SimtContext,
        tracked: set[Any],
        finely: bool = False,
        ranks: tuple[int, ...] | None = None,
    ) -> None:
        self._state: Shadow | None = None
        self._state_key: int | None = None
        self.left: Left | None = None
        super().__init__(kernel, ctx, tracked, finely, ranks)

    @property
    def state(self) -> Shadow | None:
        """What there is to know, which whoever asks for it may change. After a walk that was recalled it is `left` as that
        walk left it, until somebody asks."""
        if self.left is not None:
            self._state, self.left = self.left.state(), None
        self._state_key = None
        return self._state

    @state.setter
    def state(self, state: Shadow | None) -> None:
        self._state, self._state_key, self.left = state, None, None

    def leave(self, left: Left) -> None:
        """The state is that of a recalled walk."""
        self._state, self._state_key, self.left = None, left.walk.key, left

    @property
    def ends_here(self) -> bool:
        """Whether no thread can be here (after a `break`)."""
        return self._state is None and self.left is None

    def key(self) -> int:
        """A number that is equal for states which nothing that follows can tell apart."""
        if self._state_key is None:
            assert self._state is not None
            self._state_key = self._state.key()
        return self._state_key

    def copied(self, table: Callable[[Any], Any]) -> Shadow:
        """A copy of the state: see `Shadow.copy`."""
        assert self._state is not None
        return self._state.copy(table)

    def phases(self) -> list[int] | None:
        """How many phases of each mbarrier have ended; None if that is not known, or if nothing is asynchronous."""
        if self.left is not None:
            return self.left.ended
        if self._state is None or self._state.engines is None:
            return None
        found = [b.ended for b in self._state.engines.barriers if b.ended is not None]
        return found if len(found) == len(self._state.engines.barriers) else None
