"""A kernel for a GPU with more threads than the hardware runs in a block."""

import tilelang
import tilelang.language as T


@T.prim_func
def double(A: T.Tensor((4096,), "float32")):
    with T.Kernel(1, threads=2048):
        for i in T.Parallel(4096):
            A[i] *= 2


tilelang.compile(double, target="cuda -arch=sm_80")


# --- what the user sees
# UnsupportedOnTarget: [TL203] T.Kernel has more threads than a block can have
#   --> more_threads_than_a_block_has.py:9   with T.Kernel(1, threads=2048):
#   found:    2048 threads
#   expected: at most 1024 threads in a block
#   try:      T.Kernel(..., threads=128): a thread computes several elements of a tile
