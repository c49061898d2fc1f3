"""A file of tuning results that is empty."""

import tilelang
import tilelang.language as T


@tilelang.autotune(configs={"block": [32, 64]}, results="/dev/null")
@tilelang.jit(target="cpu")
def copy(n, block=32):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block)) as bx:
            T.copy(A[bx * block], B[bx * block : (bx + 1) * block])

    return main


copy(1024)


# --- what the user sees
# BadTuningFile: [TL134] null cannot be used
#   --> tuning_file_damaged.py:18   copy(1024)
#   found:    /dev/null: it is not readable JSON: Expecting value: line 1 column 1 (char 0)
#   expected: a file that the autotuner wrote, perhaps merged or shortened by hand
#   try:      restore it, or remove it and tune again
