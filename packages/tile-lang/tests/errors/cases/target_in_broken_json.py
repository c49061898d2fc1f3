"""A target in text that starts like JSON and is none."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, target='{"kind": "cuda"')


# --- what the user sees
# UnknownTarget: [TL124] '{"kind": "cuda"' is no target
#   --> target_in_broken_json.py:13   tilelang.compile(kernel, target='{"kind": "cuda"')
#   found:    it starts like JSON and is none: Expecting ',' delimiter at column 16
#   expected: "auto", "cpu" (also "llvm", "c"), "cuda", "hip", with options such as "cuda -arch=sm_90a"
#   try:      target="cpu"
