"""`rms_norm`, `layer_norm` and `softmax` on torch tensors."""

from __future__ import annotations

import torch

from tile_ops.kernel import target_of
from tile_ops.operator import Operator
from tile_ops.registration import operation

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
    return _rms_norm(x, weight, eps, activation)


@operation("rms_norm")
def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, activation: str | None) -> torch.Tensor:
    call = RMS_NORM.call(x, weight, eps=eps, activation=activation)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if out.numel():
        rows, results = _rows(x).contiguous(), _rows(out)
        if "vector" in call.numbers:
            rows, results = (rows_of.view(-1, call.numbers["vector"]) for rows_of in (rows, results))
        call["forward"](rows, weight.contiguous(), results, eps)
    return out


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x if x.ndim == 2 else x.reshape(-1, x.shape[-1])


@_rms_norm.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, eps: float, activation: str | None) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_rms_norm.register_autocast()


LAYER_NORM = Operator(
    "layer_norm", NormProblem.of_layer_norm, plan, lambda x, weight=None, bias=None, **_: target_of(x, weight, bias)
)


@LAYER_NORM.public
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, *, eps: float = 1e-5
) -> torch.Tensor:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias over the last dimension.

    x: (..., channels), weight and bias: (channels,) or None, result: as x and contiguous; float16, bfloat16 or float32, all
    of one type. The mean is subtracted before squares are summed, all in float32; the result is rounded once. A row's
    result depends on that row alone, bit for bit. Empty tensors give an empty result. Raises WrongShape, WrongDtype,
    WrongValue, WrongDevice.

    Source: Ba, Kiros and Hinton, Layer Normalization, 2016, eq. 4.
    """
    return _layer_norm(x, weight, bias, eps)


@operation("layer_norm")
def _layer_norm(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    call = LAYER_NORM.call(x, weight, bias, eps=eps)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if out.numel():
        columns = call.problem.columns
        weight = x.new_ones(columns) if weight is None else weight.contiguous()
        bias = x.new_zeros(columns) if bias is None else bias.contiguous()
        call["forward"](_rows(x).contiguous(), weight, bias, _rows(out), eps)
    return out


@_layer_norm.register_fake
def _(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


SOFTMAX = Operator("softmax", NormProblem.of_softmax, plan, lambda x, **_: target_of(x))


@SOFTMAX.public
def softmax(x: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    """exp(x - max(x)) / sum(exp(x - max(x))) along `dim`.

    x and result of one shape, the result contiguous; float16, bfloat16 or float32. Computed in float32, rounded once. -inf
    gives 0, a row of -inf alone NaN. Any other dimension than the last is moved there by a copy, and back by a view. A
    row's result depends on that row alone, bit for bit. Empty tensors give an empty result. Raises WrongShape, WrongDtype.
    """
    return _softmax(x, dim)


@operation("softmax")
def _softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    call = SOFTMAX.call(x, dim=dim)
    rows = x.movedim(dim, -1).contiguous()
    out = torch.empty_like(rows)
    if out.numel():
        call["forward"](_rows(rows), _rows(out))
    return out.movedim(-1, dim).contiguous()


@_softmax.register_fake
def _(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


for _operator in (_layer_norm, _softmax):
    _operator.register_autocast()
