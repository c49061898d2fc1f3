"""Products of bfloat16 matrices on CPUs that multiply halves in pairs, and of int8 in tile registers: how `gemm` multiplies where
its rules say so.

A is read where it lies, a few rows at a time; of B a narrow tile is turned or interleaved for all rows of a block, and the
lines of the next one are fetched meanwhile. A transposed A, whose pairs lie apart, is turned first.
"""
