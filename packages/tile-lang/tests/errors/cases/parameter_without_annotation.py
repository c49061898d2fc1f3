"""A parameter that does not say what it is."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32"), n):
    with T.Kernel(1, threads=64):
        A[0] = n


# --- what the user sees
# BadAnnotation: [TL119] parameter n of kernel does not say what it is
#   --> parameter_without_annotation.py:7   def kernel(A: T.Tensor((64,), "float32"), n):
#   found:    no annotation
#   expected: T.Tensor(shape, dtype) or a scalar type such as T.int32
#   try:      write `n: T.Tensor((M, N), 'float16')`, or use the eager style (@tilelang.jit alone), where shapes come from the first call
