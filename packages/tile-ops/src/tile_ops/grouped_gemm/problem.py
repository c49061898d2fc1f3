"""A product of groups as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of
from tile_ops.errors import WrongDtype, WrongShape
from tile_ops.gemm.operands import in_place
from tile_ops.kernel import threads_of

DTYPES = ("float16", "bfloat16", "float32")
SIZES = ("int32", "int64")


@dataclass(frozen=True)
class GroupedProblem:
    """(tokens, k) @ (groups, k, n); `sizes` is the type of the groups' sizes. `threads` share the work on a CPU."""

    tokens: int
    groups: int
    n: int
    k: int
    dtype: str
    out_dtype: str
    sizes: str
    transpose_weights: bool
    threads: int = 1

    @property
    def average(self) -> int:
        """Rows of a group."""
        return -(-self.tokens // max(1, self.groups))

    @classmethod
    def of(
        cls,
        x: torch.Tensor,
        weights: torch.Tensor,
        group_sizes: torch.Tensor,
        *,
        out_dtype: torch.dtype | None = None,
    ) -> GroupedProblem:
        """Raises WrongShape, WrongDtype."""
        if x.ndim != 2 or weights.ndim != 3 or group_sizes.ndim != 1:
            raise WrongShape(
                f"grouped_matmul: x, weights, group_sizes have shapes {tuple(x.shape)}, {tuple(weights.shape)}, "
                f"{tuple(group_sizes.shape)}; expected (tokens, k), (groups, k, n), (groups,)"
            )
        if x.shape[1] != weights.shape[1] or len(group_sizes) != len(weights):
            raise WrongShape(
                f"grouped_matmul: x {tuple(x.shape)}, weights {tuple(weights.shape)} and {len(group_sizes)} group_sizes do "
                "not fit: (tokens, k), (groups, k, n), (groups,); weights.mT if they are stored (groups, n, k)"
            )
        dtype, result = name_of(x.dtype), name_of(out_dtype or x.dtype)
        if dtype not in DTYPES or weights.dtype != x.dtype or result not in DTYPES:
            raise WrongDtype(
                f"grouped_matmul: x is {x.dtype}, weights {weights.dtype}, the result {result}; x and weights must be "
                f"equal, all one of {', '.join(DTYPES)}: weights.to(x.dtype)"
            )
        if name_of(group_sizes.dtype) not in SIZES:
            raise WrongDtype(f"grouped_matmul: group_sizes is {group_sizes.dtype}; expected int32 or int64")
        transposed = in_place(weights)[1]
        (tokens, k), (groups, _, n) = x.shape, weights.shape
        return cls(tokens, groups, n, k, dtype, result, name_of(group_sizes.dtype), transposed, threads_of(x))
