"""`grouped_matmul` as an implementation of mixtures of experts in transformers."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from tile_ops import grouped_matmul


def experts(module: torch.nn.Module, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """Experts as transformers calls them: hidden_states (tokens, hidden), top_k_index and top_k_weights (tokens, k).

    Tokens are sorted by expert, and each expert's two matrices are read where they lie. A token's results are weighted in
    the type of `top_k_weights` and summed in their order, so that equal calls give equal bits. Experts with biases, those
    that are spread over devices, and gradients are left to transformers' own `grouped_mm`.
    """
    weights = [module.gate_up_proj if module.has_gate else module.up_proj, module.down_proj]
    trained = torch.is_grad_enabled() and any(x.requires_grad for x in (hidden_states, top_k_weights, *weights))
    if module.has_bias or module._is_expert_parallel or trained:
        return ALL_EXPERTS_FUNCTIONS["grouped_mm"](module, hidden_states, top_k_index, top_k_weights)
    first, last = weights if module.is_transposed else (weight.mT for weight in weights)
    tokens, chosen = top_k_index.shape
    expert = top_k_index.reshape(-1)
    sizes = expert.new_zeros(first.shape[0]).scatter_add_(0, expert, torch.ones_like(expert))
    order = torch.sort(expert, stable=True).indices
    rows = grouped_matmul(hidden_states[order // chosen], first, sizes)
    rows = grouped_matmul(module._apply_gate(rows) if module.has_gate else module.act_fn(rows), last, sizes)
    if module.has_post_expert_norm:
        rows = module.post_expert_norm(rows)
    found = torch.empty_like(rows).index_copy_(0, order, rows).view(tokens, chosen, -1)
    return (found * top_k_weights.unsqueeze(-1)).sum(1).to(hidden_states.dtype)
