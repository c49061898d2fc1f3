"""tilelang.compile of the factory instead of what it returns."""

import tilelang
import tilelang.language as T


def copy(n):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1):
            T.copy(A, B)

    return main


tilelang.compile(copy)


# --- what the user sees
# InvalidArgument: [TL117] tilelang.compile needs a T.prim_func
#   --> compile_of_a_factory.py:16   tilelang.compile(copy)
#   found:    function copy
#   expected: what @T.prim_func returns (call the factory first)
#   try:      tilelang.compile(matmul(1024, 1024, 1024, 128, 128, 32))
