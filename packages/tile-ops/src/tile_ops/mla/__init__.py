"""Multi-head latent attention: decoding against a paged cache of latents."""

from .api import mla_decode

__all__ = ["mla_decode"]
