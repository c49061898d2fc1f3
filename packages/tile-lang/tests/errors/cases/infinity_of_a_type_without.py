"""T.infinity of a type that has none."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float8_e4m3")):
    with T.Kernel(1, threads=64):
        T.fill(A, T.infinity("float8_e4m3"))


# --- what the user sees
# DtypeError: [TL118] float8_e4m3fn has no infinity
#   --> infinity_of_a_type_without.py:9   T.fill(A, T.infinity("float8_e4m3"))
#   found:    T.infinity('float8_e4m3fn')
#   expected: a type that holds infinity
#   try:      use T.max_value(dtype), the largest finite value
