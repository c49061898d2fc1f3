"""Warpgroups take turns at the tensor cores only where they need nothing of each other meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from device_texts import lowered, printed

import tilelang.language as T


def chained(through_shared: bool) -> Any:
    policy = T.GemmWarpPolicy.FullCol if through_shared else T.GemmWarpPolicy.FullRow

    @T.prim_func
    def main(Q: T.Tensor((128, 64), "float16"), K: T.Tensor((512, 64), "float16"), O: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=256) as bx:
            q = T.alloc_shared((128, 64), "float16")
            k = T.alloc_shared((64, 64), "float16")
            between = T.alloc_shared((128, 64), "float16")
            scores = T.alloc_fragment((128, 64), "float32")
            weights = T.alloc_fragment((128, 64), "float16")
            out = T.alloc_fragment((128, 64), "float32")
            T.copy(Q, q)
            T.clear(out)
            for step in T.Pipelined(8, num_stages=3):
                T.copy(K[step * 64, 0], k)
                T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True, policy=policy)
                if through_shared:
                    T.copy(scores, between)
                    T.gemm(between, k, out, policy=policy)
                else:
                    T.copy(scores, weights)
                    T.gemm(weights, k, out, policy=policy)
            T.copy(out, O)

    return main


@pytest.mark.parametrize("through_shared", [False, True])
def test_warpgroups_that_meet_between_their_products_take_no_turns(through_shared: bool) -> None:
    """The checker follows the barriers: with turns the second kernel would never end."""
    func = chained(through_shared)
    trace, ctx = lowered(func, "sm_90a")
    source = printed(func, trace.steps[-1].after, ctx).source
    assert "arrive_expect_tx" in source
    assert ("tl::sync_barrier" in source) != through_shared
