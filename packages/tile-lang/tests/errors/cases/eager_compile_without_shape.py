"""compile() of an eager kernel with a bare annotation, which has no shape."""

import tilelang
import tilelang.language as T


@tilelang.jit(execution="interpret")
def double(A: T.Tensor):
    with T.Kernel(1):
        T.clear(A)


double.compile()


# --- what the user sees
# BadAnnotation: [TL119] the shape of A is not known
#   --> eager_compile_without_shape.py:8   def double(A: T.Tensor):
#   found:    a bare annotation and no tensor argument
#   expected: a shape and dtype, or a tensor in the call
#   try:      annotate A: T.Tensor((M, N), 'float16'), or call the function with tensors
