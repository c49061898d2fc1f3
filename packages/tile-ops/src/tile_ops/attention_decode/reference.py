"""Decode attention by its definition: gather a sequence's pages, then attention with one query, in float64."""

from __future__ import annotations

from typing import Any

import torch

from tile_ops.attention.reference import TOLERANCES, flash_attention

__all__ = ["TOLERANCES", "flash_decode"]


def flash_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result (batch, heads, dim) and the logarithm of each row's sum (batch, heads), float64."""
    found = []
    for row, pages, length in zip(q, block_table.long(), lengths.tolist()):
        k, v = (cache[pages].flatten(0, 1)[:length] for cache in (k_cache, v_cache))
        found.append(flash_attention(row[None, None], k[None], v[None], causal=True, **options))
    return torch.stack([out[0, 0] for out, _ in found]), torch.stack([lse[0, :, 0] for _, lse in found])
