"""An output left out whose size is known from nothing else."""

import tilelang
import tilelang.language as T

n = T.dynamic("n")


@T.prim_func
def ones(A: T.Tensor((n,), "float32")):
    with T.Kernel(1):
        T.fill(A, 1)


tilelang.compile(ones, out_idx=[0], execution="interpret")()


# --- what the user sees
# OutputError: TLR021: ones: dim n is known only from A, which this call left out; pass A
