"""Matrix products."""

from .api import matmul

__all__ = ["matmul"]
