"""When the iterations of a loop do again what earlier ones did, so that the checker need not walk them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import depends
from tile_compiler.rewrite import is_call, substitute
from tile_compiler.simt.block_memory import orders
from tile_compiler.simt.statement_tree import BLOCK_BARRIERS
from tile_compiler.simt.thread_values import Unknown
from tilelang.ir import tile_ir

if TYPE_CHECKING:
    from tile_compiler.simt.loop_walks import LoopWalks

# How an expression depends on the loop variable k: not; by k modulo constants; as c * k + periodic; as a comparison of
# the latter with something fixed; in another way.
FIXED, PERIODIC, AFFINE, GUARD, OTHER = range(5)

_DECIDING = (tir.IfThenElse, tir.While, tir.For, tir.BufferStore, ir.TensorLoad, ir.Call)  # what is looked at in a loop
_ORDERED = ("LT", "LE", "GT", "GE")
_EQUAL = ("EQ", "NE")


class Repetition:
    """The proof that a loop's iterations repeat with a period P, and what it rests on.

    Let every index of shared memory in the body be fixed, periodic or affine in the loop's variable, and every
    condition fixed, periodic or a comparison of an affine expression (`regular`). P is the least common multiple of
    the moduli. Suppose the state before iteration i + P is the state before iteration i, and both touch the same places in the
    same order. Then no index has an affine part (it would have moved), so as long as no comparison changes its
    value, iteration i + P + j does what iteration i + j did, from the same state: what it can meet has been met. A
    comparison of an affine expression changes once at most, where bisection finds it. So iterations may be skipped in
    multiples of P up to the first change; the loop's last iterations, where guards of copies that run ahead fail, are
    walked again. If a condition is periodic, what stands under it appears in some of P iterations only, and all of
    them are compared.

    A condition that depends on the loop's variable in another way may be taken both ways in every iteration (`either`),
    like one that memory decides: more than can happen, and it repeats. Asynchronous copies and waits below it have to
    match others elsewhere, so such a one is not.

    A private variable that every iteration increases by the same (`counters`) is affine in the loop's variable, and as
    long as no condition compares it, only its remainders matter: so it counts as that variable does.
    """

    def __init__(
        self,
        loop: tir.For,
        is_quiet: Callable[[Any], bool],
        followed: Collection[Any],
        tracked: Collection[Any] = (),
        exactly: bool = False,
    ) -> None:
        """`followed`: the private arrays whose content is a part of the state; of others nothing is known anyway.

        `tracked`: the buffers of global memory of which the same holds. `exactly`: no condition is taken both ways.
        """
        self.tracked = tracked
        self.exactly = exactly
        self.either: list[Any] = []
        self.var = loop.loop_var
        self.followed = followed
        self.moduli: list[int] = []
        self.atoms: list[Any] = []
        self.periodic_conditions = False
        self.derived: dict[Any, Any]
        self.counters: set[Any]
        self.moving: set[Any]
        self.regular = True
        self._count(loop, [])
        self._count(loop, [n for n in tile_ir.walk(loop.body, tir.IfThenElse) if self._guards(n)])
        inner = {n.loop_var for n in tile_ir.walk(loop.body, tir.For)}
        for node in tile_ir.walk(loop.body, *_DECIDING):
            if not self.regular:
                return
            self._visit(node, is_quiet)
        if any(depends(a, inner | self.counters) for a in self.atoms):
            self.regular = False
        self.period = math.lcm(*self.moduli) if self.moduli else 1

    def _count(self, loop: tir.For, guards: Sequence[Any]) -> None:
        """Find what grows with the loop's variable; under `guards`, as long as these let it."""
        self.counters = set(_counters(loop, guards))
        self.moving = {self.var, *self.counters}
        self.derived = {}
        for node in tile_ir.walk(loop.body, tir.Bind):
            if depends(node.value, {*self.moving, *self.derived}):
                self.derived[node.var] = substitute(node.value, self.derived)

    def _guards(self, node: tir.IfThenElse) -> bool:
        """Whether a condition changes once at most: what stands under it is done in all iterations before, or after."""
        return self._tentative(node.condition) in (FIXED, GUARD)

    def _tentative(self, condition: Any) -> int:
        """The kind of a condition, of which nothing is kept."""
        moduli, atoms = list(self.moduli), list(self.atoms)
        kind = self._kind(condition)
        self.moduli, self.atoms = moduli, atoms
        return kind

    def _visit(self, node: Any, is_quiet: Callable[[Any], bool]) -> None:
        if isinstance(node, tir.IfThenElse) and not is_quiet(node) and self._is_either(node):
            self.either.append(node)
        elif isinstance(node, (tir.IfThenElse, tir.While)) and not is_quiet(node):
            self._condition(node.condition)
        elif is_call(node, "prim.if_then_else") and not is_quiet(node):
            self._condition(node.args[0])
        elif isinstance(node, tir.For) and not is_quiet(node):
            if max(self._kind(node.min), self._kind(node.extent)) > FIXED:
                self.regular = False
        elif isinstance(node, ir.TensorLoad) and not is_quiet(node):
            self._place(node.source, node.indices)
        elif is_call(node, "tirx.call_extern") and not is_quiet(node):
            self._call(str(node.args[0].value), node.args[1:])
        elif isinstance(node, tir.BufferStore) and node.buffer in self.counters:
            return
        elif isinstance(node, tir.BufferStore) and not is_quiet(node):
            self._place(node.buffer, node.indices)
            if node.buffer in self.followed and self._kind(node.value) > FIXED:
                self.regular = False

    def _call(self, name: str, arguments: Sequence[Any]) -> None:
        """The barriers that a call names, its parities, counts, bytes; coordinates of bulk copies are global memory's."""
        for argument in arguments:
            if is_call(argument, "tirx.address_of") and isinstance(argument.args[0], ir.TensorLoad):
                if str(argument.args[0].source.scope()) not in tile_ir.GLOBAL:
                    self._index(argument.args[0].indices)
            elif not name.startswith("tl::tma_") and isinstance(argument, ir.Expr):
                if name.startswith(("tl::mbarrier", "tl::wgmma_descriptor", "tl::bulk_")):
                    self._index([argument])

    def _place(self, buffer: Any, indices: Sequence[Any]) -> None:
        if str(buffer.scope()) not in tile_ir.GLOBAL or buffer in self.tracked:
            self._index(indices)

    def _index(self, indices: Sequence[Any]) -> None:
        if any(self._kind(i) > AFFINE for i in indices):
            self.regular = False

    def _condition(self, condition: Any) -> None:
        kind = self._kind(condition)
        if kind in (AFFINE, OTHER):
            self.regular = False
        self.periodic_conditions |= self._mixes(condition)

    def _is_either(self, node: tir.IfThenElse) -> bool:
        """Whether only both ways of a condition repeat."""
        calls = (str(n.args[0].value) for n in tile_ir.walk(node, ir.Call) if is_call(n, "tirx.call_extern"))
        if self.exactly or any(orders(name) and name not in BLOCK_BARRIERS for name in calls):
            return False
        return self._tentative(node.condition) in (AFFINE, OTHER)

    def _mixes(self, node: Any) -> bool:
        return any(type(n).__name__ == "FloorMod" and self._kind(n) > FIXED for n in tile_ir.walk(node))

    def _kind(self, node: Any) -> int:
        if not depends(node, {*self.moving, *self.derived}):
            return FIXED
        if isinstance(node, ir.TensorLoad) and node.source in self.counters:
            return AFFINE
        if isinstance(node, ir.Var):
            return AFFINE if node.same_as(self.var) else self._kind(self.derived[node])
        if isinstance(node, (ir.prim.Cast, ir.prim.Ramp, ir.prim.Broadcast)):
            return self._kind(node.base if isinstance(node, ir.prim.Ramp) else node.value)
        if isinstance(node, ir.prim.Not):
            return self._kind(node.a)
        if not (hasattr(node, "a") and hasattr(node, "b")):
            return OTHER
        return self._binary(node, self._kind(node.a), self._kind(node.b))

    def _binary(self, node: Any, a: int, b: int) -> int:
        name, most = type(node).__name__, max(a, b)
        remainder = _remainder(node)
        if remainder is not None:
            of, modulus = remainder
            if self._kind(of) <= AFFINE:
                self.moduli.append(modulus)
                return PERIODIC
        if most <= PERIODIC:
            return most
        if name in ("Add", "Sub") and most == AFFINE:
            return AFFINE
        if name == "Mul" and most == AFFINE and min(a, b) == FIXED:
            return AFFINE
        if name in (*_ORDERED, *_EQUAL) and most == AFFINE and not self._mixes(node):
            whole = substitute(node, self.derived)
            pair = (whole.a <= whole.b, whole.a >= whole.b) if name in _EQUAL else (whole,)
            self.atoms += pair
            return GUARD
        if name in ("And", "Or") and AFFINE not in (a, b) and OTHER not in (a, b):
            return GUARD
        return OTHER

    def advance(self, block: LoopWalks, before: dict[Any, Any], skipped: int) -> None:
        """Counters after iterations that were not walked; `before` is what they were an iteration ago."""
        for buffer, content in before.items():
            block.private[buffer] = block.private[buffer] + skipped * (block.private[buffer] - content)

    def skip(self, seen: Sequence[tuple[int, int]], number: int, extent: int, low: int, block: LoopWalks) -> int:
        """How many of the iterations from `number` on need not be walked.

        `seen` has (key of the state before, hash of the trace) of the iterations walked in sequence until now.
        """
        if not self.regular or extent - number < self.period or len(seen) <= self.period:
            return 0
        span = 2 * self.period - 1 if self.periodic_conditions else self.period
        pairs = range(self.period if self.periodic_conditions else 1)
        if len(seen) <= span or any(seen[-1 - j] != seen[-1 - j - self.period] for j in pairs):
            return 0
        change = min((self._change(atom, number - 1 - span, extent, low, block) for atom in self.atoms), default=extent)
        return max(0, change - number) // self.period * self.period

    def _change(self, atom: Any, start: int, extent: int, low: int, block: LoopWalks) -> int:
        """The first iteration after `start` in which a comparison has another value for some thread; else `extent`."""

        def at(number: int) -> Any:
            block.values[self.var] = np.asarray([low + number])
            return block.value(atom)

        try:
            first = at(start)
            if np.array_equal(at(extent - 1), first):
                return extent
            below, above = start, extent - 1
            while above - below > 1:
                middle = (below + above) // 2
                if np.array_equal(at(middle), first):
                    below = middle
                else:
                    above = middle
            return above
        except Unknown:  # memory decides too: both ways are walked in every iteration
            return extent


