"""A dynamic dimension of a type that is no index."""

import tilelang.language as T

m = T.dynamic("m", "float32")


# --- what the user sees
# InvalidArgument: [TL117] a dynamic dimension is int32 or int64
#   --> dynamic_dimension_of_a_float_type.py:5   m = T.dynamic("m", "float32")
#   found:    float32
#   try:      drop the dtype
