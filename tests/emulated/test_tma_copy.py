"""Tiles copied by the tensor memory accelerator as an expert writes it: meaning, emulated text, compiled text."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_runtime.artifact import Artifact

HOPPER = "cuda -arch=sm_90a"


def doubled(shape: tuple[int, int], tile: tuple[int, int], dtype: str, threads: int = 128, layout: Any = None) -> Any:
    """B = A + A, each tile of A loaded by one thread."""
    (m, n), (bm, bn) = shape, tile
    size = bm * bn * np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize

    @T.prim_func
    def main(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(T.ceildiv(m, bm), T.ceildiv(n, bn), threads=threads) as (bx, by):
            s = T.alloc_shared(tile, dtype)
            if layout is not None:
                T.annotate_layout({s: layout})
            full = T.alloc_barrier(1)
            tx = T.get_thread_binding()
            if tx == 0:
                T.mbarrier_arrive_expect_tx(full, size)
                T.tma_copy(A[bx * bm, by * bn], s, barrier=full, expect_tx=False)
            T.mbarrier_wait_parity(full, 0)
            for i, j in T.Parallel(bm, bn):
                B[bx * bm + i, by * bn + j] = s[i, j] + s[i, j]

    return main


@pytest.mark.parametrize(
    ("shape", "tile", "dtype", "box", "swizzle"),
    [
        ((128, 128), (64, 64), "float16", (64, 64), 128),
        ((100, 72), (64, 64), "float16", (64, 64), 128),  # tiles that stick out
        ((96, 256), (32, 128), "float16", (64, 32, 2), 128),  # panels as a dimension of the box
        ((96, 200), (32, 128), "float16", (64, 32), 128),  # rows that are no whole panels: a box for each
        ((64, 96), (32, 32), "bfloat16", (32, 32), 64),
        ((64, 48), (64, 16), "float16", (16, 64), 32),
        ((64, 64), (32, 32), "float32", (32, 32), 128),
        ((70, 40), (16, 16), "int32", (16, 16), 64),
        ((64, 256), (64, 128), "int8", (128, 64), 128),
        ((512, 64), (512, 64), "float16", (64, 256), 128),  # more rows than a box has
    ],
)
def test_a_tile_is_loaded(agree, values, shape, tile, dtype, box, swizzle):
    a = values(shape, dtype)
    artifact = agree(doubled(shape, tile, dtype), [a], a + a)
    (made,) = artifact.manifest.tensormaps
    assert (made.box, made.swizzle) == (box, swizzle)
    boxes = tile[0] * tile[1] // int(np.prod(box))
    assert artifact.source.count("tl::tma_load(") == boxes


def test_rows_without_a_swizzle_are_a_box(agree, values):
    from tilelang.layout import make_linear_layout

    a = values((60, 80), "float16")
    artifact = agree(doubled((60, 80), (32, 40), "float16", layout=make_linear_layout((32, 40))), [a], a + a)
    (made,) = artifact.manifest.tensormaps
    assert (made.box, made.swizzle) == ((40, 32), 0)


def test_the_text_compiles_for_the_device(values):
    pytest.importorskip("tile_runtime_cuda")
    artifact = tilelang.compile(doubled((100, 72), (64, 64), "float16"), target=HOPPER).artifact
    (resources,) = artifact.manifest.resources.values()
    assert resources["spills"] == 0
    (launch,) = artifact.manifest.variants[0].launches
    assert launch.args == (("param", "B"), ("tensormap", 0))


def test_a_ring_of_stages(agree, values):
    """One thread loads ahead; the others say when a stage is free again."""
    m, k, bm, bk, stages = 64, 320, 64, 32, 3

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((m,), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((stages, bm, bk), "float16")
            total = T.alloc_fragment((bm,), "float32")
            full = T.alloc_barrier([1] * stages)
            empty = T.alloc_barrier([64] * stages)
            T.clear(total)
            for i in T.serial(stages - 1):
                T.tma_copy(A[0, i * bk], s[i, :, :], barrier=full[i])
                if T.get_thread_binding() == 0:
                    T.mbarrier_arrive(full[i])
            for i in T.serial(k // bk):
                ahead = i + stages - 1
                if ahead < k // bk:
                    T.mbarrier_wait_parity(empty[ahead % stages], (ahead // stages) % 2 ^ 1)
                    T.tma_copy(A[0, ahead * bk], s[ahead % stages, :, :], barrier=full[ahead % stages])
                    if T.get_thread_binding() == 0:
                        T.mbarrier_arrive(full[ahead % stages])
                T.mbarrier_wait_parity(full[i % stages], (i // stages) % 2)
                part = T.alloc_fragment((bm, bk), "float32")
                T.copy(s[i % stages, :, :], part)
                T.reduce_sum(part, total, dim=1, clear=False)
                T.mbarrier_arrive(empty[i % stages])
            T.copy(total, B)

    a = values((m, k), "float16")
    agree(main, [a], a.astype("float32").sum(axis=1))


@pytest.mark.parametrize(
    ("threads", "count", "leader"),
    [(lambda tx: tx < 32, 32, 0), (lambda tx: tx >= 64, 64, 64), (lambda tx: tx == 5, 1, 5)],
)
def test_the_first_thread_of_those_that_come_by_copies(agree, values, threads, count, leader):
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float16"), B: T.Tensor((32, 64), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((32, 64), "float16")
            full = T.alloc_barrier(count)
            tx = T.get_thread_binding()
            if threads(tx):
                T.tma_copy(A, s, barrier=full)
                T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            T.copy(s, B)

    a = values((32, 64), "float16")
    artifact = agree(main, [a], a)
    assert f"tx == {leader}" in artifact.source


def test_dynamic_sizes_under_every_variant(values):
    """Extents that are whole tiles, and extents that are not; rows that no map can have are an error with a reason."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((m, n), "float16"), B: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(m, 32), T.ceildiv(n, 64), threads=128) as (bx, by):
            s = T.alloc_shared((32, 64), "float16")
            full = T.alloc_barrier(1)
            T.tma_copy(A[bx * 32, by * 64], s, barrier=full)
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            T.copy(s, B[bx * 32, by * 64])

    kernel = tilelang.compile(main, target=HOPPER, execution="emulate")
    for shape in ((64, 128), (33, 72)):
        a, b = values(shape, "float16"), np.zeros(shape, "float16")
        kernel(a, b)
        np.testing.assert_array_equal(a, b)
    with pytest.raises(Exception, match="any row length of A"):
        kernel(values((8, 9), "float16"), np.zeros((8, 9), "float16"))


