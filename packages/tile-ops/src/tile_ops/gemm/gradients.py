"""The backward of `matmul`, by products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tile_ops.wanted import wanted, worth_asking

Operation = Callable[..., Any]


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keeps the operands."""
    a, b, bias, activation, _ = inputs
    ctx.save_for_backward(a, b, bias)
    ctx.activation = activation


def backward_by(
    matmul: Operation, slopes: Operation, both: Operation, with_bias: Operation
) -> Callable[..., tuple[torch.Tensor | None, ...]]:
    """What autograd calls, by the operators for a product and for the slopes of an activation: as they are, without the way
    through torch's dispatcher."""

    def product(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        found: torch.Tensor = matmul(a, b, None, None, dtype)
        return found

    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of a, b and bias. With an activation the product is computed again, as the result does not hold it."""
        a, b, bias = ctx.saved_tensors
        needs_a, needs_b, needs_bias = _needed(ctx, a.numel() * b.shape[-1])
        if grad.dtype != a.dtype:
            grad = grad.to(a.dtype)
        if ctx.activation is not None:
            grad = slopes(a, b, bias, ctx.activation, grad)
        if needs_a and needs_b and _at_once(a, b):
            if needs_bias and a.is_cpu:
                return *with_bias(a, b, grad, bias), None, None
            of_a, of_b = both(a, b, grad)
        else:
            of_a, of_b = _each(needs_a, needs_b, a, b, grad, product)
        of_bias = None
        if needs_bias:
            rows = rows_of(grad)
            of_bias = product(rows.new_ones(1, rows.shape[0]), rows, bias.dtype)[0]
        return of_a, of_b, of_bias, None, None

    return backward


def _at_once(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether one operation makes both gradients: without a graph of its own, as it has no backward."""
    return b.ndim == 2 and not torch.is_grad_enabled() and (a.ndim == 2 or not by_columns(a))


def _each(
    needs_a: bool,
    needs_b: bool,
    a: torch.Tensor,
    b: torch.Tensor,
    grad: torch.Tensor,
    product: Callable[..., torch.Tensor],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Gradients of a and b by products of their own."""
    of_a = of_b = None
    turned_a, turned_b = by_columns(a), by_columns(b)
    if needs_a:
        of_a = _gradient(product(b, grad.mT) if turned_a else product(grad, b.mT), a, turned_a, product)
    if needs_b:
        if b.ndim == 2:  # the product itself sums the leading dimensions
            a, grad = rows_of(a), rows_of(grad)
        of_b = _gradient(product(grad.mT, a) if turned_b else product(a.mT, grad), b, turned_b, product)
    return of_a, of_b


def _needed(ctx: Any, work: int) -> tuple[bool, bool, bool]:
    """Whether gradients of a, b and bias are: one of them is, or this would not be called."""
    of_a, of_b, of_bias = ctx.needs_input_grad[:3]
    if not (of_a and of_b) or not worth_asking(work):
        return of_a, of_b, of_bias
    of_b, of_bias = wanted(ctx, 1, 1), wanted(ctx, 2, 2)
    return not (of_b or of_bias) or wanted(ctx, 0, 0), of_b, of_bias


def by_columns(x: torch.Tensor) -> bool:
    """Whether x, and so its gradient, lies column by column, as a layer's transposed weight does: autograd would copy another
    one for the leaf that x is a view of."""
    return x.stride(-2) == 1 != x.stride(-1)


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """All rows of all matrices, which may have no element."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _gradient(found: torch.Tensor, x: torch.Tensor, turned: bool, product: Callable[..., torch.Tensor]) -> torch.Tensor:
    """The gradient of x: what a product found, or its transpose, summed over the dimensions along which x was broadcast."""
    if found.ndim > 2:
        found = _sum_to(found, x.mT.shape if turned else x.shape, product)
    return found.mT if turned else found


def _sum_to(x: torch.Tensor, shape: torch.Size, product: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Sums of the leading dimensions that `shape` has not, or has with extent 1: a row of ones times them."""
    if x.shape == shape:
        return x
    own = (1,) * (x.ndim - len(shape)) + tuple(shape)
    summed = [axis for axis in range(x.ndim) if own[axis] != x.shape[axis]]
    kept = [axis for axis in range(x.ndim) if axis not in summed]
    terms = math.prod(x.shape[axis] for axis in summed)
    rows = x.permute(*summed, *kept).reshape(terms, math.prod(x.shape[axis] for axis in kept))
    return product(rows.new_ones(1, terms), rows).reshape(shape)
