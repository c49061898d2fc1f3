"""Mixtures of experts of transformers give the same with our products as with their own."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

from tile_ops.integrations.transformers import use

SIZES = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32}
DIMS = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "first_k_dense_replace": 1}
EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 2, "topk_group": 2, "moe_intermediate_size": 48}


@pytest.fixture
def models():
    """A model as it is, and one with the same weights that uses our operators; the second of two layers has experts."""
    torch.manual_seed(0)
    model = DeepseekV3ForCausalLM(DeepseekV3Config(**SIZES, **HEADS, **DIMS, **EXPERTS)).eval()
    for layer in model.model.layers[1:]:
        layer.mlp.gate.weight.data.normal_()
    return model, use(copy.deepcopy(model))


@pytest.mark.parametrize("shape", [(2, 19), (1, 1)])
def test_logits_agree(models, launches, close, shape):
    """Many tokens, and one, which leaves most experts without work."""
    theirs, ours = models
    tokens = torch.randint(0, 100, shape)
    with torch.no_grad():
        before = launches("grouped_gemm")
        found = ours(tokens).logits
        assert launches("grouped_gemm") == before + 4  # the starts of the groups and the product, twice
        close(found, theirs(tokens).logits, 1e-4)


def test_gradients_are_transformers_own(models, launches, close):
    tokens = torch.randint(0, 100, (1, 3))
    before = launches("grouped_gemm")
    for model in models:
        model.set_attn_implementation("eager")
        model(tokens, labels=tokens).loss.backward()
    assert launches("grouped_gemm") == before
    found, expected = (model.model.layers[1].mlp.experts.down_proj.grad for model in reversed(models))
    close(found, expected, 1e-4)
