"""A space of configurations that the model thins out: all products of some lists, of which the best few are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilelang.autotuner.configurations import Config, product
from tilelang.errors import BadConfigurations

_TILE = (16, 32, 64, 128, 256)
_DEPTH = (32, 64, 128)
#: What parameters of a kernel usually are, by the end or part of their names, lower case.
_USUAL: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...] = (
    (("block_k", "block_size_k", "bk", "tile_k"), _DEPTH),
    (("stages", "num_stages"), (0, 2, 3, 4)),
    (("threads", "num_threads", "thread_num"), (128, 256)),
    (("rasteration", "rasterization", "swizzle"), (False, True)),
    (("block_m", "block_n", "block_size_m", "block_size_n", "bm", "bn", "tile_m", "tile_n", "block"), _TILE),
)


@dataclass(frozen=True)
class Space:
    """`configs=Space(keep=12)`: of all products of the parameters' values, the `keep` that the model thinks fastest.

    `values` lists what a parameter may be; parameters without a list get the usual values of their names (block_M: 16 to
    256, block_K: 32 to 128, num_stages: 0 to 4, threads: 128 and 256, enable_rasterization: both). Only parameters of
    the tuned function with a default (or None) count, and of these only those that a call leaves out.
    """

    values: dict[str, Sequence[Any]] = field(default_factory=dict)
    keep: int = 16

    def configs(self, free: Sequence[str]) -> list[Config]:
        """All products over the parameters that are `free`. BadConfigurations where nothing is known of any."""
        lists = {name: list(self.values.get(name) or usual(name) or ()) for name in free}
        lists = {name: values for name, values in lists.items() if values}
        missing = [name for name in self.values if name not in free]
        if missing or not lists:
            raise BadConfigurations(
                f"the space has no parameter {missing[0]!r} to vary" if missing else "the space has nothing to vary",
                found=f"parameters that the call leaves open: {', '.join(free) or 'none'}",
                expected="parameters with defaults, named as usual (block_M, block_N, block_K, num_stages, threads)",
                repair='give their values: Space({"rows": [32, 64, 128]})',
            )
        return product(lists)


def usual(name: str) -> tuple[Any, ...] | None:
    """The values that a parameter of this name usually takes."""
    lower = name.lower()
    return next((values for endings, values in _USUAL if lower.endswith(endings)), None)
