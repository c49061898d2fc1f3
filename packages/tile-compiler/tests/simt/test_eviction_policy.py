"""`T.copy(eviction_policy=...)` to registers: loads that say so, where nobody writes what they read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T


def doubled(policy: str | None, in_place: bool = False) -> Any:
    """B = 2 A for 300 values, or A = 2 A: the last block is not whole."""

    @T.prim_func
    def main(A: T.Tensor((300,), "float16"), B: T.Tensor((300,), "float16")):
        with T.Kernel(2, threads=32) as b:
            a = T.alloc_fragment((256,), "float16")
            T.copy(A[b * 256], a, eviction_policy=policy)
            for i in T.Parallel(256):
                a[i] = a[i] * 2
            T.copy(a, A[b * 256] if in_place else B[b * 256])

    return main


@pytest.mark.parametrize("policy", ["evict_first", "evict_last"])
def test_loads_follow_the_policy_and_the_answer_stays(policy: str) -> None:
    kernel = tilelang.compile(doubled(policy), out_idx=[1], target="cuda -arch=sm_90a", execution="emulate")
    A = np.random.default_rng(0).standard_normal(300).astype(np.float16)
    np.testing.assert_array_equal(kernel(A), 2 * A)
    source = kernel.get_kernel_source()
    assert f"tl::load<tl::{policy}>((const tl::vec<tl::half_t, " in source
    assert "} else {" not in source.partition("// T.Parallel")[0]  # what is outside reads as 0 without a branch


def test_the_device_compiler_takes_both() -> None:
    for policy in ("evict_first", "evict_last"):
        for arch in ("sm_90", "sm_90a"):
            tilelang.compile(doubled(policy), out_idx=[1], target=f"cuda -arch={arch}")


@pytest.mark.parametrize(
    ("policy", "in_place", "arch"),
    [(None, False, "sm_90a"), ("evict_normal", False, "sm_90a"), ("evict_first", True, "sm_90a")]
    + [("evict_first", False, arch) for arch in ("sm_80", "gfx942")],
)
def test_where_it_cannot_be_loads_are_plain(lower: Any, policy: str | None, in_place: bool, arch: str) -> None:
    """The kernel writes what it reads, or the architecture has no such loads; the report says so."""
    trace, ctx = lower(doubled(policy, in_place), arch)
    assert "tl.cache" not in str(trace.steps[-1].after)
    wanted = "the kernel writes what it reads" if in_place else f"{arch} has no such loads"
    expected = [f"evict_first has no effect: {wanted}"] if policy == "evict_first" else []
    assert [text for _, text in ctx.report.notes if "evict" in text] == expected
