"""Gradients of attention."""

from .api import flash_attention_backward, flash_attention_varlen_backward

__all__ = ["flash_attention_backward", "flash_attention_varlen_backward"]
