"""Python's collector rests during a compilation, and only then."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import tilelang.language as T
from tile_compiler.without_collections import without_collections


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    gc.enable()


def test_the_collector_rests_inside_and_works_again_after_an_error() -> None:
    seen = []

    @without_collections()
    def failing() -> None:
        seen.append(gc.isenabled())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert seen == [False]
    assert gc.isenabled()


def test_who_turned_it_off_keeps_it_off() -> None:
    gc.disable()
    with without_collections():
        pass
    assert not gc.isenabled()


def test_a_compilation_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    @T.prim_func
    def doubled(a: T.Tensor((64,), T.float32), b: T.Tensor((64,), T.float32)):
        with T.Kernel(1) as _:
            for i in T.Parallel(64):
                b[i] = a[i] * 2

    module = importlib.import_module("tile_compiler.compile")
    run_passes, seen = module.run_passes, []

    def spied(*arguments: Any) -> Any:
        seen.append(gc.isenabled())
        return run_passes(*arguments)

    monkeypatch.setattr(module, "run_passes", spied)
    module.compile(doubled, "cpu")
    assert seen == [False]
    assert gc.isenabled()
