"""Blocks that run together: those of a cluster, or of the grid, in kernels with barriers between blocks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir

from tilelang.ir import tile_ir
from tilelang.ops import ClusterSync, GridSync, Hint, MbarrierArrive, TileOp, parse
from tilelang.ops.base import OPERATORS

Place = tuple[int, ...]


@dataclass
class Company:
    """The blocks that meet at one barrier, by their places in the grid, in the order of their ranks."""

    blocks: dict[Place, Any]
    came: dict[Place, int] = field(default_factory=dict)  # how often each has come to the barrier

    def come(self, place: Place) -> None:
        self.came[place] = self.came.get(place, 0) + 1

    def complete(self, place: Place) -> bool:
        """Whether all have come as often as the block at this place."""
        return all(self.came.get(other, 0) >= self.came.get(place, 0) for other in self.blocks)

    def describe(self) -> str:
        missing = [place for place in self.blocks if self.came.get(place, 0) < max(self.came.values(), default=0)]
        return (
            f"{len(missing)} of {len(self.blocks)} blocks have not come, the first is {missing[0] if missing else '?'}"
        )


@dataclass(frozen=True)
class Meetings:
    """Which blocks of a kernel meet: `cluster` blocks along each axis of the grid (() : nobody does), or `all` of them."""

    cluster: Place
    all: bool

    @classmethod
    def of(cls, kernel: tile_ir.Kernel) -> Meetings:
        found = list(_operators(kernel.body))
        everybody = any(isinstance(op, GridSync) for op in found)
        among = any(
            isinstance(op, ClusterSync) or (isinstance(op, MbarrierArrive) and op.rank is not None) for op in found
        )
        sizes = [json.loads(op.settings)["dims"] for op in found if isinstance(op, Hint) and op.kind == "cluster_dims"]
        return cls(tuple(sizes[0]) if among and sizes else (), everybody)

    def groups(self, grid: Sequence[int]) -> Iterable[list[Place]]:
        """The places of a grid in groups that run together, the x coordinate fastest."""
        if self.all:
            return [places(grid)]
        if not self.cluster:
            return ([place] for place in places(grid))
        return (self._cluster(first) for first in places([n // d for n, d in zip(grid, self.cluster)]))

    def _cluster(self, number: Place) -> list[Place]:
        first = [n * d for n, d in zip(number, self.cluster)]
        return [tuple(f + o for f, o in zip(first, offset)) for offset in places(self.cluster)]

    def companies(self, blocks: dict[Place, Any]) -> Iterable[tuple[Place, dict[str, Company]]]:
        """Each block of a group, with those that it meets."""
        grid = Company(blocks)
        clusters: dict[Place, Company] = {}
        for place in blocks:
            found = {"grid": grid}
            if self.cluster:
                number = tuple(p // d for p, d in zip(place, self.cluster))
                if number not in clusters:
                    clusters[number] = Company({p: blocks[p] for p in self._cluster(number)})
                found["cluster"] = clusters[number]
            yield place, found


def places(extents: Sequence[int]) -> list[Place]:
    """All coordinates, x fastest."""
    return [p[::-1] for p in itertools.product(*(range(n) for n in reversed(extents)))]


def _operators(body: Any) -> Iterable[TileOp]:
    for node in tile_ir.walk(body, ir.Call):
        if str(getattr(node.op, "name", "")) in OPERATORS:
            yield parse(node)
