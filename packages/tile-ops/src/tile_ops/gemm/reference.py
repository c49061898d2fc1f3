"""The obvious product, in float64, and how far the operators may be from it."""

from __future__ import annotations

import torch

#: Largest error relative to |expected| plus the root mean square of `expected`, by the result's type: one rounding of
#: the type, and sums of some hundred products in float32.
TOLERANCES = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3, "int32": 0.0}


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """activation(a @ b + bias); float64."""
    x = a.double() @ b.double()
    return activate(x if bias is None else x + bias.double(), activation)


def activate(x: torch.Tensor, activation: str | None) -> torch.Tensor:
    """ReLU, GELU (by the error function) or SiLU of x."""
    if activation == "relu":
        return x.clamp_min(0)
    if activation == "gelu":
        return 0.5 * x * (1 + torch.special.erf(x * 0.5**0.5))
    if activation == "silu":
        return x * torch.sigmoid(x)
    return x
