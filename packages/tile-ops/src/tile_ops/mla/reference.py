"""The obvious version, in float64, and how far the operator may be from it."""

from __future__ import annotations

import torch

from tile_ops.attention.reference import flash_attention

#: Largest error relative to |expected| plus the root mean square of `expected`: weights and result are rounded to the type.
TOLERANCES = {"float32": 1e-5, "float16": 3e-3, "bfloat16": 2.4e-2}


def mla_decode(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequence by sequence: softmax(q . key * scale) . latent and the logarithm of the softmax's sum; float64."""
    query = torch.cat([q_nope, q_rope], -1).double()
    dim = q_nope.shape[-1]
    out = query.new_zeros(*q_nope.shape)
    lse = query.new_full(q_nope.shape[:2], float("-inf"))
    for b, length in enumerate(lengths.tolist()):
        if length:
            pages = block_table[b, : -(-length // cache.shape[1])].long()
            keys = cache[pages].flatten(0, 1)[:length].double()
            scores = query[b] @ keys.T * scale
            out[b] = scores.softmax(-1) @ keys[:, :dim]
            lse[b] = scores.logsumexp(-1)
    return out, lse


def mla_prefill(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    k_nope: torch.Tensor,
    k_rope: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = True,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax((q_nope . k_nope + q_rope . k_rope) * scale) v by its definition; float64."""
    rotated = k_rope[:, :, None].expand(*k_nope.shape[:3], k_rope.shape[2])
    query, key = torch.cat([q_nope, q_rope], -1), torch.cat([k_nope, rotated], -1)
    return flash_attention(query, key, v, causal=causal, scale=scale)
