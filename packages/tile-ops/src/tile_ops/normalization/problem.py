"""A call of a normalization as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of
from tile_ops.errors import WrongDtype, WrongShape, WrongValue

DTYPES = ("float16", "bfloat16", "float32")
ACTIVATIONS = (None, "silu")


@dataclass(frozen=True)
class NormProblem:
    """`rows` vectors of `columns` elements; `dtype` of operands and result."""

    rows: int
    columns: int
    dtype: str
    activation: str | None

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
                "weight.to(x.dtype)"
            )
        if activation not in ACTIVATIONS:
            raise WrongValue(f"rms_norm: activation is {activation!r}; expected None or 'silu'")
        if not eps >= 0:
            raise WrongValue(f"rms_norm: eps is {eps}; expected 0 or more")
        columns = x.shape[-1]
        return cls(x.numel() // columns if columns else 0, columns, dtype, activation)
