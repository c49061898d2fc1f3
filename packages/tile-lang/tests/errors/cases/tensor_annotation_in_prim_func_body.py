"""The eager style's annotation in a T.prim_func."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    A: T.Tensor((64,), "float32")
    with T.Kernel(1, threads=64):
        T.clear(A)


# --- what the user sees
# UnsupportedConstruct: [TL102] A is annotated as a tensor in the body of a T.prim_func
#   --> tensor_annotation_in_prim_func_body.py:8   A: T.Tensor((64,), "float32")
#   expected: tensor annotations in the signature
#   try:      move the annotation to the parameter, or use the eager style: @tilelang.jit without T.prim_func
