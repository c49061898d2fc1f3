"""Products of large float32 matrices on CPUs, and of int8, by panels: how `gemm` multiplies where its rules say so.

A block copies a piece of A into the second cache and multiplies it by panel after panel of B, straight into C; a panel is packed
from where B lies, once for all rows of the block. After K. Goto and R. van de Geijn, "Anatomy of high-performance matrix
multiplication", ACM TOMS 34(3), 2008.
"""
