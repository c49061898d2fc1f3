"""A call of a normalization's gradients as a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.errors import WrongDtype, WrongShape, WrongStride
from tile_ops.normalization.problem import NormProblem


@dataclass(frozen=True)
class NormBackwardProblem:
    """The normalization whose gradients are asked for; `sums`: also those of weight and bias, which are sums over rows."""

    norm: NormProblem
    sums: bool = False

    @classmethod
    def of(
        cls,
        dy: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor,
        *,
        eps: float,
        activation: str | None,
        sums: bool,
    ) -> NormBackwardProblem:
        """Raises WrongShape, WrongDtype, WrongValue."""
        _like("rms_norm_backward", dy, x)
        return cls(NormProblem.of(x, weight, eps=eps, activation=activation), sums)

    @classmethod
    def of_layer_norm(
        cls, dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, statistics: torch.Tensor, *, sums: bool
    ) -> NormBackwardProblem:
        """Raises WrongShape, WrongDtype, WrongStride."""
        name = "layer_norm_backward"
        _like(name, dy, x)
        norm = NormProblem.of_layer_norm(x, weight)
        if statistics.shape != (2, norm.rows):
            raise WrongShape(f"{name}: statistics have shape {tuple(statistics.shape)}; expected (2, {norm.rows})")
        if statistics.dtype != torch.float32:
            raise WrongDtype(f"{name}: statistics are {statistics.dtype}; expected those of layer_norm_with_statistics")
        if not statistics.is_contiguous():
            raise WrongStride(f"{name}: statistics are not contiguous; expected those of layer_norm_with_statistics")
        return cls(norm, sums)

    @classmethod
    def of_softmax(cls, dy: torch.Tensor, y: torch.Tensor, *, dim: int) -> NormBackwardProblem:
        """Raises WrongShape, WrongDtype."""
        _like("softmax_backward", dy, y)
        return cls(NormProblem.of_softmax(y, dim=dim))


def _like(name: str, dy: torch.Tensor, x: torch.Tensor) -> None:
    if dy.shape != x.shape:
        raise WrongShape(f"{name}: the gradient has shape {tuple(dy.shape)}, the result {tuple(x.shape)}")
    if dy.dtype != x.dtype:
        raise WrongDtype(f"{name}: the gradient is {dy.dtype}, the result {x.dtype}: dy.to({x.dtype})")
