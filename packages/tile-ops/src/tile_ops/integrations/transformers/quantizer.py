"""Quantized models of transformers: made while a model is loaded, or as they, GPTQ, AWQ or bitsandbytes were stored.

AutoModelForCausalLM.from_pretrained(name, quantization_config=TileOpsConfig("int4", 128), dtype=torch.float16)

read_stored()
AutoModelForCausalLM.from_pretrained(name_of_a_gptq_model, dtype=torch.float16)

The first one's `save_pretrained` stores the packed weights; `from_pretrained` then loads them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.core_model_loading import ConversionOps
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING
from transformers.utils.quantization_config import QuantizationConfigMixin

from tile_ops import QuantizedWeight, from_awq, from_bitsandbytes_state, from_gptq, quantize
from tile_ops.dequantize.stored import STATE
from tile_ops.errors import WrongValue

from ..linear import QuantizedLinear, linears, quantize_linears

NAME = "tile_ops"
BITS = 4  # of a code that GPTQ and AWQ store
PER_WORD = 32 // BITS
#: What bitsandbytes stores of a weight.
BITSANDBYTES = {
    "weight": [
        *("weight", "weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map"),
        *(STATE + quant_type for quant_type in ("nf4", "fp4")),
    ]
}


@register_quantization_config(NAME)
class TileOpsConfig(QuantizationConfigMixin):
    """Linear layers get weights of `format` in groups of `group_size`, as `tile_ops.quantize` makes them.

    `modules_to_not_convert`: names of layers that stay, beside the output layer.
    """

    def __init__(
        self, format: str = "int4", group_size: int = 128, modules_to_not_convert: list[str] | None = None, **_: Any
    ) -> None:
        self.quant_method = NAME
        self.format, self.group_size = format, group_size
        self.modules_to_not_convert = modules_to_not_convert


class _Quantizer(HfQuantizer):
    """What all quantizers share: which layers they convert, and that nothing is trained."""

    requires_calibration = False

    def is_serializable(self) -> bool:
        return False

    @property
    def is_trainable(self) -> bool:
        return False

    def kept(self, model: nn.Module) -> list[str]:
        """Names of layers that stay."""
        named = getattr(self.quantization_config, "modules_to_not_convert", None)
        return self.get_modules_to_not_convert(model, named, add_default_skips=True)


@register_quantizer(NAME)
class TileOpsQuantizer(_Quantizer):
    """Quantizes the layers of a model after its weights have been loaded, or takes their place if packed ones are."""

    def is_serializable(self) -> bool:
        return True

    def _process_model_before_weight_loading(self, model: nn.Module, **_: Any) -> nn.Module:
        config = self.quantization_config
        if self.pre_quantized:
            for name, layer in linears(model, self.kept(model)):
                empty = quantize(torch.empty_like(layer.weight), format=config.format, group_size=config.group_size)
                model.set_submodule(name, QuantizedLinear(empty, layer.bias))
        return model

    def _process_model_after_weight_loading(self, model: nn.Module, **_: Any) -> nn.Module:
        config = self.quantization_config
        if self.pre_quantized:
            return model
        return quantize_linears(model, format=config.format, group_size=config.group_size, skip=self.kept(model))


class StoredQuantizer(_Quantizer):
    """Reads layers that GPTQ or AWQ have stored with four bits, and packs them anew without changing a number."""

    requires_calibration = True

    def validate_environment(self, *_: Any, **__: Any) -> None:
        """Raises WrongValue for other layouts than those of `from_gptq` and `from_awq`."""
        config = self.quantization_config
        layout = str(getattr(config.format, "value", config.format))
        if config.bits != BITS or layout not in ("gptq", "gptq_v2", "gemm"):
            raise WrongValue(
                f"read_stored: {config.bits} bits as {layout!r}; expected 4 as 'gptq', 'gptq_v2' or 'gemm'"
            )
        self.layout = layout

    def _process_model_before_weight_loading(self, model: nn.Module, **_: Any) -> nn.Module:
        for name, layer in linears(model, self.kept(model)):
            model.set_submodule(name, StoredLinear(layer, self.layout, self.quantization_config.group_size))
        return model

    def _process_model_after_weight_loading(self, model: nn.Module, **_: Any) -> nn.Module:
        for name, layer in list(model.named_modules()):
            if isinstance(layer, StoredLinear):
                model.set_submodule(name, layer.quantized())
        return model


class StoredLinear(nn.Module):
    """A layer's tensors under the names and in the shapes of GPTQ or AWQ, from the checkpoint to `quantized`."""

    qweight: Tensor
    qzeros: Tensor
    scales: Tensor

    def __init__(self, layer: nn.Linear, layout: str, group_size: int) -> None:
        super().__init__()
        k, n, device = layer.in_features, layer.out_features, layer.weight.device
        groups = 1 if group_size == -1 else -(-k // group_size)
        words = {"dtype": torch.int32, "device": device}
        self.layout, self.bias = layout, layer.bias
        self.register_buffer(
            "qweight", torch.empty((k, n // PER_WORD) if layout == "gemm" else (k // PER_WORD, n), **words)
        )
        self.register_buffer("qzeros", torch.empty(groups, n // PER_WORD, **words))
        self.register_buffer("scales", torch.empty(groups, n, dtype=layer.weight.dtype, device=device))
        if layout != "gemm":
            self.register_buffer("g_idx", torch.empty(k, **words))

    def quantized(self) -> QuantizedLinear:
        if self.layout == "gemm":
            return QuantizedLinear(from_awq(self.qweight, self.qzeros, self.scales), self.bias)
        stored = (self.qweight, self.qzeros, self.scales, self.g_idx)
        return QuantizedLinear(from_gptq(*stored, zeros_plus_one=self.layout == "gptq"), self.bias)


class BitsandbytesQuantizer(_Quantizer):
    """Reads layers that bitsandbytes has stored with four bits, and packs them anew without changing a number."""

    requires_calibration = True
    serialized_names = BITSANDBYTES

    def kept(self, model: nn.Module) -> list[str]:
        return self.get_modules_to_not_convert(model, self.quantization_config.llm_int8_skip_modules)

    def get_load_operations(self) -> dict[str, Any]:
        return {"deserialize": _TakeState}

    def _process_model_before_weight_loading(self, model: nn.Module, **_: Any) -> nn.Module:
        for name, layer in linears(model, self.kept(model)):
            model.set_submodule(name, BitsandbytesLinear(layer))
        return model

    def _process_model_after_weight_loading(self, model: nn.Module, **_: Any) -> nn.Module:
        for name, layer in list(model.named_modules()):
            if isinstance(layer, BitsandbytesLinear):
                model.set_submodule(name, QuantizedLinear(layer.stored, layer.bias))
        return model


class BitsandbytesLinear(nn.Module):
    """A layer from the checkpoint to its QuantizedLinear: `weight` has the stored bytes, `stored` what they stand for."""

    weight: Tensor
    stored: QuantizedWeight

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        count, device = layer.weight.numel(), layer.weight.device
        self.dtype, self.bias = layer.weight.dtype, layer.bias
        self.register_buffer("weight", torch.empty(count // 2, 1, dtype=torch.uint8, device=device))


class _TakeState(ConversionOps):
    """Gives a layer its state, of which transformers knows the packed weight alone."""

    def __init__(self, hf_quantizer: HfQuantizer) -> None:
        self.hf_quantizer = hf_quantizer

    def convert(
        self, input_dict: dict[str, Any], *, model: nn.Module, full_layer_name: str, **_: Any
    ) -> dict[str, Tensor]:
        state = {name: tensors[0] if isinstance(tensors, list) else tensors for name, tensors in input_dict.items()}
        layer = model.get_submodule(full_layer_name.rpartition(".")[0])
        if isinstance(layer, BitsandbytesLinear):
            layer.stored = from_bitsandbytes_state(state, dtype=layer.dtype)
        return {"weight": state["weight"]}


STORED = {"gptq": StoredQuantizer, "awq": StoredQuantizer, "bitsandbytes_4bit": BitsandbytesQuantizer}


def read_stored(methods: Iterable[str] = tuple(STORED)) -> None:
    """From now on, models that these methods have stored are read by the quantizers of STORED, on every device.

    They stand in for transformers' own ones, which need gptqmodel and optimum, or bitsandbytes.
    """
    for method in methods:
        AUTO_QUANTIZER_MAPPING[method] = STORED[method]
