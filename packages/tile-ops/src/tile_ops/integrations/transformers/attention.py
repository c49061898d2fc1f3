"""`flash_attention` as an attention implementation of transformers.

from tile_ops.integrations.transformers import register

register()
model.set_attn_implementation("tile_ops")  # or attn_implementation="tile_ops" when the model is made
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.moe import ExpertsInterface
from transformers.masking_utils import flash_attention_mask

from tile_ops import flash_attention
from tile_ops.errors import WrongValue

from .experts import experts
from .latent import NAME, decode, expand, takes_latents


def register(name: str = NAME) -> None:
    """Make `flash_attention`, and `grouped_matmul` for mixtures of experts, known to transformers as `name`."""
    AttentionInterface.register(name, attention)
    ExpertsInterface.register(name, experts)
    AttentionMaskInterface.register(name, flash_attention_mask)  # no mask, or which tokens are padding


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it: query (batch, heads, tokens, dim), key and value (batch, heads_kv, keys, dim).

    Values may be narrower than keys (multi-head latent attention). Result: (batch, tokens, heads, dim of the values).
    Raises WrongValue for padded batches, chosen keys and dropout.
    """
    if indices is not None:
        raise WrongValue("flash_attention: the model chooses its keys; sparse attention needs another implementation")
    if attention_mask is not None:
        raise WrongValue(
            "flash_attention: the batch is padded; pass sequences of one length, or use flash_attention_varlen"
        )
    if dropout:
        raise WrongValue(f"flash_attention: dropout is {dropout}; set the model's attention_dropout to 0")
    if takes_latents(module):
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        out = decode(module, query, key, value, scale)
        if out is not None:
            return out, None
        key, value = expand(module, key, value)
    out = flash_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        causal=bool(getattr(module, "is_causal", True) if is_causal is None else is_causal),
        window=(sliding_window - 1, 0) if sliding_window else None,
        scale=scaling,
        softcap=softcap,
        sinks=s_aux,
    )
    return out, None
