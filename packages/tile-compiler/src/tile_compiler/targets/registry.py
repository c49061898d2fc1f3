"""Targets by name: entry points of the group `tile_compiler.targets`, and the one that comes with this package."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.errors import CompileError
from tile_runtime.entry_points import entry_points

GROUP = "tile_compiler.targets"
# Also found when the package runs from a source tree without installed metadata.
OWN = {"cpu": "tile_compiler.targets.cpu.plugin:TARGET"}


@dataclass(frozen=True)
class Built:
    """What a target makes of a lowered function.

    `binaries` are member files of the artifact: (name, kind, content). `launches` are manifest entries without grid
    and args, by kernel index; `texts` are further forms to look at (`llvm`); `resources` are registers and the like by
    symbol, for the manifest; `asm` writes the assembly, which costs a target as much as the binary.
    """

    binaries: list[tuple[str, str, bytes]]
    launches: dict[int, dict[str, Any]]
    target: dict[str, Any]
    texts: dict[str, str]
    resources: dict[str, dict[str, int]] = field(default_factory=dict)
    asm: Callable[[], str] | None = None
    min_driver: int | None = None  # the oldest driver that loads the binaries, in its own numbers


class TargetPlugin(Protocol):
    """A target: its passes, the facts that they need, and the step from lowered IR to a binary."""

    kind: str
    passes: tuple[tuple[str, Any], ...]

    def context(self, target: Any, options: Any) -> CompileContext:
        """The context of one compilation; `target` has `kind` and `arch`."""

    def build(self, func: tir.PrimFunc, signature: Any, ctx: CompileContext) -> Built:
        """Binary code for all kernels of a lowered function."""


def target(kind: str) -> TargetPlugin:
    """The plugin of a target kind; CompileError names those that exist."""
    places = {e.name: e.value for e in entry_points(GROUP)}
    places = {**OWN, **places}
    if kind not in places:
        raise CompileError(
            f"no compiler for target {kind!r}",
            found=f"targets {', '.join(sorted(places))}",
            repair="install the package that brings this target",
        )
    module, _, name = places[kind].partition(":")
    plugin: TargetPlugin = getattr(importlib.import_module(module), name)
    return plugin
