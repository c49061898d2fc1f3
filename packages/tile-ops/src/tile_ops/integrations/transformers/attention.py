"""`flash_attention` as an attention implementation of transformers.

from tile_ops.integrations.transformers import register

register()
model.set_attn_implementation("tile_ops")  # or attn_implementation="tile_ops" when the model is made
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import getclosurevars
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.moe import ExpertsInterface
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

from tile_ops import flash_attention
from tile_ops.errors import WrongValue

from .experts import experts
from .latent import NAME, decode, expand, takes_latents
from .padding import keep, packed_attention, padding_of


def register(name: str = NAME) -> None:
    """Make `flash_attention`, and `grouped_matmul` for mixtures of experts, known to transformers as `name`."""
    AttentionInterface.register(name, attention)
    ExpertsInterface.register(name, experts)
    AttentionMaskInterface.register(name, mask)


#: Masks that `attention` makes itself, by the functions of transformers' masking_utils that say them.
_MASKS = ("causal_mask_function", "bidirectional_mask_function")
_WINDOWS = ("sliding_window_overlay", "sliding_window_bidirectional_overlay")


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    **_: Any,
) -> torch.Tensor | None:
    """What a model hands to `attention`: None, or which keys are tokens and not padding, (batch, keys), from `keep`.

    Raises WrongValue for masks that `attention` does not make (several sequences in a row, chunks, a mask of the model's own),
    for caches that are longer than their tokens, and for masks that leave tokens out. A traced model without a mask asks for a
    StaticCache's length alone: transformers tells it of several sequences in a row whether there are or not.
    """
    lengths = q_length, kv_length, q_offset, kv_offset
    if attention_mask is not None:
        return _padded(attention_mask, mask_function, *lengths)
    if not torch.compiler.is_compiling():
        _check(mask_function, *lengths)
    elif mask_function is not bidirectional_mask_function:
        # A StaticCache, which may have room behind its last token, tells its length by a tensor once it has tokens.
        if isinstance(q_offset, torch.Tensor) or kv_offset + kv_length > q_offset + q_length:
            _check_now(mask_function, *lengths)
    return None


@torch.compiler.disable  # whether there is padding depends on data
def _padded(
    attention_mask: torch.Tensor, mask_function: Callable[..., Any], q_length: int, kv_length: int, *offsets: Any
) -> torch.Tensor | None:
    _check(mask_function, q_length, kv_length, *offsets)
    first = int(offsets[1])
    last = first + int(kv_length)
    if attention_mask.shape[1] < last:
        raise WrongValue(
            f"flash_attention: attention_mask is for {attention_mask.shape[1]} tokens, and there are {last} with those of the "
            "cache; pass a number for each"
        )
    return keep(attention_mask[:, first:last], q_length)


def _check(mask_function: Callable[..., Any], q_length: int, kv_length: int, q_offset: Any, kv_offset: Any) -> None:
    names = list(_names(mask_function))
    others = [name for name in names if name not in (*_MASKS, *_WINDOWS)]
    if others:
        raise WrongValue(
            f"flash_attention: the model masks keys by {', '.join(others)}; expected a causal mask, a window or none: use "
            'model.set_attn_implementation("sdpa"), and flash_attention_varlen for several sequences in a row'
        )
    beyond = int(kv_offset + kv_length - q_offset - q_length)
    if beyond > 0 and ("causal_mask_function" in names or "sliding_window_overlay" in names):
        raise WrongValue(
            f"flash_attention: the cache has {beyond} places behind its last token, as a StaticCache; use a DynamicCache"
        )


_check_now = torch.compiler.disable(_check)


def _names(function: Callable[..., Any]) -> Iterator[str]:
    """Of the functions that `and_masks` joins; one of a closure is called as what made it."""
    name = function.__qualname__.partition(".")[0]
    if name == "and_masks":
        for part in getclosurevars(function).nonlocals["mask_functions"]:
            yield from _names(part)
    else:
        yield name


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
    position_bias: torch.Tensor | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it: query (batch, heads, tokens, dim), key and value (batch, heads_kv, keys, dim).

    Values may be narrower than keys (multi-head latent attention). Result: (batch, tokens, heads, dim of the values).
    attention_mask: None or (batch, keys), false for padding, which no token sees and whose own results are finite and
    otherwise unspecified. Raises WrongValue for several sequences in a row, other masks, a window over padding between tokens,
    chosen keys, a bias of scores, and dropout.
    """
    if indices is not None:
        raise WrongValue("flash_attention: the model chooses its keys; sparse attention needs another implementation")
    if position_bias is not None:
        raise WrongValue(
            "flash_attention: the model adds a bias to scores; another implementation must make its attention"
        )
    if cu_seq_lens_q is not None:
        raise WrongValue("flash_attention: the batch is several sequences in a row; use flash_attention_varlen")
    places = query.shape[0], key.shape[2]
    if attention_mask is not None and (attention_mask.shape != places or attention_mask.is_floating_point()):
        raise WrongValue(
            f"flash_attention: the batch is masked by a tensor of shape {tuple(attention_mask.shape)}, {attention_mask.dtype}; "
            f"expected which keys are not padding, {places}, torch.bool"
        )
    if dropout:
        raise WrongValue(f"flash_attention: dropout is {dropout}; set the model's attention_dropout to 0")
    padding = None if attention_mask is None else padding_of(attention_mask, query.shape[2])
    if takes_latents(module):
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        out = decode(module, query, key, value, scale, padding)
        if out is not None:
            return out, None
        key, value = expand(module, key, value)
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    options: dict[str, Any] = {
        "causal": causal,
        "window": (sliding_window - 1, 0 if causal else sliding_window - 1) if sliding_window else None,
        "scale": scaling,
        "softcap": softcap,
        "sinks": s_aux,
    }
    if padding is not None:
        return packed_attention(padding, query, key, value, **options), None
    return flash_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), **options), None
