"""The obvious version, in float64, and how far the operator may be from it."""

from __future__ import annotations

import torch

from .formats import FORMATS, unpack

#: Largest error relative to |expected| plus the root mean square of `expected`: weights are rounded to the type of x
#: once, the result once more.
TOLERANCES = {"float16": 2e-3, "bfloat16": 1.6e-2}


def dequantize(
    weight: torch.Tensor, *, scales: torch.Tensor, zeros: torch.Tensor | None = None, format: str, group_size: int
) -> torch.Tensor:
    """The weights (n, k) that packed ones stand for: (value of the code - zero) * scale; float64."""
    kind = FORMATS[format]
    codes = unpack(weight, kind.bits).long()
    group = codes.shape[1] if group_size == -1 else group_size
    values = torch.tensor(kind.values(), dtype=torch.float64, device=weight.device)[codes]

    def spread(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.float().double().T.repeat_interleave(group, 1)[:, : codes.shape[1]]

    return (values if zeros is None else values - spread(zeros)) * spread(scales)


def dequant_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    scales: torch.Tensor,
    zeros: torch.Tensor | None = None,
    format: str,
    group_size: int,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """x @ dequantize(weight).T + bias; float64."""
    w = dequantize(weight, scales=scales, zeros=zeros, format=format, group_size=group_size)
    y = x.double() @ w.T
    return y if bias is None else y + bias.double()
