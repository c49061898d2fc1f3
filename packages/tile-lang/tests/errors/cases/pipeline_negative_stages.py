"""A negative number of stages."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for k in T.Pipelined(4, num_stages=-1):
            T.clear(A)


# --- what the user sees
# PipelineError: [TL129] num_stages of T.Pipelined is impossible
#   --> pipeline_negative_stages.py:9   for k in T.Pipelined(4, num_stages=-1):
#   found:    -1
#   expected: an integer of 0 or more
#   try:      2 or 3 suit most kernels
