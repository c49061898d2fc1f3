"""The gradients by torch's autograd through the definition, in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from tile_ops.attention.reference import flash_attention

#: Largest error relative to |expected| plus the root mean square of `expected`. Weights and their slopes are rounded to
#: the operands' type before they meet k, q and dout.
TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}


def flash_attention_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    dlse: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor | None, ...]:
    """dq, dk, dv and dsinks, float64; dsinks is None without sinks."""
    leaves = [None if x is None else x.detach().double().requires_grad_() for x in (q, k, v, sinks)]
    out, lse = flash_attention(leaves[0], leaves[1], leaves[2], sinks=leaves[3], **options)
    loss = (out * dout.double()).sum()
    if dlse is not None:
        loss = loss + torch.where(lse.isinf(), 0, lse * dlse.double()).sum()
    inputs = [x for x in leaves if x is not None]
    found = [*torch.autograd.grad(loss, inputs), None]
    return tuple(found[:4])


def flash_attention_varlen_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *,
    dlse: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor | None, ...]:
    """The same of packed sequences, each alone; gradients of sinks are added."""
    gradients: list[list[torch.Tensor]] = [[], [], []]
    dsinks = None if sinks is None else torch.zeros_like(sinks, dtype=torch.float64)
    for (a, b), (c, d) in zip(pairwise(cu_seqlens_q.tolist()), pairwise(cu_seqlens_k.tolist())):
        slope = None if dlse is None else dlse[None, :, a:b]
        rows = (dout[None, a:b], q[None, a:b], k[None, c:d], v[None, c:d])
        *own, of_sinks = flash_attention_backward(*rows, dlse=slope, sinks=sinks, **options)
        for parts, gradient in zip(gradients, own):
            assert gradient is not None
            parts.append(gradient[0])
        if dsinks is not None and of_sinks is not None:
            dsinks += of_sinks
    return (*(torch.cat(parts) for parts in gradients), dsinks)
