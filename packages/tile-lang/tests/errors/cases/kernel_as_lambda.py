"""A kernel written as a lambda."""

import tilelang.language as T

kernel = T.prim_func(lambda A: T.clear(A))


# --- what the user sees
# SourceUnavailable: [TL101] the source of <lambda> is no function definition
#   --> kernel_as_lambda.py:5   kernel = T.prim_func(lambda A: T.clear(A))
#   found:    text at kernel_as_lambda.py:5
#   expected: `def name(...):`
#   try:      write the kernel with def
