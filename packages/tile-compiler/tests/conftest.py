"""Fixtures: golden texts, and "the same answer before and after"."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tile_compiler.compile import LoweredModule, compile, lower
from tile_runtime import registry
from tilelang import interpreter

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden(request: Any) -> Any:
    """`golden(text)`: compare with golden/<test file>/<test name>.txt; a missing file fails."""
    folder = GOLDEN / Path(request.node.fspath).stem.removeprefix("test_")
    path = folder / f"{request.node.name.removeprefix('test_')}.txt"

    def check(text: str) -> None:
        text = text.rstrip() + "\n"
        if request.config.getoption("--update-golden"):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"no golden file {path.name}: run pytest --update-golden and read what it wrote"
        assert text == path.read_text()

    return check


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _copies(args: Sequence[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def interpreted(func: Any, args: Sequence[Any]) -> list[Any]:
    """The arguments after the interpreter ran the function."""
    work = _copies(args)
    interpreter.run(func, work)
    return work


def passes_agree(func: Any, args: Sequence[Any], rtol: float = 1e-5, atol: float = 1e-5) -> LoweredModule:
    """The interpreter gives the same answer after every pass; returns the lowered module."""
    module = lower(func, "cpu")
    want = interpreted(func, args)
    for step in module.trace.steps:
        if step.changed:
            _compare(interpreted(step.after, args), want, f"after {step.name}", rtol, atol)
    return module


def compiled(func: Any, args: Sequence[Any]) -> list[Any]:
    """The arguments after the machine code ran."""
    work = _copies(args)
    registry.device("cpu").load(compile(func, "cpu"))(*work)
    return work


def all_agree(
    func: Any, args: Sequence[Any], rtol: float = 1e-5, atol: float = 1e-5, passes: bool = True, every: bool = False
) -> list[Any]:
    """The interpreter and the machine code agree, and with `passes` what is there after every pass; the answer.

    The passes are run where `every` says so, or to find the one that is to blame for a wrong answer.
    """
    got = compiled(func, args)
    try:
        _compare(got, interpreted(func, args), "machine code", rtol, atol)
    except AssertionError:
        passes_agree(func, args, rtol, atol)
        raise
    if passes and every:
        passes_agree(func, args, rtol, atol)
    return got


def _compare(got: Sequence[Any], want: Sequence[Any], what: str, rtol: float, atol: float) -> None:
    for index, (g, w) in enumerate(zip(got, want)):
        if isinstance(w, np.ndarray):
            wide = w.dtype if w.dtype.kind in "iub" else np.dtype("float64")
            np.testing.assert_allclose(
                g.astype(wide), w.astype(wide), rtol=rtol, atol=atol, err_msg=f"{what}: argument {index}"
            )


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    """`check(func, args, rtol, atol, passes)`: see `all_agree`; after every pass in whole runs (--full)."""
    return functools.partial(all_agree, every=request.config.getoption("--full"))


@pytest.fixture
def check_passes() -> Callable[..., LoweredModule]:
    """`check_passes(func, args)`: see `passes_agree`."""
    return passes_agree


@pytest.fixture
def run_compiled() -> Callable[..., list[Any]]:
    """`run_compiled(func, args)`: see `compiled`."""
    return compiled
