"""T.const in a T.prim_func."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    N = T.const("N")
    with T.Kernel(1):
        T.clear(A)


# --- what the user sees
# BadAnnotation: [TL119] T.const stands in a function that is not of the eager style
#   --> const_in_prim_func.py:8   N = T.const("N")
#   found:    T.const('N')
#   expected: @tilelang.jit on a function whose body is the kernel
#   try:      make the sizes parameters of the enclosing function
