"""The registry: every operator of the language has both halves, and the passes know none of them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from tile_compiler import tileops
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.passes import lower_tile_ops
from tile_compiler.simt import expand_tiles, infer_layouts, lower_operators
from tile_compiler.simt.operators import registry
from tilelang import ops

OPERATORS = sorted((c for c in vars(ops).values() if inspect.isclass(c) and c in ops.OPERATORS.values()), key=str)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda c: c.NAME)
def test_every_operator_has_both_twins(operator: type[ops.TileOp]) -> None:
    assert operator in tileops.LOWERINGS, "no lowering for the CPU"
    twin = registry.TWINS[operator]
    assert twin.expand is not None or twin.lower is not None, "nothing is done on a GPU"
    assert twin.rule is None or twin.lower is not None, "a layout rule without a lowering"


def test_the_walk_sees_the_operators() -> None:
    assert {"tl.copy", "tl.gemm", "tl.reduce", "tl.scan", "tl.print", "tl.import_source"} <= {c.NAME for c in OPERATORS}


@pytest.mark.parametrize("module", [expand_tiles, infer_layouts, lower_operators, lower_tile_ops])
def test_passes_know_no_operator(module: ModuleType) -> None:
    source = Path(module.__file__ or "").read_text()
    assert set(re.findall(r"\bops\.([A-Z]\w+)", source)) <= {"TileOp", "OPERATORS"}
    assert not re.search(r'"tl\.(copy|gemm|reduce|scan|fill|atomic|print|sync_threads|hint)"', source)


def test_subclasses_use_the_twin_of_their_base() -> None:
    class Special(ops.Reduce):
        NAME = "tl.special_reduce"

    assert registry.twin_of(Special(None, None)) is registry.TWINS[ops.Reduce]


def test_an_operator_without_a_twin_is_an_error_that_says_how_to_add_one() -> None:
    class Unheard(ops.TileOp):
        NAME = "tl.unheard"

    with pytest.raises(UnsupportedOnTarget, match=r"registry.register\(Unheard, Twin"):
        registry.twin_of(Unheard())
