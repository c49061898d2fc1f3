"""Products with weights of a few bits, decoded on the way to the arithmetic."""

from .api import dequant_matmul
from .formats import pack
from .weights import QuantizedWeight, quantize

__all__ = ["QuantizedWeight", "dequant_matmul", "pack", "quantize"]
