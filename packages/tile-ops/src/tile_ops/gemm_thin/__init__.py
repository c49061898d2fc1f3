"""Products of one column, or of few rows, on GPUs, without matrix instructions: how `gemm` multiplies where its rules say so.

A matrix instruction has 16 rows and columns at least, and where rows begin anywhere, single elements fill its tiles.
"""
