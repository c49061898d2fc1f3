"""A tile operator for some threads of the block only."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        tile = T.alloc_shared((64,), "float32")
        if tx < 32:
            T.copy(A, tile)


tilelang.compile(kernel, execution="interpret")


# --- what the user sees
# BarrierDivergence: [TL130] T.copy stands under a condition that differs between the threads of the block
#   --> operator_under_thread_condition.py:13   T.copy(A, tile)
#   found:    the condition or bound `tx < 32`
#   expected: all threads of the block, or none, reach work that they do together
#   try:      move T.copy out of the `if`, or write the threads' part with plain loads and stores
