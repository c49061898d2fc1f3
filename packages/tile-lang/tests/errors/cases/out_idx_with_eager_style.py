"""out_idx for a function of the eager style."""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=-1)
def copy(A, B):
    A: T.Tensor((8,), "float32")
    B: T.Tensor((8,), "float32")
    with T.Kernel(1):
        T.copy(A, B)


# --- what the user sees
# OutputError: [TL120] out_idx is given for copy, which is of the eager style
#   --> out_idx_with_eager_style.py:7   @tilelang.jit(out_idx=-1)
#   found:    out_idx=-1
#   expected: outputs made by T.empty and returned
#   try:      drop out_idx; C = T.empty(shape, dtype) and return C
