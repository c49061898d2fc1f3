"""The kernels of the mutation sweep, by name: products, attention, pipelines, reductions, thread-level code, examples.

The same ones for CUDA and for HIP, where waves have 64 threads, matrix products are MFMA and tiles go through registers;
and Hopper's: mbarriers, bulk copies, products of warpgroups, roles of warps, clusters, and programs that users write.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hopper_programs
import numpy as np
import test_clusters
from panel_kernels import scale, scale_planes
from test_attention import attention
from test_leaving_loops import CUT_SHORT
from test_pipelines import SCHEDULES, scaled
from test_pipelines import attention as scheduled_attention
from test_shared_memory import phases, staged
from test_synchronization import product
from test_wgmma_loaded import ROUNDED
from test_wgmma_loaded import pipelined as loaded

import tilelang.language as T

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"


@dataclass(frozen=True)
class Subject:
    """A correct kernel of static sizes; `make` gives the function, `options` how it is compiled, `tolerance` how exact it is."""

    name: str
    make: Callable[[], Any]
    arch: str = "sm_80"
    options: Mapping[str, bool] = field(default_factory=dict)
    tolerance: float = 5e-3

    def arguments(self, func: Any, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        """Random arguments: normal floats, small non-negative integers."""
        rng = np.random.default_rng(seed)
        return [_random(rng, [int(s) for s in p.ty.shape], str(p.ty.dtype)) for p in func.params]


def _random(rng: np.random.Generator, shape: list[int], dtype: str) -> np.ndarray[Any, Any]:
    if "float" in dtype:
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 4, shape).astype(dtype)


def _example(module: str, factory: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    def make() -> Any:
        if str(EXAMPLES) not in sys.path:
            sys.path.insert(0, str(EXAMPLES))
        return getattr(__import__(module), factory)(*args, **kwargs)

    return make


def _of(make: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    return lambda: make(*args)


def reversal(rows: int, length: int, threads: int) -> Any:
    """Rows reversed through shared memory, in as many turns as the threads need."""

    @T.prim_func
    def main(A: T.Tensor((rows, length), "float32"), B: T.Tensor((rows, length), "float32")):
        with T.Kernel(rows, threads=threads) as bx:
            s = T.alloc_shared((length,), "float32")
            T.copy(A[bx, :], s)
            for i in T.Parallel(length):
                B[bx, i] = s[length - 1 - i]

    return main


def rolling(length: int, threads: int) -> Any:
    """A loop that reads and then overwrites a shared tile."""

    @T.prim_func
    def main(A: T.Tensor((5, length), "float32"), B: T.Tensor((5, length), "float32")):
        with T.Kernel(1, threads=threads) as bx:
            s = T.alloc_shared((length,), "float32")
            T.fill(s, 0)
            for k in T.serial(5):
                for i in T.Parallel(length):
                    B[k, i] = s[length - 1 - i]
                T.copy(A[k, :], s)

    return main


def row_sums(rows: int, columns: int, threads: int) -> Any:
    """Sums and maxima of rows, across registers, warps and shared memory."""

    @T.prim_func
    def main(A: T.Tensor((rows, columns), "float32"), S: T.Tensor((rows,), "float32"), M: T.Tensor((rows,), "float32")):
        with T.Kernel(1, threads=threads) as bx:
            x = T.alloc_fragment((rows, columns), "float32")
            total = T.alloc_fragment((rows,), "float32")
            top = T.alloc_fragment((rows,), "float32")
            T.copy(A, x)
            T.reduce_sum(x, total, dim=1)
            T.reduce_max(x, top, dim=1)
            T.copy(total, S)
            T.copy(top, M)

    return main


def running_sums(rows: int, columns: int) -> Any:
    @T.prim_func
    def main(A: T.Tensor((rows, columns), "float32"), B: T.Tensor((rows, columns), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((rows, columns), "float32")
            T.copy(A, s)
            T.cumsum(s, dim=1)
            T.copy(s, B)

    return main


def tree(threads: int) -> Any:
    """A sum over the block's threads, halved in each step, thread by thread."""

    @T.prim_func
    def main(A: T.Tensor((4, threads), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=threads) as bx:
            s = T.alloc_shared((threads,), "float32")
            tx = T.get_thread_binding()
            s[tx] = A[bx, tx]
            for k in T.serial(T.ceildiv(threads, 32)):
                if tx < (threads >> (k + 1)):
                    s[tx] = s[tx] + s[tx + (threads >> (k + 1))]
            if tx == 0:
                B[bx] = s[0]

    return main


_CUDA = [
    *(Subject(f"product_{stages}_stages", _of(product, 100, 72, 80, stages, (64, 64, 32))) for stages in range(5)),
    Subject("product_of_whole_tiles", _of(product, 64, 64, 96, 3)),
    Subject("product_of_one_step", _of(product, 32, 32, 32, 3, (32, 32, 32), 32)),
    Subject("product_through_registers", _of(product, 40, 33, 70, 2, (32, 32, 32), 64)),
    Subject("product_sm_75", _of(product, 64, 64, 96, 2, (64, 64, 32), 128), "sm_75"),
    Subject("product_staged_epilogue", _of(staged, 2)),
    Subject("product_staged_epilogue_in_order", _of(staged, 0)),
    Subject("attention_causal", _of(attention, 50, 70, 32, 32, 32, True, 2)),
    Subject("attention_full", _of(attention, 32, 64, 32, 32, 32, False, 3)),
    *(Subject(f"attention_schedule_{n}", _of(scheduled_attention, *SCHEDULES[n])) for n in (0, 2, 3, 4)),
    Subject("attention_schedule_sm_75", _of(scheduled_attention, *SCHEDULES[2]), "sm_75"),
    *(Subject(f"rows_{stages}_stages", _of(scaled, stages, 5)) for stages in (1, 2, 3)),
    Subject("rows_through_registers", _of(scaled, 3, 5), "sm_75"),
    Subject("rows_of_one_step", _of(scaled, 3, 1)),
    Subject("phases", _of(phases, False)),
    Subject("phases_kept", _of(phases, True)),
    Subject("panels", _of(scale, 27, 70, "row")),
    Subject("panels_of_columns", _of(scale_planes, 13, 70, "column")),
    Subject("reversal", _of(reversal, 3, 96, 48)),
    Subject("reversal_in_turns", _of(reversal, 2, 200, 64)),
    Subject("rolling", _of(rolling, 64, 64)),
    Subject("rolling_96", _of(rolling, 100, 96)),
    Subject("row_sums", _of(row_sums, 8, 100, 128)),
    Subject("row_sums_across_warps", _of(row_sums, 2, 512, 128)),
    Subject("running_sums", _of(running_sums, 5, 70)),
    Subject("tree", _of(tree, 64)),
    Subject("vector_add", _example("vector_add", "vector_add", 300, 256)),
    Subject("histogram", _example("histogram", "histogram", 500, 8, 128)),
    Subject("online_softmax", _example("online_softmax", "online_softmax", 20, 100, 16, 64)),
    Subject("rms_norm_silu", _example("rms_norm_silu", "rms_norm_silu", 20, 64)),
    Subject("persistent_gemm", _example("persistent_gemm", "persistent_matmul", 70, 64, 64, 2)),
    Subject("mla_decode", _example("mla_decode", "mla_decode", 1, 16, 1, 70, 64, 32)),
    Subject("block_sums", _example("thread_level", "block_sums", 300, 64)),
    *(Subject(f"iterations_cut_short_{name}", lambda kernel=kernel: kernel) for name, kernel in CUT_SHORT.items()),
]

#: Those of one architecture of NVIDIA, and one of fewer threads than a wave has.
_CUDA_ONLY = {"product_sm_75", "attention_schedule_sm_75", "rows_through_registers", "product_of_one_step"}
_HIP = [
    replace(subject, name=f"{subject.name}_{arch}", arch=arch)
    for number, subject in enumerate(s for s in _CUDA if s.name not in _CUDA_ONLY)
    for arch in ["gfx90a" if number % 4 == 3 else "gfx942"]
]

_HOPPER = [
    *(Subject(f"product_{stages}_stages", _of(product, 100, 72, 80, stages, (64, 64, 32))) for stages in (1, 3)),
    Subject("product_of_whole_tiles", _of(product, 64, 64, 96, 3)),
    Subject("product_staged_epilogue", _of(staged, 2)),
    Subject("loaded_operand", _of(loaded, 67, 130, 100, 3), options=ROUNDED, tolerance=2e-2),
    Subject("attention_causal", _of(attention, 100, 70, 32, 64, 32, True, 2)),
    Subject("attention_in_turns", _of(attention, 128, 128, 64, 128, 64, False, 2, 256)),
    Subject("persistent_gemm", _example("persistent_gemm", "persistent_matmul", 70, 64, 64, 2)),
    Subject("mla_decode", _example("mla_decode", "mla_decode", 1, 16, 1, 70, 64, 32)),
    Subject("cluster", _of(test_clusters.product, 128, 64, 96, (1, 2))),
    Subject("cluster_that_stays", _of(test_clusters.persistent, 128, 128, 64, 2)),
    Subject("ring", _of(hopper_programs.ring, 7, 3)),
    Subject("weights", _of(hopper_programs.weights, 3)),
    Subject("shared_out", _of(hopper_programs.shared_out, 16)),
    Subject("turns", _of(hopper_programs.turns, 5)),
    Subject("bulk", _of(hopper_programs.bulk, 64)),
]
_HOPPER = [replace(subject, name=f"{subject.name}_sm_90a", arch="sm_90a") for subject in _HOPPER]

SUBJECTS = [*_CUDA, *_HIP, *_HOPPER]
