"""`tile_ops::rms_norm_backward`, `layer_norm_backward`, `softmax_backward`, which autograd calls."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tile_ops.again import offer
from tile_ops.constants import constant
from tile_ops.kernel import target_of
from tile_ops.normalization.api import (
    layer_norm_operation,
    layer_norm_with_statistics,
    rms_norm_operation,
    rows_of,
    softmax_operation,
)
from tile_ops.operator import Call, Operator
from tile_ops.registration import operation, traced
from tile_ops.scratch import scratch

from .configs import plan
from .problem import NormBackwardProblem

RMS_NORM_BACKWARD = Operator(
    "rms_norm_backward", NormBackwardProblem.of, plan, lambda dy, x, weight, **_: target_of(dy, x, weight)
)


@operation("rms_norm_backward")
def rms_norm_backward(
    dy: Tensor, x: Tensor, weight: Tensor, eps: float, activation: str | None, sums: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of x and weight, the latter empty without `sums`. Sums over rows are made in float32 in an order that depends
    on the shape alone: the result is the same, bit for bit, in every run."""
    call = RMS_NORM_BACKWARD.call(dy, x, weight, eps=eps, activation=activation, sums=sums)
    return _launch(call, dy, x, weight, eps, (x.new_empty(x.shape[-1] if sums else 0),))


