"""A kernel whose source cannot be read: made by exec()."""

import tilelang.language as T

TEXT = """
@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        T.clear(A)
"""

exec(TEXT, {"T": T})


# --- what the user sees
# SourceUnavailable: [TL101] the source of kernel cannot be read
#   --> <string>:2
#   found:    code from <string>
#   expected: a function in a file or a notebook cell
#   try:      put the kernel into a .py file (kernels typed at the prompt or made by exec() have no text)
