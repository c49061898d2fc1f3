"""A shape that holds no size."""

import tilelang.language as T

N = 100


@T.prim_func
def kernel(A: T.Tensor((N / 2, 64), "float32")):
    with T.Kernel(1, threads=64):
        T.clear(A)


# --- what the user sees
# BadAnnotation: [TL119] the shape of A holds something that is no size
#   --> shape_with_a_float.py:9   def kernel(A: T.Tensor((N / 2, 64), "float32")):
#   found:    50.0
#   expected: integers, T.dynamic(...) dimensions, or expressions of them
#   try:      write the shape as a tuple, for example T.Tensor((M, K), 'float16')
