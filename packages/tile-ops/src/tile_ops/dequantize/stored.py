"""Weights as GPTQ, AWQ and bitsandbytes store them, repacked: codes, zero points and scales stay the numbers they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tile_ops.dtypes import name_of
from tile_ops.errors import WrongDtype, WrongShape, WrongValue

from .formats import FORMATS, pack
from .problem import GROUPS, SCALES
from .weights import QuantizedWeight

NIBBLES = 8  # codes of four bits in an int32
STATE = "weight.quant_state.bitsandbytes__"  # begins the name of the tensor that has the rest of a layer's state
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # in which nibble of its word AWQ puts each of eight neighbouring columns


@dataclass(frozen=True)
class NestedScales:
    """Scales that bitsandbytes has quantized again: absmax = values[code] * absmax2[code's place // block] + offset.

    values: (256,) and absmax2: (blocks,), float32.
    """

    values: torch.Tensor
    absmax: torch.Tensor
    offset: float
    block: int = 256


def from_gptq(
    qweight: torch.Tensor,
    qzeros: torch.Tensor,
    scales: torch.Tensor,
    g_idx: torch.Tensor | None = None,
    *,
    zeros_plus_one: bool = True,
) -> QuantizedWeight:
    """A 4-bit layer of GPTQ, as AutoGPTQ and GPTQModel store it.

    qweight: (k / 8, n) int32, eight rows of W.T in a word; qzeros: (groups, n / 8) int32; scales: (groups, n), of the
    activations' type, float16 or bfloat16 (float32 for calls under autocast, which rounds them); g_idx: (k,), each row's
    group, for layers quantized in order of activations. Words hold their first number in the lowest bits. `zeros_plus_one`:
    zero points are stored less 1 modulo 16 ("gptq"; "gptq_v2" stores them as they are). Raises WrongShape, WrongDtype.
    """
    _check("from_gptq", qweight, qzeros)
    codes = _nibbles(qweight.T)  # (n, k)
    zeros = _nibbles(qzeros)
    if zeros_plus_one:
        zeros = (zeros + 1) & 15
    order = None
    if g_idx is not None:
        if tuple(g_idx.shape) != (codes.shape[1],):
            raise WrongShape(f"from_gptq: g_idx has shape {tuple(g_idx.shape)}; expected ({codes.shape[1]},)")
        order = torch.sort(g_idx, stable=True).indices
        if torch.equal(order, torch.arange(len(order), device=order.device)):
            order = None
        else:
            codes = codes[:, order]
        size = codes.shape[1] // max(1, scales.shape[0])
        if not torch.equal(torch.sort(g_idx).values, torch.arange(codes.shape[1], device=g_idx.device) // max(1, size)):
            raise WrongShape(f"from_gptq: g_idx has groups of different sizes; expected {size} rows in each")
    return _unsigned("from_gptq", codes, zeros, scales, order)


def from_awq(qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor) -> QuantizedWeight:
    """A 4-bit layer of AWQ ("gemm" layers of AutoAWQ).

    qweight: (k, n / 8) int32, columns 0, 2, 4, 6, 1, 3, 5, 7 of eight neighbours in a word from its lowest bits up;
    qzeros: (groups, n / 8) in the same order; scales as in `from_gptq`. Raises WrongShape, WrongDtype.
    """
    _check("from_awq", qweight, qzeros)
    place = torch.tensor(AWQ_ORDER, device=qweight.device)

    def columns(words: torch.Tensor) -> torch.Tensor:
        return _nibbles(words).unflatten(-1, (-1, NIBBLES))[..., place].flatten(-2)

    return _unsigned("from_awq", columns(qweight).T, columns(qzeros), scales, None)


def from_bitsandbytes(
    packed: torch.Tensor,
    absmax: torch.Tensor,
    *,
    shape: tuple[int, int],
    quant_type: str = "nf4",
    blocksize: int = 64,
    nested: NestedScales | None = None,
    dtype: torch.dtype = torch.float16,
) -> QuantizedWeight:
    """A 4-bit weight of bitsandbytes (`Params4bit` and its `quant_state`).

    packed: n * k / 2 bytes, two neighbours in a byte, the first in the high bits; absmax: a scale for `blocksize`
    neighbours, float32, or uint8 with `nested`. shape: (n, k), k a multiple of `blocksize`. quant_type: "nf4" or "fp4".
    Scales are rounded to `dtype`, the type of the activations. Raises WrongShape, WrongDtype, WrongValue.
    """
    names = {"nf4": "nf4", "fp4": "bnb_fp4"}
    if quant_type not in names:
        raise WrongValue(f"from_bitsandbytes: quant_type is {quant_type!r}; expected 'nf4' or 'fp4'")
    n, k = shape
    if blocksize not in GROUPS or k % blocksize:
        raise WrongShape(
            f"from_bitsandbytes: rows of {k} weights in blocks of {blocksize}; expected rows of whole blocks of {GROUPS}"
        )
    if packed.dtype != torch.uint8 or packed.numel() * 2 != n * k or absmax.numel() * blocksize != n * k:
        raise WrongShape(
            f"from_bitsandbytes: {packed.numel()} elements of {packed.dtype} and {absmax.numel()} scales; "
            f"expected {n * k // 2} of uint8 and {n * k // blocksize} for shape {shape}"
        )
    if (absmax.dtype == torch.uint8) != (nested is not None):
        raise WrongDtype(
            f"from_bitsandbytes: absmax is {absmax.dtype}; expected uint8 with nested scales, else float32"
        )
    scales = absmax.flatten()
    if nested is not None:
        block = torch.arange(len(scales), device=scales.device) // nested.block
        scales = nested.values[scales.long()] * nested.absmax[block] + nested.offset
    swapped = (packed.flatten() >> 4) | (packed.flatten() << 4)
    kept = scales.view(n, -1).T.to(dtype).contiguous()
    return QuantizedWeight(swapped.view(n, k // 2), kept, None, names[quant_type], blocksize)


def from_bitsandbytes_state(state: Mapping[str, torch.Tensor], *, dtype: torch.dtype | None = None) -> QuantizedWeight:
    """A 4-bit layer of a checkpoint: its tensors under the names that `Linear4bit` gives them.

    state: weight, weight.absmax, weight.quant_map and weight.quant_state.bitsandbytes__nf4 (or fp4; JSON, a byte in each
    uint8); for nested scales weight.nested_absmax and weight.nested_quant_map, too. Others, as the bias, are not read.
    dtype: of the scales and activations; as it was quantized if None. Raises WrongShape, WrongDtype, WrongValue.
    """
    found = [name for name in state if name.startswith(STATE)]
    if len(found) != 1:
        raise WrongValue(
            f"from_bitsandbytes_state: {len(found)} tensors begin with {STATE}; expected one layer's state"
        )
    facts = json.loads(bytes(state[found[0]].tolist()))
    nested = None
    if "weight.nested_absmax" in state:
        values, absmax = state["weight.nested_quant_map"], state["weight.nested_absmax"]
        nested = NestedScales(values, absmax, facts["nested_offset"], facts["nested_blocksize"])
    weight = from_bitsandbytes(
        state["weight"],
        state["weight.absmax"],
        shape=tuple(facts["shape"]),
        quant_type=facts["quant_type"],
        blocksize=facts["blocksize"],
        nested=nested,
        dtype=dtype or getattr(torch, facts["dtype"]),
    )
    table = torch.tensor(FORMATS[weight.format].values())
    if not torch.allclose(state["weight.quant_map"].float().cpu(), table, atol=1e-6):
        raise WrongValue(
            f"from_bitsandbytes_state: weight.quant_map is no table of {facts['quant_type']}; quantize anew"
        )
    return weight


def _check(name: str, qweight: torch.Tensor, qzeros: torch.Tensor) -> None:
    for what, tensor in (("qweight", qweight), ("qzeros", qzeros)):
        if tensor.dtype != torch.int32:
            raise WrongDtype(f"{name}: {what} is {tensor.dtype}; expected int32, eight codes in each")
        if tensor.ndim != 2:
            raise WrongShape(f"{name}: {what} has shape {tuple(tensor.shape)}; expected two dimensions")


def _nibbles(words: torch.Tensor) -> torch.Tensor:
    """The codes of the last dimension's words, low bits first."""
    shifts = torch.arange(0, 32, 4, device=words.device, dtype=torch.int32)
    return ((words.unsqueeze(-1) >> shifts) & 15).flatten(-2)


def _unsigned(
    name: str, codes: torch.Tensor, zeros: torch.Tensor, scales: torch.Tensor, order: torch.Tensor | None
) -> QuantizedWeight:
    """codes: (n, k); zeros and scales: (groups, n)."""
    if name_of(scales.dtype) not in SCALES:
        raise WrongDtype(f"{name}: scales are {scales.dtype}; expected one of {', '.join(SCALES)}: scales.half()")
    n, k = codes.shape
    groups = scales.shape[0]
    if scales.shape != zeros.shape or scales.shape[1] != n or not groups or k % groups:
        raise WrongShape(
            f"{name}: {n} x {k} weights, zero points of shape {tuple(zeros.shape)}, scales of {tuple(scales.shape)}; "
            f"expected (groups, {n}) for both, groups a divisor of {k}"
        )
    size = k // groups
    if size not in GROUPS and groups > 1:
        raise WrongValue(f"{name}: groups of {size} rows; expected one of {GROUPS}, or one group")
    packed = pack(codes, FORMATS["uint4"].bits).contiguous()
    return QuantizedWeight(
        packed, scales.contiguous(), zeros.to(torch.uint8).contiguous(), "uint4", size if groups > 1 else -1, order
    )
