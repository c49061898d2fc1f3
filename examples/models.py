"""Models of Hugging Face transformers on tile_ops: small ones with random weights, whose logits are compared with their own.

    python examples/models.py [llama deepseek mamba quantized] [--device cuda]

Each function makes a model and changes a copy of it in one line. float32 where not said otherwise.
"""

import argparse
import copy
import sys

import torch
import transformers

from tile_ops.integrations.linear import QuantizedLinear, quantize_linears
from tile_ops.integrations.transformers import LatentCache, use

SIZES = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
TOKENS = torch.randint(0, 100, (2, 19), generator=torch.Generator().manual_seed(0))


def llama(tokens):
    """Attention whose heads share keys: `flash_attention`, for the prompt and for each token."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2))
    ours = use(copy.deepcopy(model))
    return ours(tokens).logits, model(tokens).logits, 1e-4


def deepseek(tokens):
    """Latent attention, float16: the prompt by `flash_attention`, then a token by `mla_decode` from the latents."""
    dims = {"q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 16}
    config = transformers.DeepseekV3Config(**SIZES, **dims, num_key_value_heads=4, first_k_dense_replace=2)
    model = transformers.DeepseekV3ForCausalLM(config).half()
    ours, cache = use(copy.deepcopy(model)), LatentCache()
    ours(tokens[:, :-1], past_key_values=cache)
    return ours(tokens[:, -1:], past_key_values=cache).logits, model.float()(tokens).logits[:, -1:], 1e-2


def mamba(tokens):
    """Mamba-2: the scan of the prompt by `ssd_scan`, then a token by `ssd_step`."""
    sizes = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16}
    model = transformers.Mamba2ForCausalLM(transformers.Mamba2Config(**sizes, state_size=16, n_groups=2))
    ours = use(copy.deepcopy(model))
    prompt = ours(tokens[:, :-1], use_cache=True)
    token = ours(tokens[:, -1:], cache_params=prompt.cache_params)
    return torch.cat([prompt.logits, token.logits], 1), model(tokens).logits, 1e-4


def quantized(tokens):
    """Weights of four bits, float16: `dequant_matmul`, compared with the model whose weights are what the codes stand for."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2)).half()
    ours = use(quantize_linears(copy.deepcopy(model), format="uint4", group_size=32))
    for name, layer in ours.named_modules():
        if isinstance(layer, QuantizedLinear):
            unit = torch.eye(layer.packed.shape[1] * 2, dtype=torch.float16)
            model.get_submodule(name).weight.data = layer(unit).T.contiguous()
    return ours(tokens).logits, model.float()(tokens).logits, 1e-2


MODELS = {model.__name__: model for model in (llama, deepseek, mamba, quantized)}


@torch.inference_mode()
def main(arguments):
    """Exit status 1 if the logits of a model disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="model", help=", ".join(MODELS))
    parser.add_argument("--device", default="cpu", help='where the models are made: "cpu", "cuda"')
    given = parser.parse_args(arguments)
    wrong = 0
    for name in given.names or MODELS:
        torch.manual_seed(0)
        with torch.device(given.device):
            found, expected, tolerance = MODELS[name](TOKENS.to(given.device))
        error = ((found - expected).abs().max() / expected.abs().max()).item()
        wrong += not error <= tolerance
        print(
            f"{'ok' if error <= tolerance else 'WRONG':5} {name}: logits differ by {error:.1e} (up to {tolerance:.0e})"
        )
    return min(wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
