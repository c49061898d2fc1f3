"""Attention by its definition, in float64, and how far the operator may be from it."""

from __future__ import annotations

import torch

#: Largest error relative to |expected| plus the root mean square of `expected`. Weights are rounded to the operands'
#: type before they meet the values.
TOLERANCES = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result (batch, tokens, heads, dim) and the logarithm of each row's sum (batch, heads, tokens), float64."""
    group = q.shape[2] // k.shape[2]
    k, v = (x.double().repeat_interleave(group, dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k) * (q.shape[3] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~seen(q.shape[1], k.shape[1], causal, window), -torch.inf)
    lse = torch.logsumexp(scores, dim=-1)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks.double()[:, None])
    weights = torch.where(lse.isinf()[..., None], 0, torch.exp(scores - lse[..., None]))
    return torch.einsum("bhqk,bkhd->bqhd", weights, v), lse


def seen(tokens: int, keys: int, causal: bool, window: tuple[int, int] | None) -> torch.Tensor:
    """(tokens, keys): whether a query sees a key. The last query stands at the last key."""
    distance = torch.arange(keys) - (torch.arange(tokens)[:, None] + keys - tokens)
    left, right = (-1, -1) if window is None else window
    allowed = torch.ones(tokens, keys, dtype=torch.bool)
    if left >= 0:
        allowed &= distance >= -left
    if right >= 0:
        allowed &= distance <= right
    return allowed & (distance <= 0) if causal else allowed
