"""A product as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of
from tile_ops.errors import WrongDtype, WrongShape, WrongStride, WrongValue

from .operands import Operands, operands, result_shape

FLOATS = ("float16", "bfloat16", "float32")
#: Types of operands, and of the result: the first is that of a call that names none.
RESULTS = {
    "float16": ("float16", "bfloat16", "float32"),
    "bfloat16": ("bfloat16", "float16", "float32"),
    "float32": ("float32", "float16", "bfloat16"),
    "int8": ("int32",),
}
ACTIVATIONS = (None, "relu", "gelu", "silu")


@dataclass(frozen=True)
class GemmProblem:
    """`batch` products (m, k) @ (k, n); `bias` is its type. `tf32`: float32 operands may be rounded to 10 bits."""

    batch: int
    m: int
    n: int
    k: int
    dtype: str
    out_dtype: str
    transpose_a: bool
    transpose_b: bool
    batch_a: str
    batch_b: str
    bias: str | None
    activation: str | None
    tf32: bool

    @classmethod
    def of(
        cls,
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
        out_dtype: torch.dtype | None = None,
        out: torch.Tensor | None = None,
    ) -> GemmProblem:
        """Raises WrongShape, WrongDtype, WrongStride, WrongValue."""
        return cls.arranged(operands("matmul", a, b), bias, activation, check(a, b, bias, activation, out_dtype, out))

    @classmethod
    def arranged(
        cls, given: Operands, bias: torch.Tensor | None, activation: str | None, out_dtype: torch.dtype
    ) -> GemmProblem:
        """The problem of operands that `check` has seen."""
        return cls(
            given.batch,
            given.m,
            given.n,
            given.k,
            name_of(given.a.dtype),
            name_of(out_dtype),
            given.transpose_a,
            given.transpose_b,
            given.batch_a,
            given.batch_b,
            None if bias is None else name_of(bias.dtype),
            activation,
            given.a.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32,
        )


def check(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    out: torch.Tensor | None,
) -> torch.dtype:
    """The result's type. Raises WrongShape, WrongDtype, WrongStride, WrongValue."""
    shape = result_shape("matmul", a, b)
    dtype = name_of(a.dtype)
    if dtype not in RESULTS or b.dtype != a.dtype:
        raise WrongDtype(
            f"matmul: a is {a.dtype}, b {b.dtype}; both must be one of {', '.join(RESULTS)}: b.to(a.dtype)"
        )
    if activation not in ACTIVATIONS:
        raise WrongValue(f"matmul: activation is {activation!r}; expected None, 'relu', 'gelu' or 'silu'")
    result = getattr(torch, RESULTS[dtype][0]) if out_dtype is None and out is None else out_dtype
    result = out.dtype if result is None and out is not None else result
    if name_of(result) not in RESULTS[dtype]:
        raise WrongDtype(f"matmul: a result of {dtype} is {result}; expected one of {', '.join(RESULTS[dtype])}")
    if result == torch.int32 and (bias is not None or activation is not None):
        raise WrongDtype("matmul: bias and activation need a result of floats; apply them after the product")
    if bias is not None and bias.shape != shape[-1:]:
        raise WrongShape(
            f"matmul: bias has shape {tuple(bias.shape)} for {shape[-1]} columns; pass bias of shape ({shape[-1]},)"
        )
    if bias is not None and bias.dtype not in (a.dtype, torch.float32):
        raise WrongDtype(f"matmul: bias is {bias.dtype}; expected {a.dtype} or float32: bias.to(a.dtype)")
    if out is not None:
        _check_out(out, shape, result)
    return result


def _check_out(out: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tuple(out.shape) != shape:
        raise WrongShape(f"matmul: out has shape {tuple(out.shape)}; expected {shape}")
    if out.dtype != dtype:
        raise WrongDtype(f"matmul: out is {out.dtype}, out_dtype {dtype}; leave out_dtype out, or make them equal")
    apart = out.numel() == 0 or (
        (out.shape[-1] == 1 or out.stride(-1) == 1) and (out.shape[-2] == 1 or out.stride(-2) >= out.shape[-1])
    )
    if not apart:
        raise WrongStride(
            f"matmul: out has strides {out.stride()} for shape {shape}; its rows must be contiguous and apart: "
            "pass a new tensor, or copy the result into out"
        )
