"""The recurrence token by token in float64, and how far the operator may be from it."""

from __future__ import annotations

import itertools

import torch

from tile_ops.state_space.reference import TOLERANCES as TOLERANCES


def linear_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    decay: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """S_t = exp(decay_t) S_{t-1} + v_t k_t^T, o_t = scale S_t q_t: o and the last states; float64."""
    q, k, v = q.double(), k.double(), v.double()
    batch, seqlen, heads, dim_v = v.shape
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k = (t.repeat_interleave(heads // t.shape[2], 2) for t in (q, k))
    gate = torch.zeros_like(k) if decay is None else decay.double()
    if gate.ndim < 4:
        gate = gate.expand(batch, seqlen, heads)[..., None].expand_as(k)
    ends = [0, seqlen] if cu_seqlens is None else cu_seqlens.tolist()
    outputs, finals = [], []
    for n, (first, last) in enumerate(itertools.pairwise(ends)):
        state = v.new_zeros(batch, heads, dim_v, q.shape[-1])
        if initial_state is not None:
            state = initial_state.double() if cu_seqlens is None else initial_state[n : n + 1].double()
        for t in range(first, last):
            state = torch.exp(gate[:, t])[:, :, None] * state + v[:, t, :, :, None] * k[:, t, :, None]
            outputs.append(scale * (state * q[:, t, :, None]).sum(-1))
        finals.append(state)
    return torch.stack(outputs, 1), torch.cat(finals)
