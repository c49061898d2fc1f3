"""Models of transformers give the same logits with our attention as with their own."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, LlamaConfig, LlamaForCausalLM

from tile_ops.errors import WrongValue
from tile_ops.integrations.transformers import padding, register, use

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
    with pytest.raises(WrongValue, match="masks keys by .*packed_sequence_mask_function"):
        model(tokens, position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]]), use_cache=False)
    with pytest.raises(WrongValue, match="places behind its last token"):
        model(tokens, past_key_values=transformers.StaticCache(config=model.config, max_cache_len=16))
    with pytest.raises(WrongValue, match="several sequences in a row"):
        model(tokens, use_cache=False, cu_seq_lens_q=torch.tensor([0, 3, 6]))


def test_refuses_a_longer_cache_of_a_compiled_model():
    model, tokens = use(small()), torch.randint(0, 100, (1, 6))
    with torch.no_grad(), pytest.raises(WrongValue, match="places behind its last token"):
        torch.compile(model, backend="aot_eager")(
            tokens, past_key_values=transformers.StaticCache(config=model.config, max_cache_len=16)
        )
    found = torch.compile(model, backend="aot_eager")(tokens).logits
    assert torch.equal(found, model(tokens).logits)


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


def gemma():
    """Scores with a cap, and every other layer with a window that is shorter than the sequences below."""
    options = {"num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 5}
    config = transformers.Gemma2Config(**SIZES, **options, num_attention_heads=4, attn_logit_softcapping=2.0)
    return transformers.Gemma2ForCausalLM(config)


def oss():
    """Sinks, and every other layer with a window."""
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 5}
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(**SIZES, **heads, **experts))
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
    return model


#: Rows of 6, 12 and 11 tokens.
LEFT = torch.tensor([[0] * 6 + [1] * 6, [1] * 12, [0] + [1] * 11])
RIGHT = LEFT.flip(1)
GAPS = LEFT * torch.tensor([[1] * 8 + [0] + [1] * 3, [1] * 3 + [0] * 2 + [1] * 7, [1] * 11 + [0]])


@pytest.fixture
def models():
    """A model with its own attention, and one with the same weights that uses ours."""

    def pair(make):
        torch.manual_seed(0)
        model = make().eval()
        model.set_attn_implementation("eager")
        return model, use(copy.deepcopy(model))

    return pair


def places(mask):
    return (mask.cumsum(1) - 1).clamp(min=0)


@pytest.mark.parametrize(
    ("make", "mask"),
    [
        *((make, mask) for make in (llama, deepseek, gemma, oss) for mask in (LEFT, RIGHT)),
        *((make, GAPS) for make in (llama, deepseek)),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_padded_batches_agree_at_their_tokens(models, launches, close, make, mask):
    theirs, ours = models(make)
    tokens = torch.randint(0, 100, mask.shape)
    options = {"attention_mask": mask, "position_ids": places(mask)}
    with torch.no_grad():
        expected = theirs(tokens, **options).logits
        before = launches("attention", "forward_packed")
        found = ours(tokens, **options).logits
    assert launches("attention", "forward_packed") == before + 2  # one for each layer
    close(found[mask.bool()], expected[mask.bool()], 1e-5)
    assert found.isfinite().all()


@pytest.mark.parametrize(("make", "packed"), [(llama, 14), (deepseek, 14), (gemma, 9), (oss, 9)])
def test_generation_of_a_padded_batch_agrees(models, launches, close, make, packed):
    """Prompts that are padded on the left, single tokens, and then several at once of which a row has fewer. Where a window
    no longer reaches the padding, the layer's batch is not padded.
    """
    theirs, ours = models(make)
    tokens, more = torch.randint(1, 100, LEFT.shape), torch.randint(1, 100, (3, 4))
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    mask = torch.cat([LEFT, torch.ones(3, 5 + 4, dtype=LEFT.dtype)], 1)
    mask[2, -2:] = 0
    kept, results = mask[:, -4:].bool(), []
    for model in (theirs, ours):
        before = launches("attention"), launches("attention", "forward_packed")
        done = model.generate(tokens, attention_mask=LEFT, output_logits=True, return_dict_in_generate=True, **options)
        with torch.no_grad():
            position_ids = places(mask)[:, -4:]
            rest = model(
                more, attention_mask=mask, past_key_values=done.past_key_values, position_ids=position_ids
            ).logits
        results.append((done.sequences, torch.stack(done.logits), rest[kept]))
        ran = launches("attention") - before[0], launches("attention", "forward_packed") - before[1]
        assert ran == ((0, 0) if model is theirs else (14, packed))
    close(results[1][1], results[0][1], 1e-5)
    close(results[1][2], results[0][2], 1e-5)
    assert torch.equal(results[1][0], results[0][0])


@pytest.mark.parametrize("mask", [LEFT, RIGHT])
@pytest.mark.parametrize("make", [llama, gemma])
def test_gradients_of_padded_batches_agree(models, launches, close, make, mask):
    theirs, ours = models(make)
    tokens = torch.randint(0, 100, mask.shape)
    grads = []
    for model in (theirs, ours):
        before = launches("attention_backward")
        logits = model(tokens, attention_mask=mask, position_ids=places(mask)).logits
        logits[mask.bool()].log_softmax(-1)[:, 3].sum().backward()
        grads.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]))
        assert (launches("attention_backward") > before) == (model is ours)
    close(grads[1], grads[0], 1e-4)


def modernbert():
    sizes = {**SIZES, "num_hidden_layers": 3, "num_attention_heads": 4}
    return transformers.ModernBertModel(transformers.ModernBertConfig(**sizes, local_attention=8, pad_token_id=0))


@pytest.mark.parametrize("mask", [LEFT, RIGHT])
def test_padding_in_a_window_on_both_sides(models, close, mask):
    theirs, ours = models(modernbert)
    tokens = torch.randint(1, 100, mask.shape)
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask).last_hidden_state
        found = ours(tokens, attention_mask=mask).last_hidden_state
    close(found[mask.bool()], expected[mask.bool()], 1e-5)


def test_queries_of_another_sequence_than_the_padded_keys(models, launches, close):
    """As many tokens in the decoder as in the encoder, so that shapes do not tell theirs from the other's padding."""

    def bart():
        heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
        widths = {"d_model": 64, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96}
        layers = {"encoder_layers": 1, "decoder_layers": 1, "vocab_size": 100, "max_position_embeddings": 64}
        return transformers.BartForConditionalGeneration(transformers.BartConfig(**layers, **heads, **widths))

    theirs, ours = models(bart)
    tokens = {name: torch.randint(3, 100, LEFT.shape) for name in ("input_ids", "decoder_input_ids")}
    with torch.no_grad():
        before = launches("attention", "forward_packed")
        found = ours(**tokens, attention_mask=LEFT, decoder_attention_mask=RIGHT).logits
        assert launches("attention", "forward_packed") == before + 3
        expected = theirs(**tokens, attention_mask=LEFT, decoder_attention_mask=RIGHT).logits
    close(found[RIGHT.bool()], expected[RIGHT.bool()], 1e-5)


