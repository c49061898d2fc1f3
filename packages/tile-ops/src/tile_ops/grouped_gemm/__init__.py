"""Products of groups of rows with a matrix each."""

from .api import grouped_matmul

__all__ = ["grouped_matmul"]
