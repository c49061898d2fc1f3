"""Quantized models of transformers: made while a model is loaded, or as GPTQ and AWQ have stored them.

AutoModelForCausalLM.from_pretrained(name, quantization_config=TileOpsConfig("int4", 128), dtype=torch.float16)

read_stored()
AutoModelForCausalLM.from_pretrained(name_of_a_gptq_model, dtype=torch.float16)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING
from transformers.utils.quantization_config import QuantizationConfigMixin

from tile_ops import from_awq, from_gptq
from tile_ops.errors import WrongValue

from ..linear import QuantizedLinear, linears, quantize_linears

NAME = "tile_ops"
BITS = 4  # of a code that GPTQ and AWQ store
PER_WORD = 32 // BITS


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
    """What both quantizers share: which layers they convert, and that nothing is trained."""

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
    """Quantizes the layers of a model after its weights have been loaded."""

    def _process_model_after_weight_loading(self, model: nn.Module, **_: Any) -> nn.Module:
        config = self.quantization_config
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


def read_stored(methods: Iterable[str] = ("gptq", "awq")) -> None:
    """From now on, models that these methods have stored are read by StoredQuantizer, on every device.

    It stands in for transformers' own quantizers of these methods, which need gptqmodel and optimum.
    """
    for method in methods:
        AUTO_QUANTIZER_MAPPING[method] = StoredQuantizer
