"""Products of large float32 matrices on CPUs, by panels: how `gemm` multiplies where its rules say so.

B is copied once, into panels whose rows lie together, for all rows of A. A block copies a piece of A into the second cache
and multiplies it by panel after panel, straight into C. After K. Goto and R. van de Geijn, "Anatomy of high-performance
matrix multiplication", ACM TOMS 34(3), 2008.
"""
