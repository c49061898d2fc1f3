"""T.reinterpret between types of different widths."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        A[0] = T.reinterpret(A[1], "float16")


# --- what the user sees
# DtypeError: [TL118] T.reinterpret between types of different width
#   --> reinterpret_of_another_width.py:9   A[0] = T.reinterpret(A[1], "float16")
#   found:    float32 (32 bits) to float16
#   expected: equal widths
#   try:      T.cast converts the value instead of the bits
