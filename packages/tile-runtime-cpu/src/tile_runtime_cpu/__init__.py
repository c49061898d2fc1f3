"""Runs tile kernels on an x86-64 CPU: loads LLVM's objects without a linker and launches grids on a native pool."""

__version__ = "0.1.0"
