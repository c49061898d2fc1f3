"""Tensors of one number that kernels read in place of an operand that is not there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

#: Zeros that are kept, at most.
MOST_ZEROS = 1 << 22

_kept: dict[tuple[int, float, torch.dtype, torch.device], torch.Tensor] = {}


def constant(elements: int, value: float, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """So many times `value`, the same tensor for each such call, which nobody may write.

    What is made while a CUDA graph is captured has no content before the graph runs, and no memory after it: that is not kept.
    """
    key = (elements, value, dtype, device)
    found = _kept.get(key)
    if found is None:
        found = torch.full((elements,), value, dtype=dtype, device=device)
        if not (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            _kept[key] = found
    return found


def zeros(elements: int, device: torch.device) -> torch.Tensor | None:
    """So many of float32 or more, in a row, as `constant`: of all numbers that there are, powers of two are kept, 32 MB of a
    device in all. None for more than MOST_ZEROS."""
    if elements > MOST_ZEROS:
        return None
    return constant(1 << max(0, elements - 1).bit_length(), 0.0, torch.float32, device)


def zeros_of(shape: Sequence[int], device: torch.device) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """float32 zeros of a shape, which nobody may write, and the kept ones that they are a view of: none where they are too many
    to be kept, and new."""
    elements = math.prod(shape)
    kept = zeros(elements, device)
    if kept is None:
        return torch.zeros(tuple(shape), dtype=torch.float32, device=device), []
    return kept[:elements].view(tuple(shape)), [kept]
