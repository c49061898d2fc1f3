"""Models whose linear layers hold packed weights, and the same models with the numbers that those stand for."""

from __future__ import annotations

import copy
import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

import tile_ops
from tile_ops.dequantize import reference
from tile_ops.dequantize.formats import NF4
from tile_ops.errors import WrongValue
from tile_ops.integrations.linear import QuantizedLinear, quantize_linears
from tile_ops.integrations.transformers.quantizer import TileOpsConfig, read_stored

SIZES = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
GROUP = 32
LINEARS = 7  # in each layer


@pytest.fixture
def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2)).half().eval()


def numbers(w):
    """The matrix that a QuantizedWeight stands for, float64."""
    found = reference.dequantize(w.packed, scales=w.scales, zeros=w.zeros, format=w.format, group_size=w.group_size)
    return found if w.order is None else torch.empty_like(found).index_copy_(1, w.order, found)


def plain(model):
    """The model in float32, with linear layers of torch that hold the numbers of the packed ones."""
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, QuantizedLinear):
            matrix = numbers(module.weight)
            layer = nn.Linear(*reversed(matrix.shape), bias=False)
            layer.weight.data = matrix
            model.set_submodule(name, layer)
    return nn.Module.float(model)  # transformers forbids it to a model that was quantized


@pytest.fixture
def agrees(launches):
    """Logits are as near to those of float32 as torch's with linear layers of halves."""

    def packed():
        """Kernels of packed weights: a processor with AMX takes up to 16 tokens by registers."""
        return launches("dequantize_cpu") + launches("dequantize_vectors")

    def check(model):
        tokens = torch.randint(0, 100, (2, 7))
        with torch.no_grad():
            before = packed()
            found = model(tokens).logits
            assert packed() >= before + 2 * LINEARS
            want, halves = plain(model)(tokens).logits, nn.Module.half(plain(model))(tokens).logits
        assert found.shape == want.shape
        ours, theirs = (float((x.double() - want.double()).norm() / want.norm()) for x in (found, halves))
        assert ours <= 1.25 * theirs
        assert theirs < 5e-3

    return check


def test_layers_of_a_model_are_replaced(llama, agrees):
    tied = llama.lm_head
    assert quantize_linears(llama, format="uint4", group_size=GROUP) is llama
    assert llama.lm_head is tied
    assert sum(isinstance(module, QuantizedLinear) for module in llama.modules()) == 2 * LINEARS
    agrees(llama)
    text = repr(llama.model.layers[0].mlp.up_proj)
    assert text == "QuantizedLinear(out_features=96, format='uint4', group_size=32)"


@pytest.mark.parametrize(("skip", "replaced"), [(["mlp"], 4), (["layers.1", "q_proj"], 6), (["model.layers"], 0)])
def test_named_layers_stay(llama, skip, replaced):
    quantize_linears(llama, format="int4", group_size=GROUP, skip=["lm_head", *skip])
    assert sum(isinstance(module, QuantizedLinear) for module in llama.model.layers[0].modules()) == replaced
    assert isinstance(llama.model.layers[1].mlp.up_proj, nn.Linear)


def test_a_layer_has_a_bias_and_a_state(close):
    torch.manual_seed(0)
    layer = nn.Linear(64, 16).bfloat16()
    ours = QuantizedLinear(tile_ops.quantize(layer.weight.detach(), format="mxfp4", group_size=32), layer.bias.detach())
    again = QuantizedLinear(tile_ops.quantize(torch.ones(16, 64).bfloat16(), format="mxfp4", group_size=32), layer.bias)
    again.load_state_dict(ours.state_dict())
    x = torch.randn(3, 5, 64).bfloat16()
    expected = x.double() @ numbers(ours.weight).T + layer.bias.detach().double()
    close(again.to(torch.bfloat16)(x), expected, reference.TOLERANCES["bfloat16"])


def test_a_model_is_quantized_while_it_loads(llama, tmp_path):
    llama.save_pretrained(tmp_path)
    config = TileOpsConfig("uint4", GROUP, modules_to_not_convert=["q_proj"])
    loaded = LlamaForCausalLM.from_pretrained(tmp_path, quantization_config=config, dtype=torch.float16)
    assert isinstance(loaded.lm_head, nn.Linear)
    assert isinstance(loaded.model.layers[0].self_attn.q_proj, nn.Linear)
    found = loaded.model.layers[1].mlp.up_proj.weight
    expected = tile_ops.quantize(llama.model.layers[1].mlp.up_proj.weight, format="uint4", group_size=GROUP)
    assert torch.equal(found.packed, expected.packed)


@pytest.mark.parametrize("format", ["uint4", "mxfp4"])
def test_a_quantized_model_is_saved_and_loaded_as_it_is(llama, tmp_path, format):
    llama.save_pretrained(tmp_path / "plain")
    config = TileOpsConfig(format, GROUP, modules_to_not_convert=["q_proj"])
    made = LlamaForCausalLM.from_pretrained(tmp_path / "plain", quantization_config=config, dtype=torch.float16)
    made.save_pretrained(tmp_path / "packed")
    loaded = LlamaForCausalLM.from_pretrained(tmp_path / "packed", dtype=torch.float16)
    ours, stored = loaded.state_dict(), load_file(tmp_path / "packed" / "model.safetensors")
    for name, tensor in made.state_dict().items():
        assert torch.equal(ours[name], tensor)
    assert stored["model.layers.0.mlp.up_proj.packed"].dtype == torch.uint8
    assert isinstance(loaded.model.layers[0].self_attn.q_proj, nn.Linear)
    with torch.no_grad():
        assert torch.equal(loaded(torch.arange(5)[None]).logits, made(torch.arange(5)[None]).logits)


