"""A tile operator before `with T.Kernel`."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    T.clear(A)
    with T.Kernel(1, threads=64):
        pass


# --- what the user sees
# OutsideKernel: [TL109] T.clear stands outside of `with T.Kernel(...)`
#   --> operator_outside_kernel.py:8   T.clear(A)
#   expected: kernel work inside the body of `with T.Kernel`
#   try:      open `with T.Kernel(grid, threads=...) as ...:` around it
