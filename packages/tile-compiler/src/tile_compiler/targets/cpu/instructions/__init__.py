"""Declarations of the x86 instructions that GEMM kernels are made of. One form: shape, dtypes, text, meaning."""
