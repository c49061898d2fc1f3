"""`tile_ops::grouped_weight_gradient`, and how autograd differentiates `grouped_matmul`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tile_ops.gemm import matmul
from tile_ops.gemm.gradients import by_columns
from tile_ops.grouped_gemm.api import grouped_operation
from tile_ops.kernel import target_of
from tile_ops.operator import Operator
from tile_ops.registration import operation
from tile_ops.wanted import wanted, worth_asking

from .configs import plan
from .problem import WeightGradientProblem

WEIGHT_GRADIENT = Operator(
    "grouped_weight_gradient", WeightGradientProblem.of, plan, lambda x, dy, group_sizes: target_of(x, dy, group_sizes)
)


@operation("grouped_weight_gradient")
def grouped_weight_gradient(x: Tensor, dy: Tensor, group_sizes: Tensor) -> Tensor:
    """x[rows of g].T @ dy[rows of g] for each group: (groups, k, n), of x's type, 0 for a group without rows. Sums in float32 in
    the order of rows: the same bits in every run."""
    call = WEIGHT_GRADIENT.call(x, dy, group_sizes)
    problem = call.problem
    dw = x.new_empty((problem.groups, problem.k, problem.n))
    if not dw.numel():
        return dw
    if not problem.tokens:
        return dw.zero_()
    if "gradient" not in call:
        _one_by_one(x, dy, group_sizes, dw)
        return dw
    # A multiple of 4: kernels take 16 bytes at once where every tensor's last extent says that they may.
    starts = torch.empty(-(-(problem.groups + 1) // 4) * 4, dtype=torch.int32, device=x.device)
    call["starts"](group_sizes.contiguous(), starts, problem.tokens)
    call["gradient"](x.contiguous(), dy.contiguous(), starts, dw)
    return dw


def _one_by_one(x: Tensor, dy: Tensor, group_sizes: Tensor, dw: Tensor) -> None:
    """A product for each group, whose sizes are read here: on a CPU."""
    begin = 0
    for group, size in enumerate(group_sizes.tolist()):
        end = min(begin + max(0, size), len(x))
        matmul(x[begin:end].mT, dy[begin:end], out=dw[group])  # 0 for no rows
        begin = end


@grouped_weight_gradient.register_fake
def _(x: Tensor, dy: Tensor, group_sizes: Tensor) -> Tensor:
    return x.new_empty((group_sizes.shape[0], x.shape[1], dy.shape[1]))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weights, group_sizes, _ = inputs
    ctx.save_for_backward(x, weights, group_sizes)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weights, group_sizes = ctx.saved_tensors
    needs_x, needs_weights = ctx.needs_input_grad[:2]
    if needs_x and needs_weights and worth_asking(x.numel() * weights.shape[2]):
        needs_weights = wanted(ctx, 1, 1)
        needs_x = not needs_weights or wanted(ctx, 0, 0)
    dy = dy.to(x.dtype)
    dx = grouped_operation(dy.contiguous(), weights.mT, group_sizes, None) if needs_x else None
    dw = None
    if needs_weights and by_columns(weights):
        dw = grouped_weight_gradient(dy, x, group_sizes).mT
    elif needs_weights:
        dw = grouped_weight_gradient(x, dy, group_sizes)
    return dx, dw, None, None


grouped_operation.register_autograd(_differentiate, setup_context=_save)