def test_a_mask_is_looked_at_once_for_all_layers(models, monkeypatch):
    _, ours = models(llama)
    looked, look = [], padding._padding
    monkeypatch.setattr(padding, "_padding", lambda *arguments: looked.append(1) or look(*arguments))
    ours(torch.randint(0, 100, LEFT.shape), attention_mask=LEFT)
    assert len(looked) == 1


def test_padded_batches_of_a_compiled_model_agree(models, launches, close):
    theirs, ours = models(llama)
    tokens, kept = torch.randint(0, 100, LEFT.shape), LEFT.bool()
    with torch.no_grad():
        before = launches("attention", "forward_packed")
        found = torch.compile(ours, backend="aot_eager")(tokens, attention_mask=LEFT).logits
        assert launches("attention", "forward_packed") == before + 2
        close(found[kept], theirs(tokens, attention_mask=LEFT).logits[kept], 1e-5)


def test_refuses_other_masks(models):
    """A window over gaps counts them, a mask of new tokens alone leaves others out, and one for each pair is not padding."""
    (_, ours), (_, windowed) = models(llama), models(gemma)
    tokens = torch.randint(0, 100, GAPS.shape)
    with pytest.raises(WrongValue, match="zeros between ones"):
        windowed(tokens, attention_mask=GAPS)
    windowed(tokens[:, :5], attention_mask=torch.tensor([[1, 0, 1, 1, 1]] * 3))  # the window reaches all
    cache = ours(tokens).past_key_values
    with pytest.raises(WrongValue, match="attention_mask is for 12 tokens, and there are 24"):
        ours(tokens, attention_mask=RIGHT, past_key_values=cache)
    with pytest.raises(WrongValue, match="masked by a tensor of shape"):
        ours(tokens, attention_mask=torch.ones(3, 1, 12, 12, dtype=torch.bool))
