"""Operators on torch tensors, made of tile kernels."""

__version__ = "0.1.0"

from .normalization import rms_norm
from .operator import Explanation, explain

__all__ = ["Explanation", "explain", "rms_norm"]
