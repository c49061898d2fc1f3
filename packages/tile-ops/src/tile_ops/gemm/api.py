"""`matmul` on torch tensors."""

from __future__ import annotations

import torch

from tile_ops.kernel import target_of
from tile_ops.operator import Operator

from .configs import plan
from .operands import operands, result_shape
from .problem import GemmProblem, check

MATMUL = Operator("matmul", GemmProblem.of, plan, lambda a, b, bias=None, out=None, **_: target_of(a, b, bias, out))


@MATMUL.public
def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """activation(a @ b + bias), as torch.matmul for operands of two dimensions and more.

    a: (..., m, k), b: (..., k, n), bias: (n,), result: (..., m, n); leading dimensions broadcast. float16, bfloat16 and
    float32 (result: any of them, by default that of the operands), int8 (result int32). `activation` is None, "relu",
    "gelu" (by the error function) or "silu". `out` is written and returned; its rows must be contiguous.

    Operands are read in place if their rows or their columns are contiguous (so a.mT costs nothing) and the leading
    dimensions collapse; others are copied first. Products are summed in float32 (int32 for int8), bias and activation
    are applied there, and the result is rounded once. float32 operands are rounded to tf32 on NVIDIA if
    torch.backends.cuda.matmul.allow_tf32 says so. Equal calls give equal bits. Tiles and so the order of a sum depend
    on the shapes of the call. Empty tensors give an empty result, k = 0 activation(bias).

    Raises WrongShape, WrongDtype, WrongStride (out), WrongValue, WrongDevice.
    """
    if out is not None:
        torch.ops.tile_ops.matmul_out(a, b, bias, activation, out_dtype, out)
        return out
    return torch.ops.tile_ops.matmul(a, b, bias, activation, out_dtype)


@torch.library.custom_op("tile_ops::matmul", mutates_args=())
def _matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    dtype = check(a, b, bias, activation, out_dtype, None)
    out = a.new_empty(result_shape("matmul", a, b), dtype=dtype)
    _run(a, b, bias, activation, dtype, out)
    return out


@_matmul.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    return a.new_empty(result_shape("matmul", a, b), dtype=check(a, b, bias, activation, out_dtype, None))


@torch.library.custom_op("tile_ops::matmul_out", mutates_args=("out",))
def _matmul_out(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    out: torch.Tensor,
) -> None:
    _run(a, b, bias, activation, check(a, b, bias, activation, out_dtype, out), out)


@_matmul_out.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    out: torch.Tensor,
) -> None:
    check(a, b, bias, activation, out_dtype, out)


def _run(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    dtype: torch.dtype,
    out: torch.Tensor,
) -> None:
    """Writes the product into `out`."""
    target = target_of(a, b, bias, out)
    if not out.numel():
        return
    given = operands("matmul", a, b)
    chosen = MATMUL.choose(GemmProblem.arranged(given, bias, activation, dtype), target)
    rows = out.view(given.batch, given.m, given.n)
    added = None if bias is None else bias.contiguous()
    chosen["product"](given.a, given.b, added, rows, given.repeat)


_matmul.register_autocast("cuda", torch.float16)
_matmul.register_autocast("cpu", torch.bfloat16)
