"""Multi-head latent attention: decoding against a paged cache of latents, and prompts."""

from .api import mla_decode
from .prefill import mla_prefill

__all__ = ["mla_decode", "mla_prefill"]
