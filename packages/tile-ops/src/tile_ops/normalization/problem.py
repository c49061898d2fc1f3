"""A call of a normalization as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of, repair
from tile_ops.errors import WrongDtype, WrongShape, WrongValue

DTYPES = ("float16", "bfloat16", "float32")
ACTIVATIONS = (None, "silu")


@dataclass(frozen=True)
class NormProblem:
    """`rows` vectors of `columns` elements; `dtype` of operands and result; `kind` "rms_norm", "layer_norm", "softmax"."""

    rows: int
    columns: int
    dtype: str
    activation: str | None = None
    kind: str = "rms_norm"

    @classmethod
    def of(
        cls, x: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-6, activation: str | None = None
    ) -> NormProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        if x.ndim < 1:
            raise WrongShape("rms_norm: x has no dimension; it needs at least the one that is normalized")
        if weight.shape != x.shape[-1:]:
            raise WrongShape(
                f"rms_norm: weight has shape {tuple(weight.shape)}, x has {x.shape[-1]} channels; "
                f"pass weight of shape ({x.shape[-1]},)"
            )
        dtype = name_of(x.dtype)
        if dtype not in DTYPES or weight.dtype != x.dtype:
            raise WrongDtype(
                f"rms_norm: x is {x.dtype}, weight {weight.dtype}; both must be one of {', '.join(DTYPES)}: "
                f"{repair('x', x.dtype, 'weight', DTYPES)}"
            )
        if activation not in ACTIVATIONS:
            raise WrongValue(f"rms_norm: activation is {activation!r}; expected None or 'silu'")
        if not eps >= 0:
            raise WrongValue(f"rms_norm: eps is {eps}; expected 0 or more")
        columns = x.shape[-1]
        return cls(x.numel() // columns if columns else 0, columns, dtype, activation)

    @classmethod
    def of_layer_norm(
        cls,
        x: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        *,
        eps: float = 1e-5,
    ) -> NormProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        if x.ndim < 1:
            raise WrongShape("layer_norm: x has no dimension; it needs at least the one that is normalized")
        dtype, columns = name_of(x.dtype), x.shape[-1]
        if dtype not in DTYPES:
            raise WrongDtype(f"layer_norm: x is {x.dtype}; expected one of {', '.join(DTYPES)}: x.float()")
        for name, given in (("weight", weight), ("bias", bias)):
            if given is not None and given.shape != x.shape[-1:]:
                raise WrongShape(
                    f"layer_norm: {name} has shape {tuple(given.shape)}, x has {columns} channels; pass {name} of shape "
                    f"({columns},)"
                )
            if given is not None and given.dtype != x.dtype:
                raise WrongDtype(f"layer_norm: x is {x.dtype}, {name} {given.dtype}: {name}.to(x.dtype)")
        if not eps >= 0:
            raise WrongValue(f"layer_norm: eps is {eps}; expected 0 or more")
        return cls(x.numel() // columns if columns else 0, columns, dtype, None, "layer_norm")

    @classmethod
    def of_softmax(cls, x: torch.Tensor, *, dim: int = -1) -> NormProblem:
        """Raises WrongShape, WrongDtype."""
        ndim = max(x.ndim, 1)  # a number is a row of one
        if not -ndim <= dim < ndim:
            raise WrongShape(f"softmax: dim is {dim} of {x.ndim} dimensions; expected {-ndim} to {ndim - 1}")
        dtype, columns = name_of(x.dtype), x.shape[dim] if x.ndim else 1
        if dtype not in DTYPES:
            raise WrongDtype(f"softmax: x is {x.dtype}; expected one of {', '.join(DTYPES)}: x.float()")
        return cls(x.numel() // columns if columns else 0, columns, dtype, None, "softmax")
