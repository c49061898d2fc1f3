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
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
) -> torch.Tensor:
    """activation((a * scale_a) @ (b * scale_b) + bias); float64."""
    a, b = a.double(), b.double()
    if scale_a is not None and scale_b is not None:
        blocks = scale_b.ndim == 2 and scale_b.shape[0] > 1
        a = a * (_spread(scale_a, a.shape[-1]) if blocks else scale_a.reshape(*_rows(scale_a, a), 1))
        b = b * (_spread(_spread(scale_b.mT, b.shape[0]).mT, b.shape[1]) if blocks else scale_b.reshape(-1))
    x = a @ b
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


def _rows(scale: torch.Tensor, a: torch.Tensor) -> torch.Size | tuple[int, ...]:
    return () if scale.numel() == 1 else a.shape[:-1]


def _spread(scale: torch.Tensor, extent: int) -> torch.Tensor:
    """Each scale 128 times along the last dimension."""
    return scale.repeat_interleave(128, -1)[..., :extent]
