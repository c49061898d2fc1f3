"""What kernels of packed weights take for operands that are not there, and the numbers of codes."""

from __future__ import annotations

from functools import cache

import torch

from tile_ops.dtypes import name_of
from tile_ops.kernel import Target

from .formats import FORMATS


@cache
def _empty(device: torch.device) -> tuple[torch.Tensor, ...]:
    """What is passed for zero points that a kernel does not read, uint8 (1, 1), and for no bias, which has no element:
    float16, bfloat16, float32."""
    kinds = (((1, 1), torch.uint8), ((0,), torch.float16), ((0,), torch.bfloat16), ((0,), torch.float32))
    return tuple(torch.zeros(shape, dtype=dtype, device=device) for shape, dtype in kinds)


def no_zeros(device: torch.device) -> torch.Tensor:
    """For zero points that a kernel does not read."""
    return _empty(device)[0]


def bias_or_none(bias: torch.Tensor | None, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The bias, or one without an element."""
    return _empty(device)[("float16", "bfloat16", "float32").index(name_of(dtype)) + 1] if bias is None else bias


@cache
def values(format: str, device: torch.device) -> torch.Tensor:
    """The numbers of the codes, float32."""
    return torch.tensor(FORMATS[format].table or (0.0,), dtype=torch.float32, device=device)


def empty_rows(x: torch.Tensor, rows: int, words: torch.Tensor, k: int, target: Target) -> torch.Tensor:
    """Memory for decoded rows of W, of x's type, as `decode` takes them: (rows, k) on a CPU, (rows, words, codes of one) on a
    GPU."""
    length = words.shape[1]
    return x.new_empty((rows, k) if target.kind == "cpu" else (rows, length, k // length))