def _remainder(node: Any) -> tuple[Any, int] | None:
    """(expression, modulus) if a node repeats whenever the expression grows by the modulus."""
    name = type(node).__name__
    if not isinstance(getattr(node, "b", None), tir.IntImm):
        return None
    modulus = int(node.b.value)
    if name == "BitwiseAnd" and modulus >= 0 and modulus & (modulus + 1) == 0:
        modulus += 1
    elif name != "FloorMod":
        return None
    of = node.a
    while type(of).__name__ == "Cast":
        of = of.value
    if type(of).__name__ == "FloorDiv" and isinstance(of.b, tir.IntImm) and of.b.value > 0:
        return of.a, modulus * int(of.b.value)
    return of, modulus


def _counters(loop: tir.For, guards: Sequence[Any]) -> list[Any]:
    """Private integers that every iteration of a loop increases by what does not change in it, under `guards` at most."""
    steps: dict[Any, list[Any]] = {}
    for node in tile_ir.walk(loop.body, tir.BufferStore):
        if str(node.buffer.scope()) in tile_ir.PRIVATE:
            steps.setdefault(node.buffer, []).append(_step(node))
    inner = {n.loop_var for n in tile_ir.walk(loop.body, tir.For)}
    bound = {n.var for n in tile_ir.walk(loop.body, tir.Bind)}
    changing = {loop.loop_var, *inner, *bound, *steps}
    conditional = {
        n.buffer
        for c in tile_ir.walk(loop.body, tir.IfThenElse, tir.For, tir.While)
        if c not in guards and not (isinstance(c, tir.For) and tile_ir.static(c.extent) is not None)
        for n in tile_ir.walk(c, tir.BufferStore)
    }
    return [
        b
        for b, found in steps.items()
        if b not in conditional and all(s is not None and not depends(s, changing) for s in found)
    ]


def _step(node: tir.BufferStore) -> Any | None:
    """By how much a store increases a variable, if that is what it does."""
    size = tile_ir.static(node.buffer.ty.shape[0]) if len(node.buffer.ty.shape) == 1 else None
    value = node.value
    if size != 1 or type(value).__name__ != "Add":
        return None
    for one, other in ((value.a, value.b), (value.b, value.a)):
        if isinstance(one, ir.TensorLoad) and one.source.same_as(node.buffer):
            return other
    return None
