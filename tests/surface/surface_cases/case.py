"""What a case of the surface table is: the names it exercises, and a program with its reference.

    @case("T.reduce_max")
    def reduce_max():
        @T.prim_func
        def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4,), "float32")): ...
        a = floats(4, 8)
        return Program(main, [a], [a.max(1)])

A case that is no single kernel takes the mode and checks for itself:

    @case("tilelang.compile")
    def compile_a_function(mode): ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tilelang
from tilelang.ir.verify import verify
from tilelang.testing import assert_close

TRACES, INTERPRETER, CPU, CUDA = MODES = ("traces", "interpreter", "CPU", "CUDA")
EXECUTIONS = {INTERPRETER: "interpret", CPU: "device", CUDA: "emulate"}
TARGETS = {CUDA: "cuda -arch=sm_80"}  # every other mode: "cpu"


@dataclass(frozen=True)
class Program:
    """A `T.prim_func`, its arguments, and the values that its last parameters must have afterwards.

    Where `inputs` leaves out the last parameters they are outputs, which the call allocates.
    """

    func: Any
    inputs: Sequence[Any]
    want: Sequence[Any]
    rtol: float = 0.0
    atol: float = 0.0
    arch: str = "sm_80"  # of the mode CUDA

    def run(self, mode: str) -> None:
        """Trace, or run and compare with the reference."""
        verify(self.func)
        if mode == TRACES:
            return
        from tilelang.ir import signature

        count = len(signature.described(self.func))
        outputs = list(range(len(self.inputs), count))
        kernel = build(self.func, mode, out_idx=outputs or None, arch=self.arch)
        arguments = [x.copy() if isinstance(x, np.ndarray) else x for x in self.inputs]
        result = kernel(*arguments)
        if not outputs:
            got = arguments[count - len(self.want) :]
        else:
            got = list(result) if isinstance(result, (list, tuple)) else [result]
        assert len(got) == len(self.want)
        for have, want in zip(got, self.want):
            assert_close(have, want, rtol=self.rtol, atol=self.atol)


def build(func: Any, mode: str, arch: str = "sm_80", **options: Any) -> Any:
    """A kernel of the mode; `arch` is what CUDA means by it."""
    target = f"cuda -arch={arch}" if mode == CUDA else "cpu"
    return tilelang.compile(func, target=target, execution=EXECUTIONS[mode], **options)


def jit(mode: str, **options: Any) -> Callable[[Any], Any]:
    """`@tilelang.jit` for the mode; where only tracing is asked for, the interpreter's."""
    return tilelang.jit(target=TARGETS.get(mode, "cpu"), execution=EXECUTIONS.get(mode, "interpret"), **options)


def needs_compiler(mode: str) -> None:
    """Skip where text in C cannot become machine code: the CPU target compiles all the rest without a compiler."""
    if mode == CPU:
        from tile_compiler.targets.cpu.host_source import compiler

        if compiler() is None:
            pytest.skip("needs a C++ compiler")


@dataclass(frozen=True)
class Case:
    """One test of the table, in every mode for which no reason stands in `empty`."""

    family: str
    title: str
    names: tuple[str, ...]
    make: Callable[..., Any]
    empty: Mapping[str, str] = field(default_factory=dict)

    def run(self, mode: str) -> None:
        if inspect.signature(self.make).parameters:
            self.make(mode)
        else:
            self.make().run(mode)


CASES: list[Case] = []


def case(*names: str, empty: Mapping[str, str] | None = None, title: str | None = None) -> Callable[[Any], Any]:
    """Register a function as the case of some names; `empty` gives modes it cannot run in, and why."""

    def register(make: Any) -> Any:
        family = make.__module__.rpartition(".")[2]
        CASES.append(Case(family, title or make.__name__, names, make, dict(empty or {})))
        return make

    return register


# -- data: random, and never zero, so that a term left out shows -----------------------------------------------


def floats(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    """Magnitudes from 0.5 to 2 of both signs."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape)).astype(dtype)


def positive(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.abs(floats(*shape, dtype=dtype, seed=seed))


def ints(*shape: int, dtype: Any = np.int32, low: int = 1, high: int = 9, seed: int = 0) -> np.ndarray[Any, Any]:
    """Integers from low to high; of both signs where the type has them."""
    rng = np.random.default_rng([seed, *shape])
    values = rng.integers(low, high, shape, endpoint=True)
    if np.dtype(dtype).kind == "i":
        values = values * rng.choice([-1, 1], shape)
    return values.astype(dtype)
