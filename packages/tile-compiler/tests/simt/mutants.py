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
from tile_compiler.simt.errors import BarrierMismatch, ProductUnderWay, SharedMemoryRace
from tilelang.ir import tile_ir

SYNCHRONIZATION = re.compile(
    r"tl::(sync_threads|cp_async_wait<\d+>|cp_async_commit|mbarrier_\w+|fence_\w+|wgmma_(wait<\d+>|commit|fence)"
    r"|bulk_(commit|wait<\d+>|wait_read<\d+>))"
)


@dataclass(frozen=True)
class Change:
    """What happened to synchronization number `which` of a function: `was` became `now` (nothing: left out)."""

    which: int
    was: str
    now: str


class _Edit(Rewriter):
    """Replaces the `which`-th synchronization call; `weaken` turns a wait into one for a group less or another phase,
    and lets a barrier expect fewer bytes."""

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
        now = self._weaker(name, list(call.args[1:])) if self.weaken else None
        self.change = Change(self.which, name, "" if now is None else str(now.args[0].value))
        if self.weaken and now is None:
            self.change = Change(self.which, name, name)  # nothing weaker
            return node
        if now is None:
            return None
        arguments = "" if name != self.change.now else " with another argument"
        self.change = Change(self.which, name, self.change.now + arguments)
        return tir.Evaluate(now, span=node.span)

    @staticmethod
    def _weaker(name: str, arguments: list[Any]) -> Any | None:
        """The call that asks for less; None: there is none."""
        wait = re.fullmatch(r"(tl::\w+_wait(?:_read)?)<(\d+)>", name)
        if wait is not None:
            return tir.call_extern("int32", f"{wait[1]}<{int(wait[2]) + 1}>")
        if name == "tl::mbarrier_wait":
            return tir.call_extern("int32", name, arguments[0], tir.bitwise_xor(arguments[1], 1))
        if name.startswith("tl::mbarrier") and name.endswith("expect_tx"):
            return tir.call_extern("int32", name, arguments[0], arguments[1] - 16)
        return None


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
    except (SharedMemoryRace, BarrierMismatch, ProductUnderWay):
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
