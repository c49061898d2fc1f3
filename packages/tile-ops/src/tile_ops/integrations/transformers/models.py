"""Which parts of a model run on our operators."""

from __future__ import annotations

from typing import TypeVar

from transformers import PreTrainedModel

from .attention import register
from .latent import NAME, use_latents
from .state_space import use_scans

M = TypeVar("M", bound=PreTrainedModel)


def use(model: M) -> M:
    """Let `model` compute attention, mixtures of experts, and the scans of Mamba-2 layers, by tile_ops; returns it.

    Weights stay where and as they are, other models keep theirs. Attention and experts go through the interfaces of
    transformers, scans through the functions that transformers lets kernels replace. Latent attention decodes from a
    `LatentCache` by `mla_decode`. Batches may be padded; what comes out at padding is finite and otherwise unspecified.
    Attention that transformers' own flash implementations cannot make (biases of scores, chunks) stays as it is.
    """
    register()
    if model._supports_flash_attn:  # has attention, whose function can be chosen, and which makes its masks itself
        model.set_attn_implementation(NAME)
        use_latents(model)
    if model._can_set_experts_implementation():
        model.set_experts_implementation(NAME)
    use_scans(model)
    return model
