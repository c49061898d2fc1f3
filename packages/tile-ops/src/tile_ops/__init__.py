"""Operators on torch tensors, made of tile kernels."""

__version__ = "0.1.0"
