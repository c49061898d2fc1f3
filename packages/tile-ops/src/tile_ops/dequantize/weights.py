"""Quantized weights as one value: packed codes with their scales, made from a matrix or from what others stored."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of
from tile_ops.errors import WrongDtype, WrongShape, WrongValue
from tile_ops.operands import refuse_other_types

from .api import dequant_matmul
from .formats import FORMATS, pack
from .problem import GROUPS, SCALES


@dataclass(frozen=True)
class QuantizedWeight:
    """What `dequant_matmul` takes for a matrix of n rows and k columns.

    packed: (n, k / per) uint8; scales: (ceil(k / group_size), n); zeros: as scales, uint8, or None. order: None, or (k,)
    integers where columns were sorted by their groups: packed column c is column order[c] of the matrix. torch.save keeps it;
    torch.load makes it once tile_ops is imported.
    """

    packed: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    format: str
    group_size: int
    order: torch.Tensor | None = None

    def matmul(
        self, x: torch.Tensor, *, bias: torch.Tensor | None = None, out_dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """x @ W.T + bias: see `dequant_matmul`."""
        return dequant_matmul(
            x if self.order is None else x.index_select(-1, self.order),
            self.packed,
            scales=self.scales,
            zeros=self.zeros,
            format=self.format,
            group_size=self.group_size,
            bias=bias,
            out_dtype=out_dtype,
        )


# torch.load makes nothing that it was not told of.
torch.serialization.add_safe_globals([QuantizedWeight])


def quantize(weight: torch.Tensor, *, format: str, group_size: int) -> QuantizedWeight:
    """The codes nearest to weight / scale, with scales that let the format reach each group's largest number.

    weight: (n, k), float16, bfloat16 or float32, k a multiple of 32; scales get its type (mxfp4: powers of two, rounded up),
    float32 ones for activations in int8 and calls under autocast. group_size: as `dequant_matmul` takes it. Unsigned formats
    get zero points such that a group's least and largest number are codes. Raises WrongShape, WrongDtype, WrongValue.
    """
    refuse_other_types("quantize", quantize, (weight,))
    if format not in FORMATS:
        raise WrongValue(f"quantize: format is {format!r}; expected one of {', '.join(FORMATS)}")
    if weight.ndim != 2 or weight.shape[1] % 32 or not weight.numel():
        raise WrongShape(f"quantize: weight has shape {tuple(weight.shape)}; expected (n, k), k a multiple of 32")
    if name_of(weight.dtype) not in SCALES:
        raise WrongDtype(f"quantize: weight is {weight.dtype}; expected one of {', '.join(SCALES)}: weight.half()")
    if group_size != -1 and group_size not in GROUPS:
        raise WrongValue(f"quantize: group_size is {group_size}; expected -1 (whole rows) or one of {GROUPS}")
    kind, (n, k) = FORMATS[format], weight.shape
    group = k if group_size == -1 else group_size
    values = torch.tensor(kind.values(), dtype=torch.float32, device=weight.device)
    padded = torch.nn.functional.pad(weight.float(), (0, -k % group))
    groups = padded.view(n, -1, group)
    zeros = None
    if kind.zeros:
        least, most = groups.amin(-1).clamp_max(0), groups.amax(-1).clamp_min(0)
        scales = _rounded((most - least) / (2**kind.bits - 1), kind.scale, weight.dtype)
        zeros = (-least / scales.float()).round().clamp(0, 2**kind.bits - 1)
    else:
        reach = values.abs().max() if kind.signed else values.max()
        scales = _rounded(groups.abs().amax(-1) / reach, kind.scale, weight.dtype)
    levels = groups / scales.float().unsqueeze(-1) + (0 if zeros is None else zeros.unsqueeze(-1))
    order = values.argsort()
    middles = (values[order][1:] + values[order][:-1]) / 2
    codes = order[torch.bucketize(levels, middles)].view(n, -1)[:, :k]
    stored = None if zeros is None else zeros.to(torch.uint8).T.contiguous()
    return QuantizedWeight(pack(codes, kind.bits), scales.T.contiguous(), stored, format, group_size)


def _rounded(scales: torch.Tensor, kind: str | None, dtype: torch.dtype) -> torch.Tensor:
    """Scales in the type in which they are kept; never 0, which nothing can be divided by."""
    if kind is None:
        return scales.to(dtype).clamp_min(torch.finfo(dtype).smallest_normal)
    powers = scales.clamp_min(2.0**-126).log2().ceil().exp2()
    return powers.to(getattr(torch, kind))
