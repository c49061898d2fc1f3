"""`matmul` on torch tensors."""

from __future__ import annotations

from functools import cache

import torch

from tile_ops.kernel import target_of
from tile_ops.operator import Operator

from .configs import plan
from .gradients import backward, setup_context
from .operands import operands, result_shape
from .problem import FLOAT8, GemmProblem, check, scaling

MATMUL = Operator(
    "matmul",
    GemmProblem.of,
    plan,
    lambda a, b, bias=None, out=None, scale_a=None, scale_b=None, **_: target_of(a, b, bias, out, scale_a, scale_b),
)
_FLOAT8 = tuple(getattr(torch, name) for name in FLOAT8)


@MATMUL.public
def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
) -> torch.Tensor:
    """activation(a @ b + bias), as torch.matmul for operands of two dimensions and more.

    a: (..., m, k), b: (..., k, n), bias: (n,), result: (..., m, n); leading dimensions broadcast. float16, bfloat16 and
    float32 (result: any of them, by default that of the operands), float8_e4m3 (result bfloat16, float16 or float32), int8
    (result int32). `activation` is None, "relu", "gelu" (by the error function) or "silu". `out` is written and returned;
    its rows must be contiguous.

    `scale_a`, `scale_b`, float32, for float8 and int8 with one matrix b, multiply the operands: one number for a tensor;
    (..., m) and (n,) for rows of a and columns of b; or, float8 only, (..., m, k / 128) and (k / 128, n / 128), rounded up,
    for blocks of 128 along k and 128 x 128. Then results are bfloat16, float16 or float32.

    Operands are read in place if their rows or their columns are contiguous (so a.mT costs nothing) and the leading
    dimensions collapse; others are copied first. Products are summed in float32 (int32 for int8), scales, bias and
    activation are applied there, and the result is rounded once. float32 operands are rounded to tf32 on NVIDIA if
    torch.backends.cuda.matmul.allow_tf32 says so. Equal calls give equal bits. Tiles, splits and so the order of a sum
    depend on the shapes of the call. Empty tensors give an empty result, k = 0 activation(bias).

    Differentiable in a, b and bias, once, without `out` and scales; with an activation the backward computes the product
    again. Raises WrongShape, WrongDtype, WrongStride (out), WrongValue, WrongDevice.
    """
    if out is not None:
        torch.ops.tile_ops.matmul_out(a, b, bias, activation, out_dtype, scale_a, scale_b, out)
        return out
    if scale_a is not None or scale_b is not None or a.dtype in _FLOAT8:
        return torch.ops.tile_ops.scaled_matmul(a, b, bias, activation, out_dtype, scale_a, scale_b)
    return torch.ops.tile_ops.matmul(a, b, bias, activation, out_dtype)


@torch.library.custom_op("tile_ops::matmul", mutates_args=())
def _matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    dtype = check(a, b, bias, activation, out_dtype)
    out = a.new_empty(result_shape("matmul", a, b), dtype=dtype)
    _run(out, a, b, bias, activation)
    return out


@_matmul.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    return a.new_empty(result_shape("matmul", a, b), dtype=check(a, b, bias, activation, out_dtype))


@torch.library.custom_op("tile_ops::scaled_matmul", mutates_args=())
def _scaled_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
) -> torch.Tensor:
    dtype = check(a, b, bias, activation, out_dtype, None, scale_a, scale_b)
    out = a.new_empty(result_shape("matmul", a, b), dtype=dtype)
    _run(out, a, b, bias, activation, scale_a, scale_b)
    return out


@_scaled_matmul.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
) -> torch.Tensor:
    dtype = check(a, b, bias, activation, out_dtype, None, scale_a, scale_b)
    return a.new_empty(result_shape("matmul", a, b), dtype=dtype)


@torch.library.custom_op("tile_ops::matmul_out", mutates_args=("out",))
def _matmul_out(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    check(a, b, bias, activation, out_dtype, out, scale_a, scale_b)
    _run(out, a, b, bias, activation, scale_a, scale_b)


@_matmul_out.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    check(a, b, bias, activation, out_dtype, out, scale_a, scale_b)


@torch.library.custom_op("tile_ops::matmul_gradient", mutates_args=())
def _matmul_gradient(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str, grad: torch.Tensor
) -> torch.Tensor:
    """grad * activation'(a @ b + bias); `grad` is of the operands' type."""
    check(a, b, bias, activation, grad.dtype)
    out = torch.empty_like(grad, memory_format=torch.contiguous_format)
    _run(out, a, b, bias, activation, grad=grad)
    return out


@_matmul_gradient.register_fake
def _(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str, grad: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(grad, memory_format=torch.contiguous_format)


def _run(
    out: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    grad: torch.Tensor | None = None,
) -> None:
    """Writes the product of checked operands into `out`."""
    target = target_of(a, b, bias, out, scale_a, scale_b)
    if not out.numel():
        return
    given = operands("matmul", a, b)
    scales = scaling(a, b, scale_a, scale_b)
    problem = GemmProblem.arranged(given, bias, activation, out.dtype, scales, grad is not None)
    chosen = MATMUL.choose(problem, target)
    shape = (given.batch, given.m, given.n)
    unused = _unused(out.device)
    added = unused if bias is None else bias.contiguous()
    if "splits" in chosen.numbers:
        partial = out.new_empty((chosen.numbers["splits"], given.m, given.n), dtype=torch.float32)
        chosen["parts"](given.a, given.b, partial, chosen.numbers["steps"])
        chosen["combine"](partial, added, out.view(shape))
        return
    of_a = _scales(scale_a, scales, given.m, unused)
    of_b = _scales(scale_b, scales, given.n, unused)
    slopes_of = unused if grad is None else grad.reshape(shape).contiguous()
    chosen["product"](given.a, given.b, of_a, of_b, added, slopes_of, out.view(shape), given.repeat)


def _scales(scale: torch.Tensor | None, scales: str | None, extent: int, unused: torch.Tensor) -> torch.Tensor:
    """As the kernel takes them: one for each row, which all may be the same one, or those of blocks."""
    if scale is None:
        return unused
    if scales == "rows":
        return scale.reshape(-1).expand(extent)
    return scale.reshape(-1, scale.shape[-1]).contiguous()


@cache
def _unused(device: torch.device) -> torch.Tensor:
    """What a parameter takes that the kernel does not use: tensors for all keep to the launcher's fast path."""
    return torch.empty(1, device=device)


_matmul.register_autocast("cuda", torch.float16)
_matmul.register_autocast("cpu", torch.bfloat16)
_matmul.register_autograd(backward, setup_context=setup_context)
