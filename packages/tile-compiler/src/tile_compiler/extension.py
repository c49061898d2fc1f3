"""For extending the language: how tile operators and reductions of your own are done (docs/tutorial/07-extending.md).

`tilelang.extension` is the half that says what they mean. This module gathers what a lowering needs and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tile_compiler.simt.distribution import Distribution, linear, of_fragment, replicated
from tile_compiler.simt.layout.equations import Level, Rule, Unknown
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.copy import move
from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.nests import (
    call,
    int32,
    load,
    local,
    nest,
    run,
    serial,
    store,
    under,
    unrolled,
    whole_fragment,
)
from tile_compiler.simt.operators.registry import register
from tile_compiler.simt.operators.twin import RuleSite, Twin
from tile_compiler.tileops import LOWERINGS
from tile_compiler.tileops.combine import ADDED, Combine
from tile_compiler.tileops.site import Site, at, cast, element_type
from tilelang import fingerprint
from tilelang.ops import TileOp

__all__ = [
    "Combine",
    "Distribution",
    "Expansion",
    "Level",
    "Lowering",
    "Rule",
    "RuleSite",
    "Site",
    "Twin",
    "Unknown",
    "at",
    "call",
    "cast",
    "element_type",
    "int32",
    "linear",
    "load",
    "local",
    "move",
    "nest",
    "of_fragment",
    "register_operator",
    "register_reduction",
    "replicated",
    "run",
    "serial",
    "store",
    "under",
    "unrolled",
    "whole_fragment",
]


def register_operator(
    operator: type[TileOp], *, gpu: Twin | None = None, cpu: Callable[[Any, Site], Any] | None = None
) -> None:
    """Say how an operator is done: `gpu` on CUDA and HIP, `cpu(op, site)` as loops over elements for the CPU.

    A target without its half refuses kernels that use the operator.
    """
    if gpu is not None:
        fingerprint.depends_on(*(f for f in (gpu.expand, gpu.rule, gpu.lower) if f is not None))
        register(operator, gpu)
    if cpu is not None:
        fingerprint.depends_on(cpu)
        LOWERINGS[operator] = cpu


def register_reduction(name: str, combine: Callable[[str, str], Combine]) -> None:
    """Say how partial results of a reduction combine: `combine(accumulator type, result type)`, for all targets."""
    fingerprint.depends_on(combine)
    ADDED[name] = combine
