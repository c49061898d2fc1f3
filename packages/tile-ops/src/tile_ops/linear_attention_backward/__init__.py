"""Gradients of linear attention; `linear_attention` registers them."""
