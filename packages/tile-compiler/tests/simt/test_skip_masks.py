"""Tiles are masked where their mask has an edge, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import ir
from tvm import tirx as tir
from tvm.sym import Analyzer

import tilelang.language as T
from tilelang.ir import tile_ir

ROWS, COLUMNS, TILE = 40, 70, 16
rows, columns = T.dynamic("rows"), T.dynamic("columns")


def masked(mask: Callable[..., Any], other: float = -1.0) -> Any:
    """A with `other` where mask(row, column, columns) does not hold, tile by tile."""

    @T.prim_func
    def main(A: T.Tensor((rows, columns), "float32"), C: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(rows, TILE), threads=32) as bx:
            tile = T.alloc_fragment((TILE, TILE), "float32")
            for k in T.serial(T.ceildiv(columns, TILE)):
                T.copy(A[bx * TILE, k * TILE], tile)
                for i, j in T.Parallel(TILE, TILE):
                    tile[i, j] = T.if_then_else(mask(bx * TILE + i, k * TILE + j, columns), tile[i, j], other)
                T.copy(tile, C[bx * TILE, k * TILE])

    return main


MASKS = {
    "causal": lambda q, k, size: k <= q,
    "strictly": lambda q, k, size: q > k,
    "the end": lambda q, k, size: k < size - 3,
}


def skipped(trace: Any) -> list[Any]:
    """The conditions of the branches that the pass has put around nests."""
    after = next(s.after for s in trace.steps if s.name == "skip_masks")
    found = [n for n in tile_ir.walk(after.body, tir.IfThenElse) if isinstance(n.then_case, tir.For)]
    return [n.condition for n in found]


@pytest.mark.parametrize("name", MASKS)
def test_only_edges_are_masked(rng: Any, proved: Any, name: str) -> None:
    a, c = rng.standard_normal((ROWS, COLUMNS)).astype("float32"), np.zeros((ROWS, COLUMNS), "float32")
    trace, _ = proved(masked(MASKS[name]), [a, c])
    (condition,) = skipped(trace)
    for block in range(3):
        for k in range(5):
            q, column = np.ogrid[block * TILE : (block + 1) * TILE, k * TILE : (k + 1) * TILE]
            seen = {
                "causal": column <= q,
                "strictly": q > column,
                "the end": (column < COLUMNS - 3) & (q >= 0),
            }[name]
            assert asked(condition, {"bx": block, "k": k, "columns": COLUMNS}) == (not seen.all()), (block, k)


def asked(condition: Any, values: dict[str, int]) -> bool:
    """Whether the nest runs for these values of the kernel's variables."""
    names = {n: tir.const(values[str(n.name)], str(n.ty)) for n in tile_ir.walk(condition, ir.Var)}
    return bool(Analyzer().simplify(tile_ir.substitute(condition, names)))


@pytest.mark.parametrize(
    "mask",
    [
        lambda q, k, size: (q + k) % 2 == 0,
        lambda q, k, size: q * k < 100,
        lambda q, k, size: T.cast(k, "float32") * 0.1 < 4.0,
    ],
    ids=["every other", "no line", "rounded"],
)
def test_other_masks_ask_each_element(rng: Any, proved: Any, mask: Any) -> None:
    a, c = rng.standard_normal((ROWS, COLUMNS)).astype("float32"), np.zeros((ROWS, COLUMNS), "float32")
    trace, _ = proved(masked(mask), [a, c], passes=False)
    assert skipped(trace) == []


def window(asks: bool) -> Any:
    """A band of A, and -1 outside of it; with `asks` where a tile leaves the band, as the user knows."""

    @T.prim_func
    def main(A: T.Tensor((rows, columns), "float32"), C: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(rows, TILE), threads=32) as bx:
            tile = T.alloc_fragment((TILE, TILE), "float32")
            for k in T.serial(T.ceildiv(columns, TILE)):
                T.copy(A[bx * TILE, k * TILE], tile)
                if asks:
                    if k != bx:
                        for i, j in T.Parallel(TILE, TILE):
                            seen = k * TILE + j <= bx * TILE + i + 15 and k * TILE + j + 20 >= bx * TILE + i
                            tile[i, j] = T.if_then_else(seen, tile[i, j], -1.0)
                else:
                    for i, j in T.Parallel(TILE, TILE):
                        seen = k * TILE + j <= bx * TILE + i + 15 and k * TILE + j + 20 >= bx * TILE + i
                        tile[i, j] = T.if_then_else(seen, tile[i, j], -1.0)
                T.copy(tile, C[bx * TILE, k * TILE])

    return main


@pytest.mark.parametrize("asks", [False, True])
def test_two_edges_under_a_name(rng: Any, proved: Any, asks: bool) -> None:
    """Both comparisons are asked; where the user asks already, nothing is added."""
    a, c = rng.standard_normal((ROWS, COLUMNS)).astype("float32"), np.zeros((ROWS, COLUMNS), "float32")
    trace, _ = proved(window(asks), [a, c], passes=False)
    (condition,) = skipped(trace)
    for block in range(3):
        for k in range(5):
            assert asked(condition, {"bx": block, "k": k}) == (k != block), (block, k)
