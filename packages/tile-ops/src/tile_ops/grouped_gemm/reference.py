"""The obvious product of groups, in float64, and how far the operator may be from it."""

from __future__ import annotations

import torch

from tile_ops.gemm.reference import TOLERANCES as TOLERANCES


def grouped_matmul(x: torch.Tensor, weights: torch.Tensor, group_sizes: torch.Tensor) -> torch.Tensor:
    """Rows of group g times weights[g], one group after the other; rows behind the last are 0; float64."""
    y = torch.zeros(x.shape[0], weights.shape[2], dtype=torch.float64, device=x.device)
    row = 0
    for weight, size in zip(weights.double(), group_sizes.tolist()):
        y[row : row + size] = x[row : row + size].double() @ weight
        row += size
    return y
