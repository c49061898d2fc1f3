"""The order in which blocks that stay take tiles: every tile once, and the bytes that an order asks for, counted by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler.simt.rasterize_grid import Panels
from tile_compiler.simt.thread_values import ThreadValues, Unknown
from tile_compiler.simt.tile_order import best_panels, bytes_asked, bytes_shared, coordinates
from tilelang.ir import tile_ir

A_BYTES, B_BYTES = 64 * 32 * 2, 32 * 128 * 2


def product(m: int, n: int, k: Any) -> tile_ir.Kernel:
    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 128), T.ceildiv(m, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 128), "float16")
            c = T.alloc_fragment((64, 128), "float32")
            row = by * 64
            T.clear(c)
            for i in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[row, i * 32], a)
                T.copy(B[i * 32, bx * 128], b)
                T.gemm(a, b, c)
            T.copy(c, C[row, bx * 128])

    (kernel,) = tile_ir.kernels(main)
    return kernel


def places(extents: list[int], panels: Panels | None) -> list[tuple[int, ...]]:
    """The block of every tile, in their order."""
    number, values = tir.Var("number", "int32"), ThreadValues(math.prod(extents))
    values.values[number] = np.arange(math.prod(extents))
    found = [np.broadcast_to(values.value(c), (values.threads,)) for c in coordinates(number, extents, panels)]
    return list(zip(*(f.tolist() for f in found)))


@pytest.mark.parametrize("extents", [[7], [5, 9], [8, 16], [3, 5, 2]])
@pytest.mark.parametrize("panels", [None, Panels(4, "row"), Panels(2, "column")])
def test_each_tile_has_a_turn(extents: list[int], panels: Panels | None) -> None:
    found = places(extents, panels)
    assert sorted(found) == sorted(np.ndindex(*extents))
    if panels is None:
        assert found[:2] == [(0,) * len(extents), (1,) + (0,) * (len(extents) - 1)]


@pytest.mark.parametrize("rows", [0, 8, 16])
@pytest.mark.parametrize("flying", [6, 24])
def test_bytes_of_tiles_in_flight(rows: int, flying: int) -> None:
    kernel, extents, panels = product(64 * 20, 128 * 12, 96), [12, 20], Panels(rows, "row") if rows else None
    first = (12 * 20 - flying) // 2 // flying * flying
    some = places(extents, panels)[first : first + flying]
    expected = A_BYTES * len({by for _, by in some}) + B_BYTES * len({bx for bx, _ in some})
    assert bytes_asked(kernel, extents, flying, panels) == expected


def test_panels_for_a_product_and_none_where_neighbours_share_all() -> None:
    panels, asked = best_panels(product(64 * 64, 128 * 64, 96), 132, 4096)
    assert panels is not None
    assert asked[panels.size] == min(asked.values()) < asked[0] / 2
    panels, asked = best_panels(product(64 * 64, 128, 96), 32, 4096)
    assert panels is None
    assert len(set(asked.values())) == 1


def test_bytes_that_neighbours_share() -> None:
    kernel = product(640, 1280, 96)
    assert bytes_shared(kernel, 0) == (A_BYTES + B_BYTES, A_BYTES)
    assert bytes_shared(kernel, 1) == (A_BYTES + B_BYTES, B_BYTES)


def test_what_memory_decides_is_not_guessed() -> None:
    @T.prim_func
    def main(A: T.Tensor((640, 64), "float16"), rows: T.Tensor((10,), "int32"), C: T.Tensor((640, 64), "float16")):
        with T.Kernel(10, 2, threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            for i in T.Pipelined(2, num_stages=2):
                T.copy(A[rows[bx] * 64, i * 32], a)
                T.copy(a, C[bx * 64, i * 32])

    (kernel,) = tile_ir.kernels(main)
    with pytest.raises(Unknown):
        bytes_asked(kernel, [10, 2], 4, None)
    assert best_panels(kernel, 4, 4096) == (None, {})
