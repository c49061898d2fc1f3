"""A lowered function with one synchronization or predicate left out or weakened, for tests of whoever should notice."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import tvm_ffi
from tvm import ir
from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.rewrite import Rewriter, is_call, map_kernels
from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import BarrierMismatch, ProductUnderWay, SharedMemoryRace
from tilelang.ir import tile_ir

SYNCHRONIZATION = re.compile(
    r"tl::(sync_threads(<\d+, \d+>)?|sync_barrier|arrive_barrier|cp_async_wait<\d+>|cp_async_commit|wait_loads<\d+>"
    r"|mbarrier_\w+|cluster_sync|register_limit_\w+<\d+>|fence_\w+|wgmma_(wait<\d+>|commit|fence)"
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
        wait = re.fullmatch(r"(tl::\w*wait\w*)<(\d+)>", name)
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


# -- predicates -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predicate:
    """What guarded something: condition number `which` of a function, `was`, without `left_out` (all of it, or a conjunct)
    became `now`."""

    which: int
    was: Any
    left_out: Any
    now: Any

    def __str__(self) -> str:
        text = re.sub(r"\s+", " ", str(self.left_out)).strip().replace("T.", "")
        return f"predicate {self.which}: without {text}"


class _Condition:
    """Replaces the `which`-th condition of a kernel's body: of an `if`, a choice, a copy that fills with zeros."""

    def __init__(self, which: int, change: Callable[[Any], Any]) -> None:
        self.left, self.which, self.change = which, which, change
        self.was: Any = None

    def body(self, body: Any) -> Any:
        rules = [(tir.IfThenElse, self._branch), (prim.Select, self._select), (ir.Call, self._call)]
        return tvm_ffi.structural_map(body, rules)

    def _condition(self, condition: Any) -> Any:
        if isinstance(condition, prim.IntImm):  # it guards nothing
            return condition
        self.left -= 1
        if self.left != -1:
            return condition
        self.was = condition
        return self.change(condition)

    def _branch(self, node: Any) -> Any:
        new = self._condition(node.condition)
        if new.same_as(node.condition):
            return node
        return tir.IfThenElse(new, node.then_case, node.else_case, span=node.span)

    def _select(self, node: Any) -> Any:
        new = self._condition(node.condition)
        return node if new.same_as(node.condition) else prim.Select(new, node.true_value, node.false_value)

    def _call(self, node: Any) -> Any:
        if is_call(node, "prim.if_then_else", "tirx.if_then_else"):
            new = self._condition(node.args[0])
            return node if new.same_as(node.args[0]) else tir.if_then_else(new, *node.args[1:])
        if is_call(node, "tirx.call_extern") and str(node.args[0].value).startswith("tl::cp_async<"):
            new = self._condition(node.args[3])
            if not new.same_as(node.args[3]):
                return tir.call_extern("int32", *[*node.args[:3], new, *node.args[4:]])
        return node


def conditioned(func: Any, which: int, change: Callable[[Any], Any]) -> tuple[Any, Any]:
    """(the function with another condition number `which`, what it was; None where there are not so many)."""
    edit = _Condition(which, change)

    def rule(kernel: Any) -> Any:
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, edit.body(kernel.body), kernel.span)

    return map_kernels(func, rule), edit.was


def predicate_mutants(func: Any) -> Iterator[tuple[Any, Predicate]]:
    """Every mutant: each condition left out, and each conjunct of one."""
    true = tir.const(True, "bool")
    for which in itertools.count():
        mutant, was = conditioned(func, which, lambda _: true)
        if was is None:
            return
        yield mutant, Predicate(which, was, was, true)
        parts = _conjuncts(was)
        for part in parts if len(parts) > 1 else []:
            rest = functools.reduce(prim.And, [p for p in parts if p is not part])
            yield conditioned(func, which, lambda _, rest=rest: rest)[0], Predicate(which, was, part, rest)


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, prim.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def refuted(func: Any, ctx: SimtContext | None = None) -> bool:
    """Whether the compiler's checker finds a race."""
    try:
        check_synchronization(func, ctx or SimtContext())
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
