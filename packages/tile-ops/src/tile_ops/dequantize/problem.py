"""A product with packed weights as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of
from tile_ops.errors import WrongDtype, WrongShape, WrongStride, WrongValue
from tile_ops.kernel import threads_of
from tile_ops.kernel.spec import Scalar

from .formats import FORMATS, Format

DTYPES = ("float16", "bfloat16", "int8")
OUT_DTYPES = ("float16", "bfloat16", "float32")
SCALES = OUT_DTYPES  # of weights that are kept; float32 for x in int8, and where autocast converts them
GROUPS = (32, 64, 128, 256, 512, 1024)
LONGEST_INT8 = 1 << 17  # products of a byte and a code in its highest bits are up to 2**14, and are summed in int32
WORD = 32  # bits of what kernels read weights in; a row of k weights is whole words for every format if k % 32 == 0


@dataclass(frozen=True)
class DequantProblem:
    """(m, k) times the transposed (n, k): `group` weights of a row have one scale, 0: all of them. `threads` share the work on a
    CPU."""

    m: int
    n: int
    k: int
    format: str
    group: int
    dtype: str
    out_dtype: str
    zeros: bool
    bias: bool
    threads: int = 1

    @classmethod
    def of(
        cls,
        x: torch.Tensor,
        weight: torch.Tensor,
        *,
        scales: torch.Tensor,
        zeros: torch.Tensor | None = None,
        format: str,
        group_size: int,
        bias: torch.Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        threads: int | None = None,
    ) -> DequantProblem:
        """Raises WrongShape, WrongDtype, WrongStride, WrongValue."""
        if format not in FORMATS:
            raise WrongValue(f"dequant_matmul: format is {format!r}; expected one of {', '.join(FORMATS)}")
        kind = FORMATS[format]
        if group_size != -1 and group_size not in GROUPS:
            raise WrongValue(f"dequant_matmul: group_size is {group_size}; expected -1 (whole rows) or one of {GROUPS}")
        if x.ndim < 1 or weight.ndim != 2:
            raise WrongShape(
                f"dequant_matmul: x has shape {tuple(x.shape)}, weight {tuple(weight.shape)}; "
                "expected (..., k) and (n, k / codes of a byte)"
            )
        n, k = weight.shape[0], x.shape[-1]
        group = k if group_size == -1 else group_size
        if x.dtype == torch.int8 and group < k:
            raise WrongValue(
                f"dequant_matmul: group_size is {group_size} and x int8; expected -1, a scale for each row"
            )
        if x.dtype == torch.int8 and k >= LONGEST_INT8:
            raise WrongShape(
                f"dequant_matmul: x is int8 with {k} columns; expected less than {LONGEST_INT8}: add products of parts"
            )
        _check_dtypes(kind, x, weight, scales, zeros, bias, out_dtype)
        if k % WORD or weight.shape[1] * kind.per_byte != k:
            raise WrongShape(
                f"dequant_matmul: x has {k} columns, weight {weight.shape[1]} bytes of {kind.per_byte} codes; expected "
                f"x of {weight.shape[1] * kind.per_byte} columns, a multiple of {WORD}: pad both with zeros"
            )
        expected = (-(-k // group) if k else 0, n)
        for name, tensor in (("scales", scales), ("zeros", zeros)):
            if tensor is not None and tuple(tensor.shape) != expected:
                raise WrongShape(
                    f"dequant_matmul: {name} has shape {tuple(tensor.shape)}; expected (k / group_size, n) = {expected}"
                )
        if bias is not None and tuple(bias.shape) != (n,):
            raise WrongShape(f"dequant_matmul: bias has shape {tuple(bias.shape)}; expected ({n},)")
        for name, tensor in (("weight", weight), ("scales", scales), ("zeros", zeros), ("bias", bias)):
            if tensor is not None and not tensor.is_contiguous():
                raise WrongStride(
                    f"dequant_matmul: {name} is not contiguous; call {name}.contiguous() once and keep it"
                )
        if weight.storage_offset() * weight.element_size() % 4:
            raise WrongStride("dequant_matmul: weight begins at no multiple of 4 bytes; call weight.clone() once")
        out = name_of(result_dtype(x, out_dtype))
        rows = x.numel() // k if k else x.shape[:-1].numel()
        whole = group >= k
        types, given = (name_of(x.dtype), out), (zeros is not None, bias is not None)
        return cls(rows, n, k, format, 0 if whole else group, *types, *given, threads or threads_of(x))

    @classmethod
    def of_gradient(
        cls,
        dy: torch.Tensor,
        weight: torch.Tensor,
        *,
        scales: torch.Tensor,
        zeros: torch.Tensor | None,
        format: str,
        group_size: int,
    ) -> DequantProblem:
        """The product that has this result's gradient. Raises WrongShape, WrongDtype, WrongStride, WrongValue."""
        if format not in FORMATS:
            raise WrongValue(f"dequant_matmul: format is {format!r}; expected one of {', '.join(FORMATS)}")
        if dy.ndim < 1 or weight.ndim != 2 or dy.shape[-1] != weight.shape[0]:
            raise WrongShape(
                f"dequant_matmul: the gradient has shape {tuple(dy.shape)}, weight {tuple(weight.shape)}; expected (..., n) "
                "and (n, k / codes of a byte)"
            )
        if dy.dtype not in (torch.float16, torch.bfloat16):
            raise WrongDtype(f"dequant_matmul: the gradient is {dy.dtype}; expected float16 or bfloat16: dy.half()")
        k = weight.shape[1] * FORMATS[format].per_byte
        x = torch.empty((*dy.shape[:-1], k), dtype=dy.dtype, device="meta")
        options = {"scales": scales, "zeros": zeros, "format": format, "group_size": group_size}
        return cls.of(x, weight, **options, threads=threads_of(dy))

    def codes(self) -> dict[str, Scalar]:
        """What a kernel is told of x's type and of the weights."""
        kind = FORMATS[self.format]
        return {
            "dtype": self.dtype,
            "scale_dtype": kind.scale or self.dtype,
            "bits": kind.bits,
            "signed": kind.signed,
            "group": self.group,
            "zeros": self.zeros,
            "table": kind.table is not None,
        }


