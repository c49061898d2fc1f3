"""Operators: how a call becomes a problem, a problem a plan, and how both are explained.

api.py       the public function; hands its arguments to a torch.library operator
problem.py   the call as a frozen value: dtypes, shapes, flags; refuses what is wrong
configs.py   (problem, target) -> Plan: which kernels, with which tiles, and why
kernels.py   the kernels, in tile language
reference.py the slow, obvious version
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar

import torch

from .again import hidden, launched
from .autocast import Rule, converted, enabled, unread
from .errors import WrongDevice, WrongStride
from .kernel import KernelSpec, Resolved, Target, resolve
from .kernel.resolve import loaded, origin
from .kernel.target import settings
from .operands import refuse_other_types

#: Calls of an operator that are remembered; with one more all are forgotten, and worked out again.
CALLS = 4096
#: Elements: what problems ask of the place where a tensor begins in its storage.
ALIGNMENT = 16

P = TypeVar("P")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Plan:
    """Kernels of a call by their role, the reason for the choice, and numbers that the call needs (splits, tiles).

    `source` is where the choice comes from: the table's row, or the rule that made it.
    """

    kernels: tuple[tuple[str, KernelSpec], ...]
    why: str
    source: str
    numbers: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, kernels: Mapping[str, KernelSpec], why: str, source: str, **numbers: int) -> Plan:
        return cls(tuple(kernels.items()), why, source, tuple(numbers.items()))


class Call(Generic[P]):
    """What calls on tensors of the same shapes, strides and types share: `call["forward"](q, k, v, out)`,
    `call.numbers["splits"]`.

    Kernels are loaded when the first one is asked for; that raises KernelUnavailable. `kept` is for what else a family
    works out once.
    """

    #: Bytes: what addresses must be multiples of for a prepared kernel, whose variant is the one of the first call.
    ALIGNMENT = 16
    #: Kernels that are prepared, for each role and its numbers.
    MOST = 64

    def __init__(self, operator: Operator[P], problem: P, target: Target) -> None:
        self._operator = operator
        self.problem = problem
        self.target = target
        self.kept: dict[str, Any] = {}
        self._prepared: dict[tuple[str, tuple[Any, ...]], Resolved | None] = {}

    def __getitem__(self, role: str) -> Resolved:
        return self._kernels[role]

    def __contains__(self, role: str) -> bool:
        return role in self._kernels

    def run(
        self,
        role: str,
        *tensors: torch.Tensor | None,
        numbers: tuple[Any, ...] = (),
        views: Callable[..., tuple[torch.Tensor | None, ...]] | None = None,
    ) -> None:
        """`self[role](*views(*tensors), *numbers)`, where shapes, strides and types are those of every such call.

        The second one with these numbers prepares the kernel for those behind it, which look at nothing but addresses.
        """
        aligned = True
        for x in tensors:
            if x is not None and x.data_ptr() % self.ALIGNMENT:
                aligned = False
        key = (role, numbers)
        known = self._prepared.get(key)
        if known is not None and aligned:
            known(*tensors)
            launched(known, *tensors)
            return
        arguments = (*(tensors if views is None else views(*tensors)), *numbers)
        if aligned and key in self._prepared:
            prepared = self._prepared[key] = self[role].prepared(*arguments)
            launched(prepared, *tensors)
        else:
            hidden()
        self[role](*arguments)
        if aligned:
            if len(self._prepared) >= self.MOST:
                self._prepared.clear()
            self._prepared.setdefault(key, None)

    @cached_property
    def numbers(self) -> dict[str, int]:
        return dict(self._operator.plan(self.problem, self.target).numbers)

    @cached_property
    def _kernels(self) -> dict[str, Resolved]:
        plan = self._operator.plan(self.problem, self.target)
        return {role: resolve(spec, self.target) for role, spec in plan.kernels}


@dataclass(frozen=True)
class KernelExplanation:
    """One kernel of a call: its spec, where it comes from ("prebuilt", "cache", "compile"), how often it has run."""

    role: str
    spec: KernelSpec
    origin: str
    reason: str
    launches: int


@dataclass(frozen=True)
class Explanation:
    """What a call would run."""

    operator: str
    target: Target
    problem: Any
    why: str
    source: str
    kernels: tuple[KernelExplanation, ...]

    @property
    def launches(self) -> int:
        """How often kernels of this plan have run in this process."""
        return sum(kernel.launches for kernel in self.kernels)

    def __str__(self) -> str:
        lines = [f"{self.operator} on {self.target}: {self.why} ({self.source})"]
        lines += [f"  {k.role}: {k.spec}, from {k.origin} ({k.reason})" for k in self.kernels]
        return "\n".join(lines)


class Operator(Generic[P]):
    """`problem(*args)` takes what the public function takes and refuses what it cannot do; `plan(problem, target)`
    is pure. `target(*args)` names the target. `depends(*args)` are settings outside of the arguments that the problem
    depends on. `autocast` is what the public function makes of its operands there, None for nothing.

    Attach it to the public function with `@OPERATOR.public`: then `tile_ops.explain(function, *args)` knows it.
    """

    def __init__(
        self,
        name: str,
        problem: Callable[..., P],
        plan: Callable[[P, Target], Plan],
        target: Callable[..., Target],
        depends: Callable[..., Hashable] | None = None,
        autocast: Rule | None = None,
    ) -> None:
        self.name = name
        self.problem = problem
        self.plan = lru_cache(maxsize=CALLS)(plan)
        self.target = target
        self.depends = depends
        self.autocast = autocast
        self._calls: dict[tuple[Any, ...], Call[P]] = {}

    def call(self, *args: Any, **kwargs: Any) -> Call[P]:
        """The call, checked; for arguments of which nothing but the content is new, the one of before. The first one is
        a tensor. Raises what `problem` and `target` raise."""
        facts: list[Any] = []
        try:
            for x in (*args, *kwargs.values()):
                if isinstance(x, torch.Tensor):  # everything but its content and its address
                    facts += (x.dtype, x.shape, x.stride(), x.storage_offset() % ALIGNMENT, x.device)
                else:
                    facts.append(x)
            if args[0].is_cpu:
                facts.append(settings())
            if self.depends is not None:
                facts.append(self.depends(*args, **kwargs))
            key = (*facts, *kwargs)
            found = self._calls.get(key)
        except (AttributeError, RuntimeError, TypeError):  # some layouts have no strides, a list no hash
            self._refuse_other_operands(args, kwargs)
            raise
        if found is None:
            found = Call(self, *self._checked(args, kwargs))
            if len(self._calls) >= CALLS:
                self._calls.clear()
            self._calls[key] = found
        return found

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[P, Target]:
        self._refuse_other_operands(args, kwargs)
        problem = self.problem(*args, **kwargs)
        try:
            return problem, self.target(*args, **kwargs)
        except WrongDevice as error:
            raise WrongDevice(f"{self.name}: {error}") from None

    def _refuse_other_operands(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Than dense tensors."""
        refuse_other_types(self.name, self.problem, args, kwargs)
        for x in (*args, *kwargs.values()):
            if isinstance(x, torch.Tensor) and x.layout != torch.strided:
                named = inspect.signature(self.problem).bind(*args, **kwargs).arguments
                name = next(name for name, value in named.items() if value is x)
                raise WrongStride(
                    f"{self.name}: {name} has the layout {x.layout}; a dense tensor is expected: {name}.to_dense()"
                )

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """What the call would run; launches and compiles nothing."""
        problem, target = self._checked(args, kwargs)
        plan = self.plan(problem, target)
        kernels = []
        for role, spec in plan.kernels:
            known = loaded(spec, target)
            kernels.append(KernelExplanation(role, spec, *origin(spec, target), known.launches if known else 0))
        return Explanation(self.name, target, problem, plan.why, plan.source, tuple(kernels))

    def public(self, function: F) -> F:
        """Marks `function` as the operator's public form."""
        _OPERATORS[function] = (self, inspect.signature(function))
        return function


_OPERATORS: dict[Callable[..., Any], tuple[Operator[Any], inspect.Signature]] = {}


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Which kernels `function(*args, **kwargs)` would run, from where (prebuilt, cache, compile) and why.

    Under autocast it is the call on the operands that autocast converts. Runs nothing. Raises what the call itself would raise,
    and TypeError for a function that is no operator.
    """
    try:
        operator, signature = _OPERATORS[function]
    except (KeyError, TypeError):
        names = ", ".join(sorted(f.__name__ for f in _OPERATORS))
        raise TypeError(f"{function!r} is no operator of tile_ops; these are: {names}") from None
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    device = next((x.device.type for x in bound.arguments.values() if isinstance(x, torch.Tensor)), "")
    if operator.autocast is None or not enabled(device):
        return operator.explain(**bound.arguments)
    return operator.explain(**converted(operator.autocast, bound.arguments, device, unread))
