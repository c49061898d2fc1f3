"""`T.use_swizzle`: the new numbers of blocks are a permutation of the old ones, panel by panel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from panel_kernels import BX, BY, numbers, scale, scale_planes
from tvm import ir
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler.simt.rasterize_grid import Panels, clustered
from tilelang.ir import tile_ir

M, N = T.dynamic("M"), T.dynamic("N")


@given(
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    size=st.integers(1, 50),
    order=st.sampled_from(["row", "column"]),
)
@settings(max_examples=200, deadline=None)
def test_each_block_runs_once(width: int, height: int, size: int, order: str) -> None:
    found = {(int(x), int(y)) for x, y in numbers(width, height, Panels(size, order))}
    assert found == {(x, y) for x in range(width) for y in range(height)}


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize(("width", "height"), [(5, 12), (12, 4), (8, 8), (3, 5)])
def test_a_grid_of_whole_panels_is_walked_in_the_same_order_with_constants(width: int, height: int, order: str) -> None:
    """Known sizes: where panels divide the grid, no division by what is left of it."""
    panels, sizes = Panels(4, order), (tir.const(width, "int32"), tir.const(height, "int32"))
    np.testing.assert_array_equal(numbers(width, height, panels, sizes=sizes), numbers(width, height, panels))
    made = clustered(BX, BY, *sizes, panels, (1, 1))
    nodes = [n for e in made for n in tile_ir.walk(tir.Evaluate(e))]
    whole = (height if order == "row" else width) % 4 == 0
    assert any(isinstance(n, (ir.prim.Max, ir.prim.Min)) for n in nodes) is not whole


def test_blocks_walk_along_panels() -> None:
    by_rows = numbers(3, 4, Panels(2, "row")).tolist()
    assert by_rows[:6] == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    assert by_rows[6:] == [[2, 2], [2, 3], [1, 2], [1, 3], [0, 2], [0, 3]]
    by_columns = numbers(4, 3, Panels(2, "column")).tolist()
    assert by_columns[:6] == [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]]


@pytest.mark.parametrize("order", ["row", "column", "mlx"])
@pytest.mark.parametrize("make", [scale, scale_planes])
@pytest.mark.parametrize("dynamic", [False, True])
def test_order_changes_no_result(rng: Any, proved: Any, order: str, make: Any, dynamic: bool) -> None:
    shape = (27, 130) if make is scale else (2, 27, 130)
    args = [rng.standard_normal(shape).astype("float32"), np.zeros(shape, "float32")]
    func = make(M, N, order) if dynamic else make(27, 130, order)
    _, ctx = proved(func, args, passes=False)
    assert any("blocks run in panels of 3, by" in text for _, text in ctx.report.notes)


def test_bounds_are_still_proved(lower: Any) -> None:
    """A grid that fits its tiles needs no predicate, renumbered or not."""
    trace, _ = lower(scale(16, 128, "row"))
    assert not any(isinstance(node, tir.IfThenElse) for node in tile_ir.walk(trace.steps[-1].after.body))


def test_grid_of_one_axis_keeps_its_order(lower: Any) -> None:
    @T.prim_func
    def copy(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(2, threads=128) as bx:
            T.use_swizzle(4)
            T.copy(A[bx * 128], B[bx * 128 : bx * 128 + 128])

    _, ctx = lower(copy)
    assert any("no effect on a grid of one axis" in text for _, text in ctx.report.notes)
