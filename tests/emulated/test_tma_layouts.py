"""What the tensor memory accelerator can copy: ranks, strides, layouts, tiles partly outside; and why not the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.errors import UnsupportedOnTarget
from tilelang.layout import Layout, make_linear_layout, make_padded_layout

HOPPER = "cuda -arch=sm_90a"


def loaded(shape: Any, tile: Any, origin: Any, dtype: str = "float16", layout: Any = None, strides: Any = None) -> Any:
    """B = the tile of A at `origin`, its dimensions that are not 1."""
    kept = tuple(e for e in tile if e != 1)
    tensor = T.Tensor(shape, dtype) if strides is None else T.StridedTensor(shape, strides, dtype)

    @T.prim_func
    def main(A: tensor, B: T.Tensor(kept, dtype)):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared(kept, dtype)
            if layout is not None:
                T.annotate_layout({s: layout})
            full = T.alloc_barrier(64)
            T.tma_copy(A[tuple(slice(o, o + e) for o, e in zip(origin, tile))], s, barrier=full)
            T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            T.copy(s, B, disable_tma=True)

    return main


def box_of(a: Any, origin: Any, tile: Any) -> Any:
    """The tile as numpy has it, 0 outside."""
    out = np.zeros(tile, a.dtype)
    for index in np.ndindex(*tile):
        at = tuple(o + i for o, i in zip(origin, index))
        if all(0 <= p < n for p, n in zip(at, a.shape)):
            out[index] = a[at]
    return out.reshape([e for e in tile if e != 1])


@pytest.mark.parametrize(
    ("shape", "tile", "origin", "dtype", "boxes"),
    [
        ((1000,), (512,), (600,), "float32", 2),  # a vector, partly outside
        ((64,), (64,), (0,), "float16", 1),
        ((6, 128), (1, 64), (3, 64), "float16", 1),  # a piece of a row
        ((3, 40, 64), (1, 32, 64), (2, 16, 0), "bfloat16", 1),
        ((3, 40, 128), (2, 16, 128), (2, 32, 0), "float16", 1),  # folded panels of a rank-4 box, partly outside
        ((2, 40, 3, 64), (1, 32, 1, 64), (1, 20, 2, 0), "float16", 1),  # batch, sequence, head, element
        ((2, 3, 4, 5, 32), (1, 2, 1, 4, 32), (1, 1, 3, 2, 0), "float32", 1),
        ((2, 3, 4, 9, 128), (1, 2, 1, 8, 128), (1, 1, 3, 2, 0), "float16", 4),  # no sixth dimension for panels
    ],
)
def test_tiles_of_every_rank(agree, values, shape, tile, origin, dtype, boxes):
    a = values(shape, dtype)
    text = agree(loaded(shape, tile, origin, dtype), [a], box_of(a, origin, tile)).source
    assert text.count("tl::tma_load(") == boxes


@pytest.mark.parametrize(
    ("layout", "swizzle", "boxes"),
    [
        (make_linear_layout((32, 64)), 0, 1),
        (T.layout.swizzle_by_name("swizzle_128b", (32, 64), "float16"), 128, 1),
        (T.layout.swizzle_by_name("swizzle_64b", (32, 64), "float16"), 64, 1),
        (T.layout.swizzle_by_name("swizzle_32b", (32, 64), "float16"), 32, 1),
        (Layout((32, 64), lambda i, j: j // 8 * 256 + i * 8 + j % 8), 0, 1),  # columns of core matrices
        (Layout((32, 64), lambda i, j: i // 8 * 512 + j // 32 * 256 + i % 8 * 32 + j % 32), 0, 8),  # blocks of 8 rows
    ],
)
def test_layouts_that_are_orders_of_boxes(agree, values, layout, swizzle, boxes):
    a = values((40, 128), "float16")
    artifact = agree(loaded((40, 128), (32, 64), (16, 64), layout=layout), [a], box_of(a, (16, 64), (32, 64)))
    (made,) = artifact.manifest.tensormaps
    assert made.swizzle == swizzle
    assert artifact.source.count("tl::tma_load(") == boxes


def test_axes_in_another_order(agree, values):
    """The box has the axes in the tensor's order: the second one varies faster here, so it is one box for each row."""
    a = values((2, 16, 64), "float16")
    layout = Layout((2, 16, 64), lambda i, j, k: j * 128 + i * 64 + k)
    artifact = agree(loaded((2, 16, 64), (2, 16, 64), (0, 0, 0), layout=layout), [a], a)
    (made,) = artifact.manifest.tensormaps
    assert made.box == (64, 1, 2)


def test_rows_of_a_wider_tensor(agree, values):
    """Strides of the tensor are the map's."""
    wide = values((40, 96), "float16")
    func = loaded((40, 64), (32, 64), (16, 0), strides=(96, 1))
    kernel = tilelang.compile(func, target=HOPPER, execution="emulate")
    got = np.zeros((32, 64), "float16")
    kernel(wide[:, 16:80], got)
    np.testing.assert_array_equal(got, box_of(wide[:, 16:80], (16, 0), (32, 64)))
    (made,) = kernel.artifact.manifest.tensormaps
    assert made.strides == (96,)


@pytest.mark.parametrize(
    ("why", "func"),
    [
        ("bytes from row to row of A, no multiple of 16", lambda: loaded((40, 60), (32, 32), (0, 0))),
        (
            "is no order of boxes",
            lambda: loaded((64, 64), (32, 64), (0, 0), layout=make_padded_layout((32, 64), "float16")),
        ),
        ("is no order of boxes", lambda: loaded((64, 64), (32, 4), (0, 0))),  # rows of 8 bytes
        ("it takes one element of each row of A", lambda: loaded((64, 64), (32, 1), (0, 3))),
        (
            "A has 6 dimensions, a tensor map at most 5",
            lambda: loaded((1, 1, 1, 1, 32, 64), (1, 1, 1, 1, 32, 64), (0,) * 6),
        ),
        ("elements of type float16x2", lambda: loaded((32, 32), (32, 32), (0, 0), "float16x2")),
    ],
)
def test_reasons(why, func):
    with pytest.raises(UnsupportedOnTarget, match=why):
        tilelang.compile(func(), target=HOPPER, execution="emulate")


def test_other_targets_have_none():
    with pytest.raises(UnsupportedOnTarget, match=r"on sm_80"):
        tilelang.compile(loaded((64, 64), (32, 64), (0, 0)), target="cuda -arch=sm_80", execution="emulate")
