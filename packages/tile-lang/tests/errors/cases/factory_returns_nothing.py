"""A factory under @tilelang.jit that forgets to return its kernel."""

import tilelang
import tilelang.language as T


@tilelang.jit
def copy(n):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1):
            T.copy(A, B)


copy(8)


# --- what the user sees
# InvalidArgument: [TL117] copy under @tilelang.jit returned no T.prim_func
#   --> factory_returns_nothing.py:15   copy(8)
#   found:    NoneType
#   expected: `return main` where main is a T.prim_func, or a body that is the kernel (the eager style)
#   try:      put @T.prim_func above the inner function and return it
