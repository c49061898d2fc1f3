"""A name of the language that this release does not have."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        T.softmax(A)


# --- what the user sees
# NotInThisRelease: [TL131] T.softmax is not in this release
#   --> name_of_a_later_release.py:9   T.softmax(A)
#   found:    T.softmax, a name of the beginner level
#   expected: the names that `dir(tilelang.language)` lists
#   try:      write it with the operators that are there: T.copy, T.gemm, T.reduce_*, T.Parallel
