"""Mamba-2: the scan of a state space model with one decay per head, and its two matrix kernels."""

from .api import chunk_scan, chunk_state, ssd_scan

__all__ = ["chunk_scan", "chunk_state", "ssd_scan"]
