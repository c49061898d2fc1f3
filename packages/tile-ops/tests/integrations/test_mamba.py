"""Mamba-2 models of transformers give the same logits with our scan as with their own functions."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import BambaConfig, BambaForCausalLM, Mamba2Config, Mamba2ForCausalLM

from tile_ops.errors import WrongValue
from tile_ops.integrations.transformers import chunk_scan, use

SIZES = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2}


def mamba(**options):
    """Two groups of heads, and chunks shorter than the sequence."""
    sizes = {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2, "chunk_size": 8}
    return Mamba2ForCausalLM(Mamba2Config(**SIZES, **sizes, **options))


def bamba():
    """A layer of Mamba-2 and one of attention."""
    scan = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 2, "mamba_chunk_size": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "attn_layer_indices": [1], "intermediate_size": 96}
    return BambaForCausalLM(BambaConfig(**SIZES, **scan, **heads))


@pytest.fixture
def models():
    """A model as it is, and one with the same weights that uses our operators."""

    def pair(make, **options):
        torch.manual_seed(0)
        model = make(**options).eval()
        return model, use(copy.deepcopy(model))

    return pair


@pytest.mark.parametrize(
    ("make", "options", "scans"),
    [(mamba, {}, 2), (mamba, {"time_step_limit": (0.02, 0.05)}, 2), (bamba, {}, 1)],
    ids=["mamba", "limited steps", "bamba"],
)
def test_logits_agree(models, launches, close, make, options, scans):
    theirs, ours = models(make, **options)
    tokens = torch.randint(0, 100, (2, 19))
    with torch.no_grad():
        before = launches("state_space"), launches("attention")
        expected = theirs(tokens).logits
        assert (launches("state_space"), launches("attention")) == before, "a copy was changed, not the model"
        found = ours(tokens).logits
    assert launches("state_space") == before[0] + 5 * scans
    assert launches("attention") == before[1] + 2 - scans
    close(found, expected, 1e-5)


def test_generation_keeps_the_state(models, launches, close):
    """Prompt, single tokens, and then several at once from the state they left."""
    theirs, ours = models(mamba)
    tokens = torch.randint(0, 100, (2, 7))
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "return_dict_in_generate": True}
    results = []
    for model in (theirs, ours):
        before = launches("state_space")
        done = model.generate(tokens, attention_mask=torch.ones_like(tokens), output_logits=True, **options)
        assert launches("state_space") == before + (0 if model is theirs else 2 * (5 + 3))
        with torch.no_grad():
            more = model(done.sequences[:, -3:], cache_params=done.past_key_values).logits
        results.append((done.sequences, torch.stack(done.logits), more))
    assert torch.equal(results[1][0], results[0][0])
    close(results[1][1], results[0][1], 1e-5)
    close(results[1][2], results[0][2], 1e-5)


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("make", [mamba, bamba])
def test_padded_batches_agree(models, launches, close, make, left):
    """transformers sets what padding would add to a state to zero; tokens, and a layer of attention, do not see it either."""
    theirs, ours = models(make)
    mask = torch.tensor([[0] * 11 + [1] * 8, [1] * 19])
    mask = mask if left else mask.flip(1)
    tokens, kept = torch.randint(0, 100, mask.shape), mask.bool()
    with torch.no_grad():
        before = launches("state_space"), launches("attention", "forward_packed")
        found = ours(tokens, attention_mask=mask).logits
        scans = 2 if make is mamba else 1
        assert launches("state_space") == before[0] + 5 * scans
        assert launches("attention", "forward_packed") == before[1] + 2 - scans
        close(found[kept], theirs(tokens, attention_mask=mask).logits[kept], 1e-5)


@pytest.mark.parametrize("make", [mamba, bamba])
def test_generation_of_a_padded_batch_agrees(models, launches, close, make):
    theirs, ours = models(make)
    tokens, mask = torch.randint(1, 100, (2, 11)), torch.tensor([[0] * 6 + [1] * 5, [1] * 11])
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    expected = theirs.generate(tokens, attention_mask=mask, **options)
    before = launches("state_space")
    found = ours.generate(tokens, attention_mask=mask, **options)
    assert launches("state_space") == before + (5 + 3) * (2 if make is mamba else 1)
    close(torch.stack(found.logits), torch.stack(expected.logits), 1e-5)
    assert torch.equal(found.sequences, expected.sequences)


def test_refuses_packed_sequences():
    x, dt, A, B = torch.ones(1, 4, 2, 8), torch.ones(1, 4, 2), -torch.ones(2), torch.ones(1, 4, 1, 8)
    with pytest.raises(WrongValue, match="the batch is packed"):
        chunk_scan(x, dt, A, B, B, 64, seq_idx=torch.zeros(1, 4, dtype=torch.int32))
