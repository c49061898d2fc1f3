"""Operators inside Hugging Face transformers, through the library's own extension points.

from tile_ops.integrations.transformers import use

use(model)  # attention, latent attention, experts, and the scans of Mamba-2 layers
"""

from . import releases as releases  # first: it refuses those that the others do not know
from .attention import attention, register
from .experts import experts
from .latent import LatentCache
from .models import use
from .state_space import chunk_scan, state_update

__all__ = ["LatentCache", "attention", "chunk_scan", "experts", "register", "state_update", "use"]
