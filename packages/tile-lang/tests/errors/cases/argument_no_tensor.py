"""A call with a number for a tensor."""

import tilelang
import tilelang.language as T


@T.prim_func
def clear(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


kernel = tilelang.compile(clear, execution="interpret")
kernel(3.0)


# --- what the user sees
# ArgumentTypeError: TLR011: clear.A is expected to be a tensor (numpy, torch or any array with __dlpack__) of dtype float32, but got float
