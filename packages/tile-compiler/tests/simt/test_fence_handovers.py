"""Ordinary accesses of tiles that bulk copies overwrite: where the fence stands, and where none does."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.simt import device_text
from tile_runtime_cpu.emulator import EmulationError

FENCE = "fence_proxy_async_shared();"


def copies(tiles: int, stages: int):
    """Tiles pass through registers; several bulk copies for each slot."""

    @T.prim_func
    def main(X: T.Tensor((tiles * 16, 96), "float16"), Y: T.Tensor((tiles * 16, 128), "float16")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((16, 128), "float16")
            x = T.alloc_fragment((16, 128), "float16")
            for t in T.Pipelined(tiles, num_stages=stages):
                T.copy(X[t * 16, 0], tile)
                T.copy(tile, x)
                T.copy(x, Y[t * 16, 0])

    return main


def by_barriers(copies_in_turn: int, writes: bool = False):
    """The same without a pipeline: T.tma_copy, T.sync_threads."""

    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((16, 64), "float16")
            x = T.alloc_fragment((16, 64), "float16")
            full = T.alloc_barrier(64)
            for t in T.serial(copies_in_turn):
                T.tma_copy(X[t * 16, 0], tile, barrier=full)
                T.mbarrier_arrive(full)
                T.mbarrier_wait_parity(full, t % 2)
                if writes:
                    T.clear(tile)
                    T.clear(x)
                else:
                    T.copy(tile, x)
                T.sync_threads()
                T.copy(x, Y[t * 16, 0])

    return main


def by_roles(fence: bool):
    """A producer and a consumer that the user wrote, with or without the fence."""

    @T.prim_func
    def main(X: T.Tensor((128, 64), "float16"), Y: T.Tensor((128, 64), "float16")):
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((2, 16, 64), "float16")
            x = T.alloc_fragment((16, 64), "float16")
            full = T.alloc_barrier([128, 128])
            empty = T.alloc_barrier([128, 128])
            with T.ws(0):
                for t in T.serial(8):
                    T.mbarrier_wait_parity(full[t % 2], t // 2 % 2)
                    T.copy(tile[t % 2, :, :], x)
                    if fence:
                        T.fence_proxy_async()
                    T.mbarrier_arrive(empty[t % 2])
                    T.copy(x, Y[t * 16, 0])
            with T.ws(1):
                for t in T.serial(8):
                    T.mbarrier_wait_parity(empty[t % 2], (t // 2 % 2) ^ 1)
                    T.tma_copy(X[t * 16, 0], tile[t % 2, :, :], barrier=full[t % 2])
                    T.mbarrier_arrive(full[t % 2])

    return main


def source(func) -> list[str]:
    text = tilelang.compile(func, target="cuda -arch=sm_90a", execution="emulate").get_kernel_source()
    return [line.strip().removeprefix("tl::") for line in text.splitlines()]


PROGRAMS = {"pipeline": copies(6, 2), "barriers": by_barriers(4), "roles": by_roles(False), "fenced": by_roles(True)}


@pytest.mark.parametrize("func", PROGRAMS.values(), ids=PROGRAMS)
def test_results_agree_and_the_emulator_finds_nothing(func):
    kernel = tilelang.compile(func, target="cuda -arch=sm_90a", execution="emulate")
    x_param, y_param = kernel.params
    x = np.random.default_rng(0).standard_normal([int(n) for n in x_param.shape]).astype("float16")
    y = np.full([int(n) for n in y_param.shape], np.nan, "float16")
    kernel(x, y)
    assert np.array_equal(y[:, : x.shape[1]], x)
    assert not y[:, x.shape[1] :].any()


def test_one_fence_between_the_loads_and_the_warps_arrival():
    lines = source(copies(6, 2))
    assert lines.count(FENCE) == 1
    assert lines[lines.index(FENCE) + 1] == "sync_warp();"
    assert max(n for n, line in enumerate(lines) if "&tile[" in line and "vec" in line) < lines.index(FENCE)


def test_a_barrier_of_the_block_gets_one_too():
    lines = source(by_barriers(4))
    assert lines[lines.index(FENCE) + 1] == "sync_threads();"


def test_the_users_own_fence_is_enough():
    assert source(by_roles(False)).count(FENCE) == source(by_roles(True)).count(FENCE) == 1


def test_products_alone_need_none():
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((64, 256), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], a)
                T.copy(B[0, k * 64], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    assert FENCE not in source(main)


@pytest.mark.parametrize(
    "func", [copies(6, 2), by_barriers(4), by_barriers(4, writes=True)], ids=["loads", "barriers", "stores"]
)
def test_the_emulator_finds_a_missing_fence(func, monkeypatch):
    """What the checker proves, in another way: the text without the fence."""
    right = device_text.device_text

    def without(*args):
        text, members = right(*args)
        assert text.count(FENCE) == 1
        changed = [(n, k, d.replace(f"tl::{FENCE}".encode(), b"") if k == "source" else d) for n, k, d in members]
        return text.replace(f"tl::{FENCE}", ""), changed

    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "1")  # equal kernels would be equal artifacts
    monkeypatch.setattr(device_text, "device_text", without)
    kernel = tilelang.compile(func, target="cuda -arch=sm_90a", execution="emulate")
    x, y = (np.ones([int(n) for n in param.shape], "float16") for param in kernel.params)
    with pytest.raises(EmulationError, match="missing-proxy-fence"):
        kernel(x, y)
