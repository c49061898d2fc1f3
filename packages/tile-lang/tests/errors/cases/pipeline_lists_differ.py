"""T.Pipelined with lists of different lengths."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for k in T.Pipelined(4, order=[0, 1], stage=[0]):
            T.clear(A)


# --- what the user sees
# PipelineError: [TL129] order and stage of T.Pipelined differ in length
#   --> pipeline_lists_differ.py:9   for k in T.Pipelined(4, order=[0, 1], stage=[0]):
#   found:    2 and 1 entries
#   expected: one entry of each per statement
#   try:      make them equally long
