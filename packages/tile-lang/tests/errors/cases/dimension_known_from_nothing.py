"""A dynamic dimension that no argument's shape gives."""

import tilelang
import tilelang.language as T

m, n = T.dynamic("m, n")


@T.prim_func
def kernel(A: T.Tensor((m * n,), "float32")):
    with T.Kernel(T.ceildiv(m, 8)):
        T.clear(A)


tilelang.compile(kernel, execution="interpret")


# --- what the user sees
# UnboundDimension: [TL127] the dynamic dimension m, n cannot be read off any argument
#   --> dimension_known_from_nothing.py:15   tilelang.compile(kernel, execution="interpret")
#   found:    it stands only in shapes with several unknowns, or in none
#   expected: a tensor with a dimension `m` or `a * m + b`
#   try:      add a parameter that has it as an extent, or pass it as a scalar parameter `m: T.int32`
