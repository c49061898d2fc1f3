"""A lowered function with one synchronization left out or weakened, for tests of whoever should notice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import Rewriter, map_kernels
from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import SharedMemoryRace
from tilelang.ir import tile_ir

SYNCHRONIZATION = re.compile(r"tl::(sync_threads|cp_async_wait<\d+>|cp_async_commit)")


@dataclass(frozen=True)
class Change:
    """What happened to synchronization number `which` of a function: `was` became `now` (nothing: left out)."""

    which: int
    was: str
    now: str


class _Edit(Rewriter):
    """Replaces the `which`-th synchronization call; `weaken` turns a wait into one for a group less."""

    def __init__(self, which: int, weaken: bool) -> None:
        self.left, self.which, self.weaken = which, which, weaken
        self.change: Change | None = None

    def evaluate(self, node: tir.Evaluate) -> Any:
        call = node.value
        if not (isinstance(call, ir.Call) and str(call.op.name) == "tirx.call_extern"):
            return node
        name = str(call.args[0].value)
        if not SYNCHRONIZATION.fullmatch(name):
            return node
        self.left -= 1
        if self.left != -1:
            return node
        wait = re.fullmatch(r"tl::cp_async_wait<(\d+)>", name)
        if not self.weaken:
            self.change = Change(self.which, name, "")
            return None
        if wait is None:
            self.change = Change(self.which, name, name)  # nothing weaker
            return node
        weaker = f"tl::cp_async_wait<{int(wait[1]) + 1}>"
        self.change = Change(self.which, name, weaker)
        return tir.Evaluate(tir.call_extern("int32", weaker), span=node.span)


def changed(func: Any, which: int, weaken: bool = False) -> tuple[Any, Change | None]:
    """The function with one call less, or with a weaker one; None where there are not so many."""
    edit = _Edit(which, weaken)

    def rule(kernel: Any) -> Any:
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, edit.body(kernel.body), kernel.span)

    return map_kernels(func, rule), edit.change


def mutants(func: Any) -> Iterator[tuple[Any, Change]]:
    """Every mutant of a function: each barrier, wait and commit left out, each wait weakened."""
    for weaken in (False, True):
        number = 0
        while True:
            mutant, change = changed(func, number, weaken)
            if change is None:
                break
            number += 1
            if change.was != change.now:
                yield mutant, change


def refuted(func: Any) -> bool:
    """Whether the compiler's checker finds a race."""
    try:
        check_synchronization(func, SimtContext())
    except SharedMemoryRace:
        return True
    return False


def all_needed(func: Any) -> int:
    """Every barrier and wait is needed; how many there are."""
    check_synchronization(func, SimtContext())
    count = 0
    for mutant, change in mutants(func):
        if change.now or change.was == "tl::cp_async_commit":
            continue
        with pytest.raises(SharedMemoryRace):
            check_synchronization(mutant, SimtContext())
        count += 1
    return count
