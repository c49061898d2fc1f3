"""The obvious versions, in float64, and how far the operators may be from them."""

from __future__ import annotations

import torch

#: Largest error relative to |expected| plus the root mean square of `expected`: a few roundings of the type.
TOLERANCES = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-6, activation: str | None = None
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, then SiLU if asked for; float64."""
    x, weight = x.double(), weight.double()
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
    return y * torch.sigmoid(y) if activation == "silu" else y


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, *, eps: float = 1e-5
) -> torch.Tensor:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias; float64."""
    x = x.double()
    x = x - x.mean(-1, keepdim=True)
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    y = y if weight is None else y * weight.double()
    return y if bias is None else y + bias.double()


def softmax(x: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    """exp(x - max(x)) / sum(exp(x - max(x))); float64."""
    x = x.double()
    y = torch.exp(x - x.amax(dim, keepdim=True))
    return y / y.sum(dim, keepdim=True)
