"""Linear attention: plain, with a decay per head (retention) or token, with a gate per channel of the keys."""

from .api import linear_attention

__all__ = ["linear_attention"]
