"""Normalization over the last dimension: RMSNorm, with SiLU if asked for."""

from .api import rms_norm

__all__ = ["rms_norm"]
