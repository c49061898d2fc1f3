"""Operators on torch tensors, made of tile kernels."""

__version__ = "0.1.0"

from .attention import flash_attention, flash_attention_varlen
from .attention_backward import flash_attention_backward, flash_attention_varlen_backward
from .attention_decode import flash_decode
from .dequantize import (
    NestedScales,
    QuantizedWeight,
    dequant_matmul,
    from_awq,
    from_bitsandbytes,
    from_bitsandbytes_state,
    from_gptq,
    pack,
    quantize,
)
from .family import Family, families
from .gemm import matmul
from .grouped_gemm import grouped_matmul
from .grouped_gemm_backward import api as _group_gradients  # registers them
from .linear_attention import linear_attention
from .mla import mla_decode, mla_prefill
from .normalization import layer_norm, rms_norm, softmax
from .normalization_backward import api as _norm_gradients  # registers them
from .operator import Explanation, explain
from .state_space import chunk_scan, chunk_state, ssd_scan, ssd_step

__all__ = [
    "Explanation",
    "Family",
    "NestedScales",
    "QuantizedWeight",
    "chunk_scan",
    "chunk_state",
    "dequant_matmul",
    "explain",
    "families",
    "flash_attention",
    "flash_attention_backward",
    "flash_attention_varlen",
    "flash_attention_varlen_backward",
    "flash_decode",
    "from_awq",
    "from_bitsandbytes",
    "from_bitsandbytes_state",
    "from_gptq",
    "grouped_matmul",
    "layer_norm",
    "linear_attention",
    "matmul",
    "mla_decode",
    "mla_prefill",
    "pack",
    "quantize",
    "rms_norm",
    "softmax",
    "ssd_scan",
    "ssd_step",
]
