"""Products with weights of a few bits, decoded on the way to the arithmetic."""

from .api import dequant_matmul
from .formats import pack
from .stored import NestedScales, from_awq, from_bitsandbytes, from_bitsandbytes_state, from_gptq
from .weights import QuantizedWeight, quantize

__all__ = [
    "NestedScales",
    "QuantizedWeight",
    "dequant_matmul",
    "from_awq",
    "from_bitsandbytes",
    "from_bitsandbytes_state",
    "from_gptq",
    "pack",
    "quantize",
]
