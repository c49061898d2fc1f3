"""Calls of every operator with their references: what any installation, on any device, must be able to do.

`calls(device)` is used by the test that compares plans with what is shipped, and by installed.py, which runs where nothing
but the wheels and torch is installed. An operator that is public and has no call here fails test_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch

import tile_ops
from tile_ops.dtypes import name_of
from tile_ops.normalization import reference as normalization

HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Call:
    """`operator(*args, **kwargs)` must be within `tolerance` of `expected()`, which is float64; tuples one by one."""

    name: str
    operator: Callable[..., Any]
    args: tuple[Any, ...]
    expected: Callable[[], Any]
    tolerance: float
    kwargs: dict[str, Any] = field(default_factory=dict)


class Draw:
    """Random tensors on a device, the same on every machine."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.generator = torch.Generator().manual_seed(0)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(dtype).to(self.device)


def calls(device: str) -> Iterator[Call]:
    """All of them, operator by operator."""
    draw = Draw(device)
    yield from rms_norm(draw)


def rms_norm(draw: Draw) -> Iterator[Call]:
    shapes = [(3, 300), (2, 2, 4096), (2, 9000)]
    for dtype, activation, shape in product((*HALVES, torch.float32), (None, "silu"), shapes):
        x, weight = draw.normal(*shape, dtype=dtype), draw.normal(shape[-1], dtype=dtype)
        yield Call(
            f"rms_norm {name_of(dtype)} {shape} {activation}",
            tile_ops.rms_norm,
            (x, weight),
            lambda x=x, weight=weight, how=activation: normalization.rms_norm(x, weight, activation=how),
            normalization.TOLERANCES[name_of(dtype)],
            {"activation": activation},
        )
