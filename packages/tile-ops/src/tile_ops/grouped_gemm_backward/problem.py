"""A gradient of the weights of groups as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of
from tile_ops.errors import WrongDtype, WrongShape
from tile_ops.grouped_gemm.problem import DTYPES, SIZES


@dataclass(frozen=True)
class WeightGradientProblem:
    """(k, tokens of a group) @ (tokens of a group, n) for each of `groups`; `sizes` is the type of the groups' sizes."""

    tokens: int
    groups: int
    n: int
    k: int
    dtype: str
    sizes: str

    @classmethod
    def of(cls, x: torch.Tensor, dy: torch.Tensor, group_sizes: torch.Tensor) -> WeightGradientProblem:
        """Raises WrongShape, WrongDtype."""
        if x.ndim != 2 or dy.ndim != 2 or group_sizes.ndim != 1 or len(x) != len(dy):
            raise WrongShape(
                f"grouped_weight_gradient: x, dy, group_sizes have shapes {tuple(x.shape)}, {tuple(dy.shape)}, "
                f"{tuple(group_sizes.shape)}; expected (tokens, k), (tokens, n), (groups,)"
            )
        dtype, sizes = name_of(x.dtype), name_of(group_sizes.dtype)
        if dtype not in DTYPES or dy.dtype != x.dtype:
            raise WrongDtype(
                f"grouped_weight_gradient: x is {x.dtype}, dy {dy.dtype}; both must be one of {', '.join(DTYPES)}: dy.to(x.dtype)"
            )
        if sizes not in SIZES:
            raise WrongDtype(f"grouped_weight_gradient: group_sizes is {group_sizes.dtype}; expected int32 or int64")
        return cls(len(x), len(group_sizes), dy.shape[1], x.shape[1], dtype, sizes)
