"""T.empty in a T.prim_func."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    B = T.empty((8,), "float32")
    with T.Kernel(1):
        T.copy(A, B)


# --- what the user sees
# InvalidArgument: [TL117] T.empty stands in a function that is not of the eager style
#   --> empty_in_prim_func.py:8   B = T.empty((8,), "float32")
#   expected: @tilelang.jit on a function whose body is the kernel
#   try:      make the output a parameter and name it in out_idx