@pytest.mark.parametrize(
    ("shape", "tile", "dtype"), [((128, 128), (64, 64), "float16"), ((70, 56), (32, 32), "float32")]
)
def test_a_tile_is_stored(agree, values, shape, tile, dtype):
    (m, n), (bm, bn) = shape, tile

    @T.prim_func
    def main(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(T.ceildiv(m, bm), T.ceildiv(n, bn), threads=128) as (bx, by):
            s = T.alloc_shared(tile, dtype)
            for i, j in T.Parallel(bm, bn):
                s[i, j] = A[bx * bm + i, by * bn + j] * 2
            T.fence_proxy_async()
            T.sync_threads()
            T.tma_copy(s, B[bx * bm, by * bn])
            T.tma_store_wait()

    a = values(shape, dtype)
    artifact = agree(main, [a], a + a)
    assert [p.access for p in artifact.manifest.params] == ["r", "w"]
    assert "tl::bulk_commit" in artifact.source


def test_a_kernel_that_cannot_serve_every_address_is_exported_without_those(tmp_path):
    """TMA reads rows at multiples of 16 bytes; a call with others is refused, as there is no code for it."""
    kernel = tilelang.compile(doubled((64, 64), (32, 32), "float16"), target=HOPPER, execution="emulate")
    kernel.export(tmp_path / "doubled.tile")
    variants = Artifact.load(tmp_path / "doubled.tile").manifest.variants
    assert variants
    assert all(v.guard is not None for v in variants)
