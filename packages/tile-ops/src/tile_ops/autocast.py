"""What torch.autocast makes of operands: for the call, and for `explain`, which describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

#: torch's dispatch keys of autocast, by device.
KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}
#: Types that autocast converts; float64 stays, as in torch, and so do codes and scales of 8 bits.
FLOATS = (torch.float32, torch.float16, torch.bfloat16)

#: Of the arguments and the type that autocast asks for: those that get another type, with that type.
Rule = Callable[[Mapping[str, Any], torch.dtype], dict[str, torch.dtype]]


def floats(arguments: Mapping[str, Any], dtype: torch.dtype) -> dict[str, torch.dtype]:
    """All floats of 16 and 32 bits get the type."""
    return {name: dtype for name, x in arguments.items() if isinstance(x, torch.Tensor) and x.dtype in FLOATS}


def only(*names: str) -> Rule:
    """These get the type, where they are given."""
    return lambda arguments, dtype: {name: dtype for name in names if arguments.get(name) is not None}


def enabled(device: str) -> bool:
    """Whether operands on this kind of device are converted now."""
    return device in KEYS and torch.is_autocast_enabled(device)


def converted(
    rule: Rule,
    arguments: Mapping[str, Any],
    device: str,
    convert: Callable[[torch.Tensor, torch.dtype], torch.Tensor] = torch.Tensor.to,
) -> dict[str, Any]:
    """The arguments, those on the device as the rule says."""
    types = rule(arguments, torch.get_autocast_dtype(device))
    return {
        name: convert(x, types[name]) if name in types and x.device.type == device else x
        for name, x in arguments.items()
    }


def unread(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """As `x.to(dtype)`, but of any content: what is explained is not computed."""
    return x if x.dtype == dtype else torch.empty_like(x, dtype=dtype)
