"""T.Kernel inside T.Kernel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        with T.Kernel(1, threads=64):
            T.clear(A)


# --- what the user sees
# InvalidArgument: [TL117] T.Kernel stands inside T.Kernel
#   --> kernel_in_kernel.py:9   with T.Kernel(1, threads=64):
#   expected: kernels one after the other
#   try:      close the first `with` before the second
