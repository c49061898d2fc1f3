"""Attention: softmax(scale * Q K^T) V without the scores ever leaving the chip."""

from .api import flash_attention, flash_attention_varlen

__all__ = ["flash_attention", "flash_attention_varlen"]
