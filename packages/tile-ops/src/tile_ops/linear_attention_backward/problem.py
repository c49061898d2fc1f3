"""A backward pass as a value: what `linear_attention` was called with."""

from tile_ops.linear_attention.problem import AttentionProblem

__all__ = ["AttentionProblem"]
