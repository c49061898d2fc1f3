"""A tile whose size is known only when the kernel runs."""

import tilelang.language as T

n = T.dynamic("n")


@T.prim_func
def kernel(A: T.Tensor((n,), "float32")):
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((n,), "float32")
        T.copy(A, tile)


# --- what the user sees
# InvalidArgument: [TL117] T.alloc_shared has a size that is known only when the kernel runs
#   --> allocation_of_dynamic_size.py:11   tile = T.alloc_shared((n,), "float32")
#   found:    T.dynamic("n")
#   expected: integers known at compile time
#   try:      allocate one tile of a fixed size and loop over tiles
