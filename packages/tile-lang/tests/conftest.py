"""Fixtures of the language's tests: run a kernel where no compiler is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def interpret() -> Callable[..., Any]:
    """`interpret(func, *arguments)`: run a T.prim_func in the interpreter, in place; the last argument comes back."""

    def call(func: Any, *arguments: Any) -> Any:
        import tilelang

        tilelang.compile(func, execution="interpret")(*arguments)
        return arguments[-1]

    return call
