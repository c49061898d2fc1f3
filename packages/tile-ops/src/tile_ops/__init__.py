"""Operators on torch tensors, made of tile kernels."""

__version__ = "0.1.0"

from .attention import flash_attention, flash_attention_varlen
from .family import Family, families
from .gemm import matmul
from .normalization import rms_norm
from .operator import Explanation, explain

__all__ = [
    "Explanation",
    "Family",
    "explain",
    "families",
    "flash_attention",
    "flash_attention_varlen",
    "matmul",
    "rms_norm",
]
