"""Normalization of rows: RMSNorm, with SiLU if asked for, LayerNorm, softmax."""

from .api import layer_norm, rms_norm, softmax

__all__ = ["layer_norm", "rms_norm", "softmax"]