def _save_rms_norm(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.eps, ctx.activation = inputs
    ctx.save_for_backward(x, weight)


def _differentiate_rms_norm(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    sums = ctx.needs_input_grad[1]
    x, weight = ctx.saved_tensors
    found = None if traced() else _known_rms_norm(dy, x, weight, ctx.eps, ctx.activation, sums)
    dx, dweight = rms_norm_backward(dy, x, weight, ctx.eps, ctx.activation, sums) if found is None else found
    return dx, dweight if sums else None, None, None


rms_norm_operation.register_autograd(_differentiate_rms_norm, setup_context=_save_rms_norm)


@rms_norm_backward.register_fake
def _(dy: Tensor, x: Tensor, weight: Tensor, eps: float, activation: str | None, sums: bool) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[-1] if sums else 0)


LAYER_NORM_BACKWARD = Operator(
    "layer_norm_backward",
    NormBackwardProblem.of_layer_norm,
    plan,
    lambda dy, x, weight, statistics, **_: target_of(dy, x, weight, statistics),
)


@operation("layer_norm_backward")
def layer_norm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, statistics: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias. Same order of sums as `rms_norm_backward`. `statistics`: those of
    `layer_norm_with_statistics`."""
    call = LAYER_NORM_BACKWARD.call(dy, x, weight, statistics, sums=True)
    columns = x.shape[-1]
    neutral = constant(columns, 1.0, x.dtype, x.device)
    totals = x.new_empty(columns), x.new_empty(columns)
    return _launch(call, dy, x, neutral if weight is None else weight, 0.0, totals, statistics, neutral)


@operation("layer_norm_x_backward")
def layer_norm_x_backward(dy: Tensor, x: Tensor, weight: Tensor | None, statistics: Tensor) -> Tensor:
    """Gradient of x alone, with weights that are frozen."""
    call = LAYER_NORM_BACKWARD.call(dy, x, weight, statistics, sums=False)
    neutral = constant(x.shape[-1], 1.0, x.dtype, x.device)
    return _launch(call, dy, x, neutral if weight is None else weight, 0.0, (), statistics, neutral)[0]


def _save_layer_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, _, _ = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate_layer_norm(ctx: Any, dy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return None, None, None, None
    return _layer_norm_gradients(ctx.needs_input_grad, dy, *ctx.saved_tensors)


layer_norm_with_statistics.register_autograd(_differentiate_layer_norm, setup_context=_save_layer_norm)


def _save_without_statistics(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _differentiate_without_statistics(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    """Of a graph that was exported without gradients."""
    x, weight = ctx.saved_tensors
    with torch.no_grad():
        _, statistics = layer_norm_with_statistics(x, None, None, ctx.eps)
    return _layer_norm_gradients(ctx.needs_input_grad, dy, x, weight, statistics)


layer_norm_operation.register_autograd(_differentiate_without_statistics, setup_context=_save_without_statistics)


def _layer_norm_gradients(
    needed: tuple[bool, ...], dy: Tensor, x: Tensor, weight: Tensor | None, statistics: Tensor
) -> tuple[Tensor | None, ...]:
    """Those of x, weight, bias and eps."""
    _, of_weight, of_bias, _ = needed
    if not (of_weight or of_bias):
        alone = None if traced() else _known_layer_norm_x(dy, x, weight, statistics)
        return layer_norm_x_backward(dy, x, weight, statistics) if alone is None else alone, None, None, None
    found = None if traced() else _known_layer_norm(dy, x, weight, statistics)
    dx, dweight, dbias = layer_norm_backward(dy, x, weight, statistics) if found is None else found
    return dx, dweight if of_weight else None, dbias if of_bias else None, None


@layer_norm_backward.register_fake
def _(dy: Tensor, x: Tensor, weight: Tensor | None, statistics: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[-1]), x.new_empty(x.shape[-1])


@layer_norm_x_backward.register_fake
def _(dy: Tensor, x: Tensor, weight: Tensor | None, statistics: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _launch(
    call: Call[NormBackwardProblem],
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    eps: float,
    totals: tuple[Tensor, ...],
    statistics: Tensor | None = None,
    *constants: Tensor,
) -> tuple[Tensor, ...]:
    """dx, and the sums over rows in `totals`, which are empty if they are not asked for. `statistics` are those that a forward
    pass left, if it does."""
    sums, columns, dx = call.problem.sums, x.shape[-1], x.new_empty(x.shape)
    if not x.numel():
        return dx, *(total.zero_() for total in totals)
    kept = call.target.kind == "cpu" and sums
    shape = (len(totals) if sums else 0, call.numbers["parts"], columns)
    elements = math.prod(shape)
    partial = scratch(elements) if kept else x.new_empty(shape, dtype=torch.float32)

    def parts(partial: Tensor) -> Tensor:
        return partial[:elements].view(shape) if kept else partial

    def views(x: Tensor, weight: Tensor, dy: Tensor, statistics: Tensor, *results: Tensor) -> tuple[Tensor, ...]:
        rest = (rows_of(y) if y is dx else parts(y) for y in results)
        return rows_of(x), weight, rows_of(dy), statistics[..., None], *rest

    x, weight, dy = x.contiguous(), weight.contiguous(), dy.contiguous()
    temporary = (partial,) if sums and not kept else ()
    if statistics is None:  # the long rows' are for their sums over columns
        statistics = x.new_empty((0 if "rows" in call else 2, x.numel() // columns), dtype=torch.float32)
        temporary += (statistics,) if statistics.numel() else ()
    if "rows" in call:
        call.run("rows", x, weight, dy, statistics, dx, partial, numbers=(eps,), views=views)
    else:
        call.run("long_rows", x, weight, dy, statistics, dx, numbers=(eps,), views=views)
        if sums:
            call.run("columns", x, weight, dy, statistics, partial, views=views)
    if sums:
        both = totals if len(totals) == 2 else (*totals, x.new_empty(0))
        call.run("sum", partial, *both, views=lambda partial, *both: (parts(partial), *both))
    offer(dx, *totals, temporary=temporary, scratch=(partial, elements) if kept else None, constants=constants)
    return dx, *totals


SOFTMAX_BACKWARD = Operator(
    "softmax_backward", NormBackwardProblem.of_softmax, plan, lambda dy, y, **_: target_of(dy, y)
)


@operation("softmax_backward")
def softmax_backward(dy: Tensor, y: Tensor, dim: int) -> Tensor:
    """Gradient of softmax's operand from its result `y`; contiguous."""
    call = SOFTMAX_BACKWARD.call(dy, y, dim=dim)
    last = dim in (-1, y.ndim - 1) or not y.ndim
    y, dy = (t.contiguous() if last else t.movedim(dim, -1).contiguous() for t in (y, dy))
    dx = y.new_empty(y.shape)
    if dx.numel():
        call.run("rows", y, dy, dx, views=lambda *tensors: tuple(map(rows_of, tensors)))
        offer(dx)
    return dx if last else dx.movedim(-1, dim).contiguous()


@softmax_backward.register_fake
def _(dy: Tensor, y: Tensor, dim: int) -> Tensor:
    return y.new_empty(y.shape)


def _save_softmax(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.dim = inputs[1]
    ctx.save_for_backward(output)


def _differentiate_softmax(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    (y,) = ctx.saved_tensors
    found = None if traced() else _known_softmax(dy, y, ctx.dim)
    return softmax_backward(dy, y, ctx.dim) if found is None else found, None


softmax_operation.register_autograd(_differentiate_softmax, setup_context=_save_softmax)


# Autograd asks native code without the functions of Python between: what these read is no longer in a cache beside operands of
# its size, 5 us of the 155 of a LayerNorm's 2048 rows of 72 (docs/performance/cpu.md).
_known_rms_norm = rms_norm_backward.again.call
rms_norm_backward.again.is_global(globals(), "_known_rms_norm")
_known_layer_norm = layer_norm_backward.again.call
layer_norm_backward.again.is_global(globals(), "_known_layer_norm")
_known_layer_norm_x = layer_norm_x_backward.again.call
layer_norm_x_backward.again.is_global(globals(), "_known_layer_norm_x")
_known_softmax = softmax_backward.again.call
softmax_backward.again.is_global(globals(), "_known_softmax")
