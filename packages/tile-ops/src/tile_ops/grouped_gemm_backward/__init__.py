"""Gradients of products of groups, which autograd calls."""
