"""Gradients of the Mamba-2 scan; `state_space` registers them."""
