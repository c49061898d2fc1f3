"""`+=` on a whole buffer."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        acc = T.alloc_fragment((64,), "float32")
        acc += 1


# --- what the user sees
# AssignToParameter: [TL107] acc is a buffer and is changed as a whole
#   --> buffer_changed_as_a_whole.py:10   acc += 1
#   found:    `acc += ...`
#   expected: elements
#   try:      write the loop: `for i in T.Parallel(...): acc[i] += ...`
