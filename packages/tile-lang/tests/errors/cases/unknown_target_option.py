"""A target with an option that it does not have."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, target="cuda -sm=90")


# --- what the user sees
# UnknownTarget: [TL124] target 'cuda' has no option 'sm'
#   --> unknown_target_option.py:13   tilelang.compile(kernel, target="cuda -sm=90")
#   found:    'cuda -sm=90'
#   expected: -arch=, -mcpu=
#   try:      drop -sm
