"""A product as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of, repair
from tile_ops.errors import WrongDtype, WrongShape, WrongStride, WrongValue
from tile_ops.kernel import threads_of

from .operands import operands, result_shape

#: Types of operands, and of the result: the first is that of a call that names none.
RESULTS = {
    "float16": ("float16", "bfloat16", "float32"),
    "bfloat16": ("bfloat16", "float16", "float32"),
    "float32": ("float32", "float16", "bfloat16"),
    "int8": ("int32",),
    "float8_e4m3fn": ("bfloat16", "float16", "float32"),
    "float8_e4m3fnuz": ("bfloat16", "float16", "float32"),
}
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz")
#: Consecutive elements along k, and along n, that share a scale.
BLOCK = 128
ACTIVATIONS = (None, "relu", "gelu", "silu")


@dataclass(frozen=True)
class GemmProblem:
    """`batch` products (m, k) @ (k, n); `bias` is its type. `scales`: None, "rows" or "blocks". `tf32`: float32 operands
    may be rounded to 10 bits. `gradient`: the result is a gradient times the slope of the activation. `threads` share the work on
    a CPU."""

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
    scales: str | None = None
    gradient: bool = False
    threads: int = 1

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
        scale_a: torch.Tensor | None = None,
        scale_b: torch.Tensor | None = None,
        grad: torch.Tensor | None = None,
    ) -> GemmProblem:
        """Raises WrongShape, WrongDtype, WrongStride, WrongValue."""
        result = check(a, b, bias, activation, out_dtype if grad is None else grad.dtype, out, scale_a, scale_b)
        given = operands("matmul", a, b, scale_a is not None)
        return cls(
            given.batch,
            given.m,
            given.n,
            given.k,
            name_of(given.a.dtype),
            name_of(result),
            given.transpose_a,
            given.transpose_b,
            given.batch_a,
            given.batch_b,
            None if bias is None else name_of(bias.dtype),
            activation,
            allows_tf32(a),
            scaling(a, b, scale_a, scale_b),
            grad is not None,
            threads_of(a),
        )


def depends(a: torch.Tensor, *_: object, **__: object) -> tuple[bool, int]:
    """What a problem holds beside its operands."""
    return allows_tf32(a), threads_of(a)


def allows_tf32(a: torch.Tensor, *_: object, **__: object) -> bool:
    """Whether the user lets factors like `a` be rounded to 10 bits."""
    return a.dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32


def still_rounded(tf32: bool) -> bool:
    """Whether the user still says of float32 what a call was made by."""
    return bool(torch.backends.cuda.matmul.allow_tf32) == tf32


def check(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    out_dtype: torch.dtype | None,
    out: torch.Tensor | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
) -> torch.dtype:
    """The result's type. Raises WrongShape, WrongDtype, WrongStride, WrongValue."""
    shape = result_shape("matmul", a, b)
    dtype = name_of(a.dtype)
    if dtype not in RESULTS or b.dtype != a.dtype:
        raise WrongDtype(
            f"matmul: a is {a.dtype}, b {b.dtype}; both must be one of {', '.join(RESULTS)}: "
            f"{repair('a', a.dtype, 'b', RESULTS)}"
        )
    if activation not in ACTIVATIONS:
        raise WrongValue(f"matmul: activation is {activation!r}; expected None, 'relu', 'gelu' or 'silu'")
    possible = RESULTS["float8_e4m3fn"] if scaling(a, b, scale_a, scale_b) else RESULTS[dtype]
    result = out_dtype if out is None or out_dtype is not None else out.dtype
    result = result or getattr(torch, possible[0])
    if name_of(result) not in possible:
        raise WrongDtype(f"matmul: a result of {dtype} is {result}; expected one of {', '.join(possible)}")
    if result == torch.int32 and (bias is not None or activation is not None):
        raise WrongDtype("matmul: bias and activation need a result of floats; apply them after the product")
    if bias is not None and bias.shape != shape[-1:]:
        raise WrongShape(
            f"matmul: bias has shape {tuple(bias.shape)} for {shape[-1]} columns; pass bias of shape ({shape[-1]},)"
        )
    if bias is not None and bias.dtype not in (result, torch.float32):
        raise WrongDtype(f"matmul: bias is {bias.dtype}; expected {result}, as the result, or float32: bias.float()")
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
    if not apart or _overlaps(out):
        raise WrongStride(
            f"matmul: out has strides {out.stride()} for shape {shape}; its rows must be contiguous and apart: "
            "pass a new tensor, or copy the result into out"
        )


def _overlaps(out: torch.Tensor) -> bool:
    """Whether elements share memory."""
    span = 1
    for stride, size in sorted(zip(out.stride(), out.shape)):
        if size > 1:
            if stride < span:
                return True
            span += stride * (size - 1)
    return False


def scaling(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor | None, scale_b: torch.Tensor | None) -> str | None:
    """What the scales are for: "rows" (or whole tensors), "blocks", or None. Raises WrongShape, WrongDtype."""
    if scale_a is None and scale_b is None:
        return None
    if scale_a is None or scale_b is None:
        raise WrongShape("matmul: one of scale_a and scale_b is missing; pass torch.ones(()) for an operand without")
    dtype = name_of(a.dtype)
    if dtype not in (*FLOAT8, "int8"):
        raise WrongDtype(f"matmul: scales are for float8 and int8, a is {a.dtype}; multiply the result instead")
    if scale_a.dtype != torch.float32 or scale_b.dtype != torch.float32:
        raise WrongDtype(f"matmul: the scales are {scale_a.dtype} and {scale_b.dtype}; expected float32: scale.float()")
    if b.ndim != 2:
        raise WrongShape(f"matmul: with scales b is one matrix; found shape {tuple(b.shape)}")
    rows, (k, n) = a.shape[:-1], b.shape
    deep, wide = -(-k // BLOCK), -(-n // BLOCK)
    of_rows = (
        scale_a.numel() == 1 or scale_a.shape in (rows, (*rows, 1)),
        scale_b.numel() == 1 or scale_b.shape in ((n,), (1, n)),
    )
    if all(of_rows):
        return "rows"
    if scale_a.shape == (*rows, deep) and scale_b.shape == (deep, wide):
        if dtype == "int8":
            raise WrongDtype("matmul: scales of blocks are for float8; int8 has them for rows: (..., m) and (n,)")
        return "blocks"
    raise WrongShape(
        f"matmul: the scales have shapes {tuple(scale_a.shape)} and {tuple(scale_b.shape)}; expected one number, "
        f"{tuple(rows)} and ({n},), or {(*rows, deep)} and {(deep, wide)} for blocks of {BLOCK}"
    )
