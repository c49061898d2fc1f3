"""`rms_norm`, `layer_norm` and `softmax` on torch tensors."""

from __future__ import annotations

import torch

from tile_ops.again import offer
from tile_ops.autocast import floats
from tile_ops.constants import constant
from tile_ops.kernel import target_of
from tile_ops.operands import refuse_other_types
from tile_ops.operator import Operator
from tile_ops.registration import operation

from .configs import plan
from .problem import NormProblem

RMS_NORM = Operator("rms_norm", NormProblem.of, plan, lambda x, weight, **_: target_of(x, weight), autocast=floats)


@RMS_NORM.public
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-6, activation: str | None = None
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, then y * sigmoid(y) if `activation` is "silu".

    x: (..., channels), weight: (channels,), result: as x and contiguous; float16, bfloat16 or float32, all of one
    type. Squares are summed in float32 and the result is rounded once. A row's result depends on that row alone, bit
    for bit; so does its gradient, and that of weight is summed in float32 in an order that the shape alone decides (on GPUs
    also whether all addresses are multiples of 16 bytes). Empty tensors give an empty result. Raises WrongShape, WrongDtype,
    WrongValue, WrongDevice.

    Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019, eq. 4.
    """
    return rms_norm_operation(x, weight, eps, activation)


@operation("rms_norm", public=rms_norm)
def rms_norm_operation(x: torch.Tensor, weight: torch.Tensor, eps: float, activation: str | None) -> torch.Tensor:
    call = RMS_NORM.call(x, weight, eps=eps, activation=activation)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if out.numel():

        def views(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, ...]:
            width = call.numbers.get("vector", x.shape[-1])
            return x.view(-1, width), weight, out.view(-1, width)

        call.run("forward", x.contiguous(), weight.contiguous(), out, numbers=(eps,), views=views)
        offer(out)
    return out


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """(..., channels) as (rows, channels); a number as (1, 1)."""
    return x if x.ndim == 2 else x.reshape(-1, *(x.shape[-1:] or (1,)))


@rms_norm_operation.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, eps: float, activation: str | None) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


rms_norm_operation.register_autocast()


def _layer_norm_operator() -> Operator[NormProblem]:
    return Operator(
        "layer_norm",
        NormProblem.of_layer_norm,
        plan,
        lambda x, weight=None, bias=None, **_: target_of(x, weight, bias),
        autocast=floats,
    )


#: Without and with statistics: the same kernels, but no calls in common, as those differ in a result's shape.
LAYER_NORM, _WITH_STATISTICS = _layer_norm_operator(), _layer_norm_operator()


@LAYER_NORM.public
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None, *, eps: float = 1e-5
) -> torch.Tensor:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias over the last dimension.

    x: (..., channels), weight and bias: (channels,) or None, result: as x and contiguous; float16, bfloat16 or float32, all
    of one type. The mean is subtracted before squares are summed, all in float32; the result is rounded once. A row's
    result depends on that row alone, bit for bit, with the exception that `rms_norm` names; gradients are as those of
    `rms_norm`. Empty tensors give an empty result. Raises WrongShape, WrongDtype, WrongValue, WrongDevice.

    Source: Ba, Kiros and Hinton, Layer Normalization, 2016, eq. 4.
    """
    try:
        recorded = x.requires_grad or (weight is not None and weight.requires_grad)
        recorded = recorded or (bias is not None and bias.requires_grad)
    except AttributeError:
        refuse_other_types("layer_norm", layer_norm, (x, weight, bias))
        raise
    if recorded and torch.is_grad_enabled():
        return layer_norm_with_statistics(x, weight, bias, eps)[0]
    return layer_norm_operation(x, weight, bias, eps)


@operation("layer_norm", public=layer_norm)
def layer_norm_operation(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    return _layer_norm(x, weight, bias, eps, 0)[0]


@layer_norm_operation.register_fake
def _(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@operation("layer_norm_with_statistics")
def layer_norm_with_statistics(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Also what its gradients need of the rows: float32, (2, rows), their means less their first elements, and
    1 / sqrt(variance + eps)."""
    return _layer_norm(x, weight, bias, eps, 2)


@layer_norm_with_statistics.register_fake
def _(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x, memory_format=torch.contiguous_format), _statistics(x, 2)


def _layer_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, kept: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the first `kept` statistics of rows."""
    call = (_WITH_STATISTICS if kept else LAYER_NORM).call(x, weight, bias, eps=eps)
    out, statistics = torch.empty_like(x, memory_format=torch.contiguous_format), _statistics(x, kept)
    if out.numel():
        columns = call.problem.columns
        neutral = [constant(columns, value, x.dtype, x.device) for value in (1.0, 0.0)]  # they change nothing
        weight, bias = (n if y is None else y.contiguous() for y, n in zip((weight, bias), neutral))

        def views(x: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
            weight, bias, out, statistics = others
            return rows_of(x), weight, bias, rows_of(out), statistics[..., None]

        call.run("forward", x.contiguous(), weight, bias, out, statistics, numbers=(eps,), views=views)
        offer(*(out, statistics)[: 2 if kept else 1], constants=neutral)
    return out, statistics


def _statistics(x: torch.Tensor, kept: int) -> torch.Tensor:
    columns = x.shape[-1]
    return x.new_empty((kept, x.numel() // columns if columns else 0), dtype=torch.float32)


SOFTMAX = Operator("softmax", NormProblem.of_softmax, plan, lambda x, **_: target_of(x), autocast=floats)


@SOFTMAX.public
def softmax(x: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    """exp(x - max(x)) / sum(exp(x - max(x))) along `dim`.

    x and result of one shape, the result contiguous; float16, bfloat16 or float32. Computed in float32, rounded once. -inf
    gives 0, a row of -inf alone NaN, a number without dimensions 1. Any other dimension than the last is moved there by a
    copy, and back by a view. A row's result depends on that row alone, bit for bit, with the exception that `rms_norm` names.
    Empty tensors give an empty result. Differentiable. Raises WrongShape, WrongDtype, WrongDevice.

    Source: the definition, with the largest element taken off first.
    """
    return softmax_operation(x, dim)


@operation("softmax", public=softmax)
def softmax_operation(x: torch.Tensor, dim: int) -> torch.Tensor:
    call = SOFTMAX.call(x, dim=dim)
    last = dim == -1 or dim == x.ndim - 1 or not x.ndim
    rows = x.contiguous() if last else x.movedim(dim, -1).contiguous()
    out = torch.empty_like(
        rows, memory_format=torch.contiguous_format
    )  # for another dimension `rows` is a copy: no offer
    if out.numel():
        call.run("forward", rows, out, views=lambda rows, out: (rows_of(rows), rows_of(out)))
        offer(out)
    return out if last else out.movedim(-1, dim).contiguous()


@softmax_operation.register_fake
def _(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


for _operator in (layer_norm_operation, layer_norm_with_statistics, softmax_operation):
    _operator.register_autocast()
