"""`rms_norm` on torch tensors."""

from __future__ import annotations

import torch

from tile_ops.kernel import target_of
from tile_ops.operator import Operator

from .configs import plan
from .problem import NormProblem

RMS_NORM = Operator("rms_norm", NormProblem.of, plan, lambda x, weight, **_: target_of(x, weight))


@RMS_NORM.public
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-6, activation: str | None = None
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, then y * sigmoid(y) if `activation` is "silu".

    x: (..., channels), weight: (channels,), result: as x and contiguous; float16, bfloat16 or float32, all of one
    type. Squares are summed in float32 and the result is rounded once. A row's result depends on that row alone, bit
    for bit. Empty tensors give an empty result. Raises WrongShape, WrongDtype, WrongValue, WrongDevice.

    Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019, eq. 4.
    """
    return torch.ops.tile_ops.rms_norm(x, weight, eps, activation)


@torch.library.custom_op("tile_ops::rms_norm", mutates_args=())
def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, activation: str | None) -> torch.Tensor:
    problem = NormProblem.of(x, weight, eps=eps, activation=activation)
    target = target_of(x, weight)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if out.numel():
        shape = (problem.rows, problem.columns)
        chosen = RMS_NORM.choose(problem, target)
        chosen["forward"](x.reshape(shape).contiguous(), weight.contiguous(), out.view(shape), eps)
    return out


@_rms_norm.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, eps: float, activation: str | None) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_rms_norm.register_autocast("cuda", torch.float16)
_rms_norm.register_autocast("cpu", torch.bfloat16)
