"""The profiler cannot guess a dynamic dimension."""

import tilelang
import tilelang.language as T

n = T.dynamic("n")


@T.prim_func
def clear(A: T.Tensor((n,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(clear, execution="interpret").get_profiler().do_bench()


# --- what the user sees
# UnboundDimension: [TL127] the profiler needs a value for the dynamic dimension n
#   --> profiler_needs_a_size.py:15   tilelang.compile(clear, execution="interpret").get_profiler().do_bench()
#   expected: one size for each
#   try:      do_bench(dynamic_symbolic_constraints={"n": 2048}), or input_tensors=[...]
