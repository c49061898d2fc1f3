"""Products of float16 on CPUs whose tile registers multiply bfloat16: how `gemm` multiplies where its rules say so.

Each number is split into two of bfloat16; three of their four products are made, sixteen times as fast as one of float32 would be
(Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter 20). After G. Henry, P. T. P. Tang and A. Heinecke,
"Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", ARITH 2019.
"""
