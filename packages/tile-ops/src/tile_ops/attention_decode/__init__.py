"""Attention of one new token over a paged cache."""

from .api import flash_decode

__all__ = ["flash_decode"]
