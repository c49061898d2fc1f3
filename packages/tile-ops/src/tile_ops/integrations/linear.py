"""Linear layers with packed weights, in place of torch's.

from tile_ops.integrations.linear import quantize_linears

quantize_linears(model.half(), format="int4", group_size=128)
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from tile_ops import QuantizedWeight, quantize

PACKED = 32  # columns come in multiples of it


class QuantizedLinear(nn.Module):
    """x @ W.T + bias by `dequant_matmul`; x: (..., in_features), float16 or bfloat16.

    The tensors of the `QuantizedWeight` are buffers, so that they move with the module and are part of its state_dict;
    scales of powers of two are kept as bytes, which a change of the module's type leaves alone. Differentiable in x and bias.
    """

    packed: Tensor
    scales: Tensor
    zeros: Tensor | None
    order: Tensor | None

    def __init__(self, weight: QuantizedWeight, bias: Tensor | None = None) -> None:
        super().__init__()
        self.format, self.group_size = weight.format, weight.group_size
        self.scale_dtype = weight.scales.dtype if weight.scales.element_size() == 1 else None
        scales = weight.scales.view(torch.uint8) if self.scale_dtype else weight.scales
        buffers = {"packed": weight.packed, "scales": scales, "zeros": weight.zeros, "order": weight.order}
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @property
    def weight(self) -> QuantizedWeight:
        """What `dequant_matmul` takes."""
        scales = self.scales.view(self.scale_dtype) if self.scale_dtype else self.scales
        return QuantizedWeight(self.packed, scales, self.zeros, self.format, self.group_size, self.order)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight.matmul(x, bias=self.bias)

    def extra_repr(self) -> str:
        return f"out_features={self.packed.shape[0]}, format={self.format!r}, group_size={self.group_size}"


def quantize_linears(
    model: nn.Module, *, format: str, group_size: int, skip: Iterable[str] = ("lm_head",)
) -> nn.Module:
    """Replace the `nn.Linear` layers of a model by quantized ones, in place; returns it.

    `format` and `group_size` as in `quantize`. Layers stay that `skip` names, wholly or by a part of their path,
    and those whose number of columns is no multiple of 32.
    """
    for name, layer in linears(model, skip):
        weight = quantize(layer.weight.detach(), format=format, group_size=group_size)
        model.set_submodule(name, QuantizedLinear(weight, layer.bias))
    return model


def linears(model: nn.Module, skip: Iterable[str]) -> list[tuple[str, nn.Linear]]:
    """The layers that can be quantized, with their names. `skip`: whole names, or parts between dots."""
    kept = [f".{name}." for name in skip]
    return [
        (name, layer)
        for name, layer in model.named_modules()
        if type(layer) is nn.Linear
        and layer.in_features % PACKED == 0
        and not any(part in f".{name}." for part in kept)
    ]
