"""Models of transformers give the same logits with our attention as with their own."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, LlamaConfig, LlamaForCausalLM

from tile_ops.errors import WrongValue
from tile_ops.integrations.transformers import register, use

SIZES = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}


def llama():
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2))


def deepseek():
    """Multi-head latent attention, whose values are narrower than its keys, and layers without experts."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32}
    dims = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
    return DeepseekV3ForCausalLM(DeepseekV3Config(**SIZES, **heads, **dims, first_k_dense_replace=2))


@pytest.fixture(params=[llama, deepseek])
def model(request):
    torch.manual_seed(0)
    register()
    return request.param().eval()


def test_logits_agree(model, launches, close):
    tokens = torch.randint(0, 100, (2, 19))
    with torch.no_grad():
        model.set_attn_implementation("eager")
        expected = model(tokens).logits
        model.set_attn_implementation("tile_ops")
        before = launches("attention")
        found = model(tokens).logits
    assert launches("attention") == before + 2  # one for each layer
    close(found, expected, 1e-4)


def test_generation_with_a_cache_agrees(model):
    tokens = torch.randint(0, 100, (2, 7))
    options = {"max_new_tokens": 4, "do_sample": False, "attention_mask": torch.ones_like(tokens), "pad_token_id": 0}
    model.set_attn_implementation("eager")
    expected = model.generate(tokens, **options)
    model.set_attn_implementation("tile_ops")
    assert torch.equal(model.generate(tokens, **options), expected)


def small(**options):
    sizes = {
        "vocab_size": 100,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
    }
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **options)).eval()


def test_refuses_what_it_would_compute_otherwise():
    """Several sequences in a row, and caches longer than their tokens; not silently another result."""
    model, tokens = use(small()), torch.randint(0, 100, (1, 6))
    with pytest.raises(WrongValue, match="masks keys by packed_sequence_mask_function"):
        model(tokens, position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]]), use_cache=False)
    with pytest.raises(WrongValue, match="places behind its last token"):
        model(tokens, past_key_values=transformers.StaticCache(config=model.config, max_cache_len=16))
    with pytest.raises(WrongValue, match="several sequences in a row"):
        model(tokens, use_cache=False, cu_seq_lens_q=torch.tensor([0, 3, 6]))


def test_leaves_attention_that_adds_a_bias():
    config = transformers.T5Config(
        vocab_size=100, d_model=64, d_kv=16, d_ff=96, num_layers=1, num_heads=4, decoder_start_token_id=0
    )
    model, tokens = transformers.T5ForConditionalGeneration(config).eval(), torch.randint(0, 100, (1, 9))
    with torch.no_grad():
        expected = model(input_ids=tokens, decoder_input_ids=tokens).logits
        assert torch.equal(use(model)(input_ids=tokens, decoder_input_ids=tokens).logits, expected)


def test_a_window_on_both_sides(close):
    sizes = {
        "vocab_size": 100,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
    }
    config = transformers.ModernBertConfig(**sizes, local_attention=8, pad_token_id=0)
    model, tokens = transformers.ModernBertModel(config).eval(), torch.randint(1, 100, (1, 30))
    with torch.no_grad():
        expected = model(tokens).last_hidden_state
        close(use(model)(tokens).last_hidden_state, expected, 1e-4)


def test_refuses_padding():
    register()
    model = llama().eval()
    model.set_attn_implementation("tile_ops")
    mask = torch.tensor([[0, 1, 1]])
    with pytest.raises(WrongValue, match="the batch is padded"):
        model(torch.ones(1, 3, dtype=torch.long), attention_mask=mask)
