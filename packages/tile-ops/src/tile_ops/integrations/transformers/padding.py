"""Padded batches: the tokens that a mask keeps, one row of the batch behind the other, as variable-length attention takes them.

A mask is the same for all layers of a kind: what follows from it is found once, where transformers makes it, and travels with it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tile_ops import flash_attention_varlen
from tile_ops.errors import WrongValue


class Tokens(NamedTuple):
    """Of all tokens of a batch, row after row, those at `places`, None for all: row i's are the starts[i]th up to the
    starts[i + 1]th of them."""

    places: Tensor | None
    starts: Tensor
    longest: int

    @classmethod
    def of(cls, mask: Tensor, counts: Tensor, total: int, longest: int) -> Tokens:
        # What nonzero finds, which would wait for the device to know how many.
        order = None if total == mask.numel() else mask.flatten().logical_not().byte().argsort(stable=True)[:total]
        return cls(order, torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int(), longest)

    def gather(self, x: Tensor) -> Tensor:
        """(batch, heads, tokens, dim) to (kept tokens, heads, dim)."""
        rows = x.transpose(1, 2).flatten(0, 1)
        return rows if self.places is None else rows.index_select(0, self.places)

    def scatter(self, x: Tensor, batch: int, length: int) -> Tensor:
        """(kept tokens, heads, dim) to (batch, length, heads, dim), zeros at the others."""
        if self.places is not None:
            x = x.new_zeros(batch * length, *x.shape[1:]).index_copy(0, self.places, x)
        return x.view(batch, length, *x.shape[1:])


class Padding(NamedTuple):
    """The keys that a mask keeps, and the queries, if they are the last tokens of the keys'; whether a row's have gaps."""

    keys: Tokens
    queries: Tokens
    gaps: bool


def keep(mask: Tensor, q_length: int) -> Tensor | None:
    """The mask, (batch, keys), which brings its Padding along; None where it keeps all keys."""
    found = _padding(mask, q_length)
    if found is None:
        return None
    mask.tile_ops_padding = found
    return mask


def padding_of(mask: Tensor, q_length: int) -> Padding | None:
    """What `keep` found; again where the mask lost it, as when it went to another device."""
    found: Padding | None = getattr(mask, "tile_ops_padding", None)
    return _padding(mask, q_length) if found is None else found


def _padding(mask: Tensor, q_length: int) -> Padding | None:
    """Waits for the device once, as all numbers come in one tensor."""
    mask = mask.bool()
    counts = mask.sum(1), mask[:, -q_length:].sum(1)
    runs = mask[:, 0] + (mask[:, 1:] & ~mask[:, :-1]).sum(1)  # where a kept token follows one that is not
    numbers = torch.stack([x for count in counts for x in (count.sum(), count.max())] + [runs.max()])
    total, longest, total_q, longest_q, most_runs = numbers.tolist()
    if total == mask.numel():
        return None
    keys = Tokens.of(mask, counts[0], total, longest)
    queries = keys if q_length == mask.shape[1] else Tokens.of(mask[:, -q_length:], counts[1], total_q, longest_q)
    return Padding(keys, queries, most_runs > 1)


def packed_attention(
    padding: Padding,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool,
    window: tuple[int, int] | None,
    scale: float | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Attention of the kept tokens, (batch, tokens, heads, dim of the values).

    Queries that are padding give zeros where their places are those of keys: below a diagonal or in a window. Elsewhere
    they may belong to another sequence (cross attention) and all see the kept keys. Raises WrongValue for a window over
    gaps, as it counts places of the padded row, and packed rows have others.
    """
    batch, _, tokens, _ = query.shape
    if window is not None and padding.gaps and key.shape[2] > window[0] + 1:
        raise WrongValue(
            "flash_attention: the mask has zeros between ones, and the model a sliding window; pad rows at one end"
        )
    keys, queries = padding.keys, padding.queries
    if not causal and window is None:
        starts = torch.arange(batch + 1, dtype=torch.int32, device=query.device) * tokens
        queries = Tokens(None, starts, tokens)
    packed = queries.gather(query), keys.gather(key), keys.gather(value), queries.starts, keys.starts
    out = flash_attention_varlen(
        *packed,
        queries.longest,
        max_seqlen_k=keys.longest,
        causal=causal,
        window=window,
        scale=scale,
        softcap=softcap,
        sinks=sinks,
    )
    return queries.scatter(out, batch, tokens)