def result_dtype(x: torch.Tensor, out_dtype: torch.dtype | None) -> torch.dtype:
    """`out_dtype`, else the type of x; float32 for int8."""
    return out_dtype or (torch.float32 if x.dtype == torch.int8 else x.dtype)


def _check_dtypes(
    kind: Format,
    x: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> None:
    if name_of(x.dtype) not in DTYPES:
        raise WrongDtype(f"dequant_matmul: x is {x.dtype}; expected one of {', '.join(DTYPES)}: x.half()")
    if weight.dtype != torch.uint8:
        raise WrongDtype(f"dequant_matmul: weight is {weight.dtype}; expected uint8, as tile_ops.pack gives it")
    if x.dtype == torch.int8 and not kind.signed:
        names = ", ".join(f.name for f in FORMATS.values() if f.signed)
        raise WrongValue(f"dequant_matmul: format is {kind.name} and x int8; expected one of {names}")
    beside = torch.float32 if x.dtype == torch.int8 else x.dtype
    wanted = kind.scale or name_of(beside)
    if name_of(scales.dtype) != wanted:
        raise WrongDtype(f"dequant_matmul: scales are {scales.dtype}; expected {wanted}: scales.to(torch.{wanted})")
    if zeros is not None and not kind.zeros:
        names = ", ".join(f.name for f in FORMATS.values() if f.zeros)
        raise WrongValue(f"dequant_matmul: zeros are given for {kind.name}; only {names} have zero points")
    if zeros is not None and zeros.dtype != torch.uint8:
        raise WrongDtype(f"dequant_matmul: zeros are {zeros.dtype}; expected uint8, integers of one byte each")
    if bias is not None and bias.dtype != beside:
        raise WrongDtype(f"dequant_matmul: bias is {bias.dtype}, x {x.dtype}; expected bias.to({beside})")
    if out_dtype is not None and name_of(out_dtype) not in OUT_DTYPES:
        raise WrongDtype(f"dequant_matmul: out_dtype is {out_dtype}; expected one of {', '.join(OUT_DTYPES)}")
