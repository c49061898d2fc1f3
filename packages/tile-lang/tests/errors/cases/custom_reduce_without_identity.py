"""T.reduce by a function without its identity."""

import tilelang.language as T


@T.prim_func
def rows(A: T.Tensor((32, 64), "float32")):
    with T.Kernel(1, threads=128):
        scores = T.alloc_fragment((32, 64), "float32")
        product = T.alloc_fragment((32,), "float32")
        T.copy(A, scores)
        T.reduce(scores, product, lambda a, b: a * b, dim=1)


# --- what the user sees
# InvalidArgument: [TL117] T.reduce with a function needs its identity
#   --> custom_reduce_without_identity.py:12   T.reduce(scores, product, lambda a, b: a * b, dim=1)
#   expected: identity=, the value x with f(x, y) = y
#   try:      T.reduce(tile, out, lambda a, b: a * b, dim, identity=1)
