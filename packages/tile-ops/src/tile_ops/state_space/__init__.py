"""Mamba-2: the scan of a state space model with one decay per head, its two matrix kernels, and the step of a token."""

from .api import chunk_scan, chunk_state, ssd_scan, ssd_step

__all__ = ["chunk_scan", "chunk_state", "ssd_scan", "ssd_step"]
