"""`from __future__ import annotations` with a name that is not visible."""

from __future__ import annotations

import tilelang.language as T


def factory(size):
    sizes = {"m": size}

    def inner():
        @T.prim_func
        def kernel(A: T.Tensor((sizes["m"],), "float32")):
            with T.Kernel(1, threads=64):
                T.clear(A)

        return kernel

    return inner()


factory(64)


# --- what the user sees
# BadAnnotation: [TL119] the annotation of A in kernel cannot be evaluated
#   --> text_annotation_of_a_hidden_name.py:13   def kernel(A: T.Tensor((sizes["m"],), "float32")):
#   found:    "T.Tensor((sizes['m'],), 'float32')": name 'sizes' is not defined
#   expected: names that are visible where the function is defined
#   try:      drop `from __future__ import annotations`, or use names of the enclosing function
