"""Tests' tensors on another device: an operator's arguments are taken there, what it gives or writes is brought back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tile_ops
from tile_ops.dequantize import weights
from tile_ops.operator import _OPERATORS


def moved(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """`function` on `device` for tensors on the CPU, which get results on the CPU."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        trip = Trip(device)
        result = function(*map(trip.there, args), **{name: trip.there(value) for name, value in kwargs.items()})
        trip.write_back()
        return trip.back(result)

    return call


class Trip:
    """A call's tensors there and back.

    Memory travels as a whole: strides, offsets and tensors that share it stay what they are, and what was written beside a
    tensor is seen. Where gradients or a graph have to follow, only the elements do.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.tensors: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.memory: dict[tuple[int, torch.dtype], tuple[torch.Tensor, torch.Tensor]] = {}

    def there(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            return value
        if value.requires_grad or torch.compiler.is_compiling():
            self.tensors.append((value, value.to(self.device, copy=True)))
        else:
            whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
            _, there = self.memory.setdefault(
                (whole.data_ptr(), whole.dtype), (whole, whole.to(self.device, copy=True))
            )
            self.tensors.append((value, there.as_strided(value.shape, value.stride(), value.storage_offset())))
        return self.tensors[-1][1]

    def write_back(self) -> None:
        for here, there in self.memory.values():
            here.copy_(there)

    def back(self, result: Any) -> Any:
        """An operand that is the result is the caller's."""
        if isinstance(result, tuple):
            return tuple(map(self.back, result))
        if not isinstance(result, torch.Tensor) or not self.tensors:
            return result
        same = [here for here, there in self.tensors if there is result]
        return same[0] if same else result.cpu()


def move_operators(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """For a test: the public operators, what explains them and what checks them take tensors to `device`."""
    operators = [function for name in tile_ops.__all__ if (function := getattr(tile_ops, name)) in _OPERATORS]
    for operator in operators:
        monkeypatch.setattr(tile_ops, operator.__name__, moved(operator, device))
    monkeypatch.setattr(weights, "dequant_matmul", tile_ops.dequant_matmul)
    explain, opcheck = moved(tile_ops.explain, device), torch.library.opcheck

    def check(operator: Any, arguments: tuple[Any, ...], **options: Any) -> Any:
        trip = Trip(device)
        there = tuple(trip.there(x.detach() if isinstance(x, torch.Tensor) else x) for x in arguments)
        for x, other in zip(arguments, there):
            if isinstance(x, torch.Tensor) and x.requires_grad:
                other.requires_grad_()
        return opcheck(operator, there, **options)

    monkeypatch.setattr(tile_ops, "explain", lambda function, *args, **kw: explain(function.__wrapped__, *args, **kw))
    monkeypatch.setattr(torch.library, "opcheck", check)
