"""Models with latent attention decode from the latents themselves, with the logits of the unmodified model."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, DynamicCache
from transformers.cache_utils import DynamicLayer

from tile_ops.errors import WrongValue
from tile_ops.integrations.transformers import LatentCache, attention, use
from tile_ops.integrations.transformers.latent import PAGE, LatentLayer

SIZES = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32}
DIMS = {"qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 16}


@pytest.fixture
def models():
    """A model as it is in float32, and one with the same weights in float16 that uses our operators."""
    torch.manual_seed(0)
    model = DeepseekV3ForCausalLM(DeepseekV3Config(**SIZES, **HEADS, **DIMS, first_k_dense_replace=2)).eval()
    ours = use(copy.deepcopy(model.half()))
    return model.float(), ours


def test_tokens_are_decoded_from_latents(models, launches, close):
    """A prompt, then tokens one by one across the end of a page, then several at once."""
    theirs, ours = models
    tokens = torch.randint(0, 100, (2, PAGE + 6))
    caches = DynamicCache(config=theirs.config), LatentCache()
    cuts = [0, PAGE - 3, *range(PAGE - 2, PAGE + 4), PAGE + 6]
    with torch.no_grad():
        for first, last in pairwise(cuts):
            before = launches("mla"), launches("attention")
            expected = theirs(tokens[:, first:last], past_key_values=caches[0]).logits
            found = ours(tokens[:, first:last], past_key_values=caches[1]).logits
            close(found, expected, 6e-3)
            ran = launches("mla") - before[0], launches("attention") - before[1]
            assert ran == ((2, 0) if last == first + 1 else (0, 2))


def test_padded_prompts_are_decoded_from_latents(models, launches, close):
    """Prompts that are padded on the left, then tokens one by one across the end of a page of the shorter, and several."""
    theirs, ours = models
    tokens = torch.randint(0, 100, (3, PAGE + 6))
    mask = torch.ones_like(tokens)
    mask[0, :2], mask[2, :PAGE] = 0, 0
    caches = DynamicCache(config=theirs.config), LatentCache()
    cuts = [0, PAGE + 1, *range(PAGE + 2, PAGE + 5), PAGE + 6]
    with torch.no_grad():
        for first, last in pairwise(cuts):
            before = launches("mla"), launches("attention", "forward_packed")
            options = {
                "attention_mask": mask[:, :last],
                "position_ids": (mask.cumsum(1) - 1).clamp(min=0)[:, first:last],
            }
            expected = theirs(tokens[:, first:last], past_key_values=caches[0], **options).logits
            found = ours(tokens[:, first:last], past_key_values=caches[1], **options).logits
            kept = mask[:, first:last].bool()
            close(found[kept], expected[kept], 6e-3)
            ran = launches("mla") - before[0], launches("attention", "forward_packed") - before[1]
            assert ran == ((2, 0) if last == first + 1 else (0, 2))


@pytest.mark.parametrize("padding", [0, 3])
def test_generation_by_beams_agrees(models, padding):
    theirs, ours = models
    ours.float()  # greedy choices are compared: same type
    tokens = torch.randint(0, 100, (2, 7))
    options = {"max_new_tokens": 4, "num_beams": 2, "do_sample": False, "pad_token_id": 0}
    mask = torch.ones_like(tokens)
    mask[0, :padding] = 0
    expected = theirs.generate(tokens, attention_mask=mask, **options)
    found = ours.generate(tokens, attention_mask=mask, past_key_values=LatentCache(), **options)
    assert torch.equal(found, expected)


def test_another_implementation_gets_keys_and_values(models, close):
    theirs, ours = models
    ours.float().set_attn_implementation("eager")
    tokens = torch.randint(0, 100, (1, 5))
    with torch.no_grad():
        close(ours(tokens).logits, theirs(tokens).logits, 1e-5)


def test_gradients_go_through_expanded_keys(models, launches):
    _, ours = models
    cache = LatentCache()
    with torch.no_grad():
        ours(torch.randint(0, 100, (1, 5)), past_key_values=cache)
    before = launches("mla")
    ours(torch.randint(0, 100, (1, 1)), past_key_values=cache).logits.sum().backward()
    assert launches("mla") == before
    assert ours.model.layers[1].self_attn.kv_b_proj.weight.grad.any()


def test_a_layer_holds_what_a_dynamic_layer_holds():
    ours, theirs = LatentLayer(), DynamicLayer()

    def both(name, *arguments):
        for layer in (ours, theirs):
            getattr(layer, name)(*arguments)
        assert ours.get_seq_length() == theirs.get_seq_length()
        assert torch.equal(ours.keys, theirs.keys)
        assert torch.equal(ours.values, theirs.values)
        assert ours.rows.shape[1] % PAGE == 0

    for tokens in (3, PAGE, 1):
        both("update", torch.randn(2, 1, tokens, 32), torch.randn(2, 1, tokens, 16))
    both("crop", -2)
    both("batch_repeat_interleave", 2)
    both("update", torch.randn(4, 1, 2 * PAGE, 32), torch.randn(4, 1, 2 * PAGE, 16))
    both("reorder_cache", torch.tensor([3, 3, 0, 1]))
    both("batch_select_indices", torch.tensor([2, 0]))
    both("update", torch.randn(2, 1, 1, 32), torch.randn(2, 1, 1, 16))
    with pytest.raises(WrongValue, match="-1 removes as many"):
        ours.crop(1)
    ours.reset()
    assert ours.get_seq_length() == 0


def test_refuses_chosen_keys(models):
    layer = models[1].model.layers[0].self_attn
    with pytest.raises(WrongValue, match="the model chooses its keys"):
        attention(layer, *3 * [torch.ones(1, 4, 1, 40)], None, indices=torch.zeros(1, 1, 1))
