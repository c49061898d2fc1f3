"""Fixtures: the interpreter's answer, and that of the threads after every pass."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tile_compiler.inspect import Trace
from tile_compiler.simt.context import SimtContext
from tilelang import interpreter

sys.path.insert(0, str(Path(__file__).parent))

import threads
from device_texts import copies, launched, lowered


def agrees(
    func: Any,
    args: Sequence[Any],
    rtol: float = 1e-5,
    atol: float = 1e-5,
    arch: str = "sm_80",
    passes: bool = True,
    options: Any = None,
    every: bool = False,
) -> tuple[Trace, SimtContext]:
    """The block's threads compute what the interpreter defines: at the end, and with `passes` after every pass.

    The passes between are run where `every` says so, or to find the one that is to blame for a wrong end.
    """
    want = copies(args)
    interpreter.run(func, want)
    trace, ctx = lowered(func, arch, options)
    threads_from = [s.name for s in trace.steps].index("plan_pipeline")

    def compare(number: int) -> None:
        step = trace.steps[number]
        got = copies(args)
        if number < threads_from:
            interpreter.run(step.after, got)
        else:
            threads.run(step.after, got)
        for index, (g, w) in enumerate(zip(got, want)):
            if isinstance(w, np.ndarray):
                wide = w.dtype if w.dtype.kind in "iub" else np.dtype("float64")
                np.testing.assert_allclose(
                    g.astype(wide), w.astype(wide), rtol, atol, err_msg=f"after {step.name}: argument {index}"
                )

    last = len(trace.steps) - 1
    try:
        compare(last)
    except AssertionError:
        every = passes = True
    if every and passes:
        for number, step in enumerate(trace.steps):
            if step.changed or number == last:
                compare(number)
    return trace, ctx


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Callable[..., tuple[Trace, SimtContext]]:
    """`check(func, args, rtol, atol, arch, passes, options)`: see `agrees`; after every pass in whole runs (--full)."""
    return functools.partial(agrees, every=request.config.getoption("--full"))


@pytest.fixture
def check_each_pass() -> Callable[..., tuple[Trace, SimtContext]]:
    """As `check`, after every pass in any run."""
    return functools.partial(agrees, every=True)


@pytest.fixture
def lower() -> Callable[..., tuple[Trace, SimtContext]]:
    """`lower(func, arch)`: see `lowered`."""
    return lowered


@pytest.fixture
def proved(check: Callable[..., tuple[Trace, SimtContext]]) -> Callable[..., tuple[Trace, SimtContext]]:
    """As `check`; then the emulator runs the text, copies early and late, and agrees too."""

    def run(
        func: Any,
        args: Sequence[Any],
        rtol: float = 1e-5,
        atol: float = 1e-5,
        arch: str = "sm_80",
        passes: bool = True,
        **more: Any,
    ) -> tuple[Trace, SimtContext]:
        trace, ctx = check(func, args, rtol, atol, arch, passes, **more)
        want = copies(args)
        interpreter.run(func, want)
        for mode, seed in (("early", 0), ("late", 1)):
            got = launched(func, trace.steps[-1].after, ctx, args, mode, seed)
            for g, w in zip(got, want):
                if isinstance(w, np.ndarray):
                    wide = w.dtype if w.dtype.kind in "iub" else np.dtype("float64")
                    np.testing.assert_allclose(g.astype(wide), w.astype(wide), rtol, atol, err_msg=mode)
        return trace, ctx

    return run
