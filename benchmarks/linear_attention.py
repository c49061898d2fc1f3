"""Gradients of linear attention beside those of the same chunks written with torch.

`python benchmarks/operators.py --only linear_gradients` measures them on a GPU, with `--cpu-time` on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from operators import Case

import tile_ops

CHUNK = 64


def by_chunks(q: Any, k: Any, v: Any, decay: Any) -> torch.Tensor:
    """o_t = dim ** -0.5 S_t q_t, S_t = exp(decay_t) S_{t-1} + v_t k_t^T; q, k, v: (batch, heads, chunks, CHUNK, dim), `decay`
    None, as q, or of a last dimension of 1. Factors exp(-s) are those of decays of less than 80 in a chunk."""
    scale = q.shape[-1] ** -0.5
    if decay is None:
        ends, added = None, (v.mT @ k).float()
    else:
        s = decay.cumsum(3)
        ends = s[:, :, :, -1:]
        added = (v.mT @ (k * torch.exp(ends - s)).to(k.dtype)).float()
        q, k = (q * torch.exp(s)).to(q.dtype), (k * torch.exp(-s)).to(k.dtype)
    state, before = torch.zeros_like(added[:, :, 0]), []
    for chunk in range(added.shape[2]):
        before.append(state)
        kept = state if ends is None else state * torch.exp(ends[:, :, chunk])
        state = kept + added[:, :, chunk]
    return scale * ((q @ k.mT).tril() @ v + q @ torch.stack(before, 2).to(q.dtype).mT)


def linear_gradients(device: str) -> Iterator[Case]:
    """Of q, k, v and the decay: none, one for each token and head, one for each channel: batch, tokens, heads, dimension."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    of_cpu = ((1, 64, 4, 64), (1, 1024, 4, 128), (1, 1024, 8, 64))
    shapes = ((4, 4096, 16, 128), (1, 8192, 32, 128)) if device == "cuda" else of_cpu
    for (batch, tokens, heads, dim), kind in (
        (shape, kind) for shape in shapes for kind in ("none", "token", "channel")
    ):
        q, k, v, do = (torch.randn(batch, tokens, heads, dim, device=device, dtype=dtype) for _ in range(4))
        leaves = tuple(x.requires_grad_() for x in (q, k, v))
        decay = None
        if kind != "none":
            shape = (batch, tokens, heads) if kind == "token" else (batch, tokens, heads, dim)
            decay = (-0.1 * torch.rand(shape, device=device)).requires_grad_()
            leaves += (decay,)
        parts = [None if x is None else x.transpose(1, 2).unflatten(2, (-1, CHUNK)) for x in (q, k, v, decay)]
        if kind == "token":
            parts[3] = parts[3][..., None]
        theirs = by_chunks(*parts).flatten(2, 3).transpose(1, 2)
        ours = tile_ops.linear_attention(q, k, v, decay=decay)

        def backward(out: Any, leaves: Any = leaves, do: Any = do) -> Any:
            return torch.autograd.grad(out, leaves, do, retain_graph=True)

        yield Case(
            "linear_gradients",
            f"gradients of linear_attention b{batch} s{tokens} h{heads} d{dim}, decay: {kind}",
            dtype,
            lambda out=ours, backward=backward: backward(out),
            lambda out=theirs, backward=backward: backward(out),
            float(sum(x.nbytes for x in leaves) * 2 + do.nbytes),
        )
