"""Multi-head latent attention of transformers (DeepSeek-V2, -V3 and their kin) on `mla_decode`.

The library keeps latents in its cache and expands them to keys and values of every head before it attends to them.
Here the attention function does that for prompts; for a single token it multiplies the query and the result by the
two halves of W^UKV instead, and reads the latents themselves.

    cache = LatentCache()
    use(model).generate(tokens, past_key_values=cache)
"""

from __future__ import annotations

from types import MethodType

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from tile_ops import mla_decode
from tile_ops.dtypes import name_of
from tile_ops.errors import WrongValue
from tile_ops.mla.problem import ALIGNMENT, DTYPES

from .padding import Padding

NAME = "tile_ops"  # of our implementation of attention
PAGE = 64  # tokens, as in DeepSeek's servers


class LatentLayer(DynamicLayer):
    """A layer's cache: `rows` (batch, capacity, dim + rope), a token's latent and then its rotated key.

    The capacity is a whole number of pages and doubles when it is full. `keys` and `values`, which transformers reads,
    are views of the two parts.
    """

    def lazy_initialization(self, latent: Tensor, rotated: Tensor) -> None:
        self.dtype, self.device = latent.dtype, latent.device
        self.dim, self.length = latent.shape[-1], 0
        self.rows = latent.new_empty(latent.shape[0], 0, self.dim + rotated.shape[-1])
        self.is_initialized = True

    def update(self, latent: Tensor, rotated: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Append (batch, 1, tokens, dim) latents and (batch, 1, tokens, rope) keys; all tokens of both."""
        if not self.is_initialized:
            self.lazy_initialization(latent, rotated)
        end, capacity = self.length + latent.shape[2], self.rows.shape[1]
        if end > capacity:
            pages = -(-max(end, 2 * capacity) // PAGE)
            rows = self.rows.new_empty(self.rows.shape[0], pages * PAGE, self.rows.shape[2])
            rows[:, : self.length] = self.rows[:, : self.length]
            self.rows = rows
        self.rows[:, self.length : end, : self.dim] = latent[:, 0]
        self.rows[:, self.length : end, self.dim :] = rotated[:, 0]
        return self._show(self.rows, end)

    def _show(self, rows: Tensor, length: int) -> tuple[Tensor, Tensor]:
        self.rows, self.length = rows, length
        tokens = rows[:, None, :length]
        self.keys, self.values = tokens[..., : self.dim], tokens[..., self.dim :]
        return self.keys, self.values

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens; their number comes negative, as in transformers. Raises WrongValue."""
        if tokens_to_remove > 0:
            raise WrongValue(
                f"LatentLayer.crop: {tokens_to_remove} is positive; -{tokens_to_remove} removes as many tokens"
            )
        if self.is_initialized:
            self._show(self.rows, max(self.length + tokens_to_remove, 0))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each sequence `repeats` times."""
        if self.is_initialized:
            self._show(self.rows.repeat_interleave(repeats, dim=0), self.length)

    def batch_select_indices(self, indices: Tensor) -> None:
        """These sequences alone."""
        if self.is_initialized:
            self._show(self.rows[indices], self.length)

    reorder_cache = batch_select_indices


class LatentCache(Cache):
    """A cache in pages that `mla_decode` reads. Other attention reads it too, as a DynamicCache."""

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=LatentLayer)


def use_latents(model: torch.nn.Module) -> None:
    """Hand latents to the attention function as they are. Sparse layers, whose keys an indexer chooses, stay."""
    for module in model.modules():
        if hasattr(module, "expand_kv") and not hasattr(module, "indexer"):
            module.expand_kv = MethodType(_leave, module)


def _leave(module: torch.nn.Module, latent: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
    return (latent, rotated) if takes_latents(module) else expand(module, latent, rotated)


def takes_latents(module: torch.nn.Module) -> bool:
    """Whether `module` hands latents to its attention function."""
    return "expand_kv" in vars(module) and module.config._attn_implementation == NAME


def expand(module: torch.nn.Module, latent: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of every head, as the model makes them."""
    return type(module).expand_kv(module, latent, rotated)


def decode(
    module: torch.nn.Module,
    query: Tensor,
    latent: Tensor,
    rotated: Tensor,
    scale: float,
    padding: Padding | None = None,
) -> Tensor | None:
    """Attention of one token in latent space, (batch, 1, heads, dim of the values); None where that cannot be:

    several tokens, gradients, latents that are not in a LatentCache, or a W^UKV that is not a plain matrix.
    """
    rows = _rows(latent, rotated)
    weight = getattr(module.kv_b_proj, "weight", None)
    if rows is None or weight is None or query.shape[2] != 1 or name_of(query.dtype) not in DTYPES:
        return None
    if torch.is_grad_enabled() and (query.requires_grad or latent.requires_grad):
        return None
    batch, heads, dim, length = query.shape[0], query.shape[1], latent.shape[-1], latent.shape[2]
    q_nope, q_rope = query[:, :, 0].split([query.shape[-1] - rotated.shape[-1], rotated.shape[-1]], dim=-1)
    to_keys, to_values = weight.view(heads, -1, dim).split([q_nope.shape[-1], module.v_head_dim], dim=1)

    if padding is not None:
        rows, lengths = _kept(rows, length, padding), padding.keys.starts.diff()
        length = padding.keys.longest
    else:
        lengths = torch.full((batch,), length, dtype=torch.int32, device=rows.device)
    columns = rows.shape[1] // PAGE
    table = torch.arange(batch * columns, dtype=torch.int32, device=rows.device).view(batch, columns)
    absorbed = torch.einsum("bhd,hdc->bhc", q_nope, to_keys)
    pages = rows.view(batch * columns, PAGE, rows.shape[2])
    found = mla_decode(absorbed, q_rope.contiguous(), pages, table[:, : -(-length // PAGE)], lengths, scale=scale)
    return torch.einsum("bhc,hdc->bhd", found, to_values)[:, None]


def _kept(rows: Tensor, length: int, padding: Padding) -> Tensor:
    """Rows without padding, in whole pages: past a sequence's end lie tokens of others, which nothing reads."""
    places, starts, longest = padding.keys
    assert places is not None
    batch, capacity, width = rows.shape
    columns = torch.arange(-(-longest // PAGE) * PAGE, device=rows.device)
    wanted = places[(starts[:-1, None] + columns).clamp(max=len(places) - 1)]
    return rows.view(batch * capacity, width)[wanted // length * capacity + wanted % length]


def _rows(latent: Tensor, rotated: Tensor) -> Tensor | None:
    """The rows, in whole pages, that these are the two parts of; None if they are not from a LatentLayer."""
    batch, _, _, dim = latent.shape
    row = dim + rotated.shape[-1]
    beside = rotated.data_ptr() - latent.data_ptr() == dim * latent.element_size()
    step, _, width, one = latent.stride()
    if not beside or latent.stride() != rotated.stride() or (width, one) != (row, 1) or step % (PAGE * row):
        return None
    if dim % ALIGNMENT or rotated.shape[-1] % ALIGNMENT:
        return None
    return latent.as_strided((batch, step // row, row), (step, row, 1))
