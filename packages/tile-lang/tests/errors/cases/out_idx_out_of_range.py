"""out_idx names a parameter that does not exist."""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2], execution="interpret")
def copy(n):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1):
            T.copy(A, B)

    return main


copy(8)


# --- what the user sees
# OutputError: [TL120] out_idx names no parameter
#   --> out_idx_out_of_range.py:17   copy(8)
#   found:    out_idx=[2] for (A, B)
#   expected: indices from -2 to 1
#   try:      out_idx=[1] makes B the output
