"""Products of small float32 matrices on CPUs, all where they lie: how `gemm` multiplies where its rules say so.

What a copy of a tile costs is paid back by the products that share it; of small matrices few do. Register tiles read rows of A
and of B from the tensors and write C there, and end where the tensors end. And products of few rows of any type by transposed
matrices, which are read from memory once.
"""
