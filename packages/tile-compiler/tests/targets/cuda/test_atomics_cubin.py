"""Atomic additions to neighbours are one machine instruction in the cubin, without a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import tilelang
import tilelang.language as T
from tile_compiler.targets.cuda.plugin import headers
from tile_runtime_cuda.build import build


def added(dtype: str, count: int) -> Any:
    add = {2: T.atomic_addx2, 4: T.atomic_addx4}[count]

    @T.prim_func
    def added(A: T.Tensor((128,), dtype), S: T.Tensor((128,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                add(S[i * count], A[i * count])

    return added


@pytest.mark.parametrize(
    ("arch", "dtype", "count", "instruction"),
    [
        ("sm_90a", "float32", 4, "REDG.E.ADD.F32x4"),
        ("sm_90a", "float32", 2, "REDG.E.ADD.F32x2"),
        ("sm_90a", "float16", 4, "REDG.E.ADD.F16x4"),
        ("sm_90a", "bfloat16", 4, "REDG.E.ADD.BF16x4"),
        ("sm_90a", "bfloat16", 2, "REDG.E.ADD.BF16x2"),
        ("sm_80", "float16", 2, "RED.E.ADD.F16x2"),
    ],
)
def test_one_instruction_adds_the_neighbours(
    listing: Callable[..., str], arch: str, dtype: str, count: int, instruction: str
) -> None:
    source = tilelang.compile(added(dtype, count), target=f"cuda -arch={arch}").get_kernel_source()
    assert f"tl::atomic_add_x{count}(&S[tx * {count}]" in source
    text = listing(build(source, arch=arch, headers=headers()).data)
    assert re.findall(r"\b(?:RED|ATOM)\w*\.[\w.]+", text)[0].startswith(instruction)
    assert len(re.findall(r"\b(?:RED|ATOM)\w*\.", text)) == 1
