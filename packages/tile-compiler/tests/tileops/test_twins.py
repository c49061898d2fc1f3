"""Every operator of the language has its lowering here, in the file of the same name."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tile_compiler.tileops import LOWERINGS, lowering_of
from tilelang import ops


@pytest.mark.parametrize("operator", [*ops.OPERATORS.values()], ids=lambda o: o.NAME)
def test_operator_has_a_twin(operator: type[ops.TileOp]) -> None:
    home = operator.__module__.rpartition(".")[2]
    if not operator.__module__.startswith("tilelang.ops."):
        pytest.skip("an operator of a test")
    twin = importlib.import_module(f"tile_compiler.tileops.{home}")
    assert LOWERINGS[operator].__module__ == twin.__name__


def test_a_derived_operator_takes_its_base_lowering() -> None:
    @dataclass(frozen=True)
    class Mine(ops.Copy):
        NAME: ClassVar[str] = "tl.mine"

    fill: Any = ops.Fill
    assert lowering_of(Mine(None, None)) is LOWERINGS[ops.Copy]
    assert lowering_of(fill(None, None)) is LOWERINGS[fill]
    assert lowering_of(ops.TileOp()) is None