def store(model, folder, layout, **config):
    """The model's checkpoint with random words in place of its weights."""
    model.save_pretrained(folder)
    tensors, chosen = load_file(folder / "model.safetensors"), re.compile(r"_proj\.weight$")
    generator = torch.Generator().manual_seed(0)
    for name in [name for name in tensors if chosen.search(name)]:
        n, k = tensors.pop(name).shape
        name = name.removesuffix("weight")
        shapes = {"qweight": (k, n // 8) if layout == "gemm" else (k // 8, n), "qzeros": (k // GROUP, n // 8)}
        for key, shape in shapes.items():
            words = torch.randint(-(2**31), 2**31, shape, generator=generator)
            tensors[name + key] = words.to(torch.int32)
        tensors[name + "scales"] = torch.rand(k // GROUP, n, generator=generator).half() / 64
        if layout != "gemm":
            tensors[name + "g_idx"] = torch.randperm(k, generator=generator).int() // GROUP
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, "quantization_config": config}))
    return tensors


@pytest.mark.parametrize("layout", ["gptq", "gptq_v2", "gemm"])
def test_stored_models_are_read(llama, agrees, tmp_path, monkeypatch, layout):
    for method in ("gptq", "awq"):  # put back what was there
        monkeypatch.setitem(AUTO_QUANTIZER_MAPPING, method, AUTO_QUANTIZER_MAPPING[method])
    read_stored()
    named = {"quant_method": "awq", "version": "gemm"} if layout == "gemm" else {"quant_method": "gptq"}
    if layout == "gptq_v2":
        named["checkpoint_format"] = "gptq_v2"
    stored = store(llama, tmp_path, layout, bits=4, group_size=GROUP, **named)
    loaded = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float16)
    agrees(loaded)
    name = "model.layers.1.mlp.down_proj."
    parts = [stored[name + key] for key in ("qweight", "qzeros", "scales")]
    if layout == "gemm":
        expected = tile_ops.from_awq(*parts)
    else:
        expected = tile_ops.from_gptq(*parts, stored[name + "g_idx"], zeros_plus_one=layout == "gptq")
    found = loaded.model.layers[1].mlp.down_proj.weight
    assert torch.equal(numbers(found), numbers(expected))


@pytest.mark.parametrize("nested", [False, True])
def test_models_of_bitsandbytes_are_read(llama, agrees, tmp_path, monkeypatch, nested):
    monkeypatch.setitem(AUTO_QUANTIZER_MAPPING, "bitsandbytes_4bit", AUTO_QUANTIZER_MAPPING["bitsandbytes_4bit"])
    read_stored()
    llama.save_pretrained(tmp_path)
    tensors, chosen = load_file(tmp_path / "model.safetensors"), re.compile(r"_proj\.weight$")
    for name in [name for name in tensors if chosen.search(name)]:
        n, k = tensors.pop(name).shape
        facts = {"quant_type": "nf4", "blocksize": 32, "dtype": "float16", "shape": [n, k]}
        tensors[name] = torch.randint(0, 256, (n * k // 2, 1), dtype=torch.uint8)
        tensors[name + ".quant_map"] = torch.tensor(NF4)
        tensors[name + ".absmax"] = torch.rand(n * k // 32) / 16
        if nested:
            tensors[name + ".absmax"] = torch.randint(0, 256, (n * k // 32,), dtype=torch.uint8)
            tensors[name + ".nested_absmax"] = torch.rand(-(-n * k // 32 // 256)) / 16
            tensors[name + ".nested_quant_map"] = torch.rand(256) * 2 - 1
            facts |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": float(torch.rand(()))}
        written = torch.tensor(list(json.dumps(facts).encode()), dtype=torch.uint8)
        tensors[name + ".quant_state.bitsandbytes__nf4"] = written
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    written = json.loads((tmp_path / "config.json").read_text())
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    (tmp_path / "config.json").write_text(json.dumps({**written, "quantization_config": config}))
    loaded = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float16)
    agrees(loaded)
    name = "model.layers.1.mlp.down_proj."
    state = {key.removeprefix(name): tensor for key, tensor in tensors.items() if key.startswith(name)}
    found, expected = loaded.model.layers[1].mlp.down_proj.weight, tile_ops.from_bitsandbytes_state(state)
    assert torch.equal(numbers(found), numbers(expected))
    assert isinstance(loaded.lm_head, nn.Linear)


def test_refuses_other_layouts(llama, tmp_path, monkeypatch):
    monkeypatch.setitem(AUTO_QUANTIZER_MAPPING, "gptq", AUTO_QUANTIZER_MAPPING["gptq"])
    read_stored(["gptq"])
    store(llama, tmp_path, "gptq", bits=8, group_size=GROUP, quant_method="gptq")
    with pytest.raises(WrongValue, match="8 bits as 'gptq'; expected 4"):
        LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float16)
