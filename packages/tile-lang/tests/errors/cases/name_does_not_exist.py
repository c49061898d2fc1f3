"""A name that nobody defines."""

import tilelang.language as T

scale = 2.0


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            A[i] = A[i] * scael


# --- what the user sees
# UndefinedName: [TL105] scael is not defined
#   --> name_does_not_exist.py:12   A[i] = A[i] * scael
#   found:    no local name, name of an enclosing function, or global of that spelling
#   expected: a name that is assigned or imported before this line
#   try:      did you mean scale?
