"""An execution with a slip of the pen."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, execution="interpreted")


# --- what the user sees
# UnknownOption: [TL125] unknown execution
#   --> unknown_execution.py:13   tilelang.compile(kernel, execution="interpreted")
#   found:    'interpreted'
#   expected: device, interpret, emulate
#   try:      execution="interpret", or TILELANG_EXECUTION=interpret for a whole program
