"""Gradients of RMSNorm, LayerNorm and softmax, which autograd calls."""
