"""T.Pipelined with `order` alone."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for k in T.Pipelined(4, order=[0, 1]):
            T.clear(A)


# --- what the user sees
# PipelineError: [TL129] T.Pipelined got only one of order and stage
#   --> pipeline_order_without_stage.py:9   for k in T.Pipelined(4, order=[0, 1]):
#   found:    order=[0, 1], stage=None
#   expected: both, one entry per statement, or neither
#   try:      give both lists, or num_stages alone
