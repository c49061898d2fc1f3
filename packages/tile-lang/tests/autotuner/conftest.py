"""Kernels that the tests tune, and a folder of results for each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilelang.language as T
from tile_runtime.cache import Cache
from tile_runtime_cpu import build


def gemm(M, N, K, block_M=64, block_N=64, block_K=32, num_stages=2, threads=128, dtype="float16"):
    """The GEMM of the documents, as a plain factory."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@pytest.fixture
def matmul() -> Callable[..., Any]:
    return gemm


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that all tests share, so that a kernel is compiled once; it holds the CPU's native code too."""
    folder = tmp_path_factory.mktemp("cache")
    for code in (build.POOL, build.PREPARED):
        code.object(Cache(folder, enabled=True))
    return folder


@pytest.fixture
def folder(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, in use whatever the environment says, without results of tuning (autotuner/results.json)."""
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(kernels))
    monkeypatch.delenv("TILELANG_DISABLE_CACHE", raising=False)
    shutil.rmtree(kernels / "autotuner", ignore_errors=True)
    return kernels
