"""T.reduce by a name that means nothing."""

import tilelang.language as T


@T.prim_func
def rows(A: T.Tensor((32, 64), "float32")):
    with T.Kernel(1, threads=128):
        scores = T.alloc_fragment((32, 64), "float32")
        mean = T.alloc_fragment((32,), "float32")
        T.copy(A, scores)
        T.reduce(scores, mean, "mean", dim=1)


# --- what the user sees
# InvalidArgument: [TL117] T.reduce got an unknown kind
#   --> reduce_of_unknown_kind.py:12   T.reduce(scores, mean, "mean", dim=1)
#   found:    'mean'
#   expected: one of absmax, abssum, add, bitand, bitor, bitxor, max, min, mul, prod, product, sum, or a function with identity=
#   try:      T.reduce(tile, out, "sum", dim=1)
