"""The backward of `dequant_matmul`: dx = dy @ W, W decoded once, as adapters of frozen packed weights need it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tile_ops.gemm import matmul
from tile_ops.kernel import target_of, threads_of
from tile_ops.operator import Operator
from tile_ops.registration import operation

from .configs import plan_backward
from .formats import FORMATS
from .operands import empty_rows, no_zeros, values
from .problem import DequantProblem

DEQUANT_MATMUL_BACKWARD = Operator(
    "dequant_matmul_backward",
    DequantProblem.of_gradient,
    plan_backward,
    lambda dy, weight, *, scales, zeros, **_: target_of(dy, weight, scales, zeros),
    lambda dy, *_, **__: threads_of(dy),
)


@operation("dequant_matmul_backward")
def dequant_matmul_backward(
    dy: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor | None, format: str, group_size: int
) -> Tensor:
    """dy @ W, (..., k), of dy's type: float16 or bfloat16, to which W is rounded. All of W is decoded at once: n * k elements of
    memory for the time of the call. Sums are in float32, rounded once, the same bits in every run."""
    call = DEQUANT_MATMUL_BACKWARD.call(dy, weight, scales=scales, zeros=zeros, format=format, group_size=group_size)
    m, n, k = call.problem.m, call.problem.n, call.problem.k
    dx = dy.new_empty((*dy.shape[:-1], k))
    if not dx.numel():
        return dx
    if not n:
        return dx.zero_()
    words = weight.view(torch.uint32)
    decoded = empty_rows(dy, n, words, k, call.target)
    call["decode"](
        words, scales, no_zeros(dy.device) if zeros is None else zeros, values(format, dy.device), decoded, 0
    )
    matmul(dy.reshape(m, n), decoded.view(n, k), out=dx.view(m, k))
    return dx


@dequant_matmul_backward.register_fake
def _(dy: Tensor, weight: Tensor, scales: Tensor, zeros: Tensor | None, format: str, group_size: int) -> Tensor:
    return dy.new_empty((*dy.shape[:-1], weight.shape[1] * FORMATS[format].per_byte))


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keeps the packed weight and its scales."""
    x, weight, scales, zeros, ctx.format, ctx.group_size, bias, _ = inputs
    ctx.dtype, ctx.bias_dtype = x.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(weight, scales, zeros)


def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients of x and bias."""
    needs_x, _, needs_scales, _, _, _, needs_bias, _ = ctx.needs_input_grad
    if needs_scales:
        raise RuntimeError("dequant_matmul has no gradient of scales; pass scales.detach()")
    dy = dy.to(ctx.dtype) if ctx.dtype.is_floating_point else dy
    dx = dbias = None
    if needs_x:
        dx = dequant_matmul_backward(dy, *ctx.saved_tensors, ctx.format, ctx.group_size)
    if needs_bias:
        rows = dy.reshape(-1, dy.shape[-1])
        dbias = torch.ops.tile_ops.matmul(rows.new_ones(1, rows.shape[0]), rows, None, None, ctx.bias_dtype)[0]
    return dx, None, None, None, None, None, dbias, None
