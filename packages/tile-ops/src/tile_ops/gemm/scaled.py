"""A product of int8 with scales on a CPU: sums in int32 by the kernels of integers without, then what scales them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tile_ops.again import aligned, launched, offer
from tile_ops.kernel import Resolved
from tile_ops.operator import Call

from . import strips
from .problem import ACTIVATIONS, GemmProblem

Scales = tuple[torch.Tensor | None, torch.Tensor | None]


def multiply(
    call: Call[GemmProblem],
    a: torch.Tensor,
    b: torch.Tensor,
    scales: Scales,
    bias: torch.Tensor | None,
    c: torch.Tensor,
    repeat: int,
) -> None:
    """c = activation(scales * (a @ b) + bias) by operands and scales as the kernels take them."""
    sums, none = _sums(c), _none(c)
    call[_role(call)](a, b, none, sums, *_numbers(call, sums, repeat))
    call["scaled"](sums, *scales, bias, c, _activation(call))


def _role(call: Call[GemmProblem]) -> str:
    return next(role for role in ("direct", *strips.ROLES) if role in call)


def _numbers(call: Call[GemmProblem], sums: torch.Tensor, repeat: int) -> tuple[int, ...]:
    return (repeat, 0) if "direct" in call else strips.numbers(call, sums, repeat)


def _sums(c: torch.Tensor) -> torch.Tensor:
    return c.new_empty(c.shape, dtype=torch.int32)


def _none(c: torch.Tensor) -> torch.Tensor:
    """The bias of integers: there is none."""
    return c.new_empty(0, dtype=torch.int32)


def _activation(call: Call[GemmProblem]) -> int:
    return ACTIVATIONS.index(call.problem.activation)


@dataclass(frozen=True)
class PreparedScaled:
    """Both kernels, their shapes, strides and numbers fixed, for `threads` threads; `shape` is that of the sums, `none` stands
    for a bias of integers and `no_bias` for one where there is none."""

    product: Resolved
    scaled: Resolved
    shape: tuple[int, ...]
    none: torch.Tensor
    no_bias: torch.Tensor | None
    threads: int

    @classmethod
    def of(
        cls,
        call: Call[GemmProblem],
        a: torch.Tensor,
        b: torch.Tensor,
        scales: Scales,
        bias: torch.Tensor | None,
        c: torch.Tensor,
        repeat: int,
    ) -> PreparedScaled | None:
        """For operands as the kernels take them; None where an address is no multiple of ALIGNMENT."""
        if not aligned(a, b, *scales, bias, c):
            return None
        sums, none = _sums(c), _none(c)
        product = call[_role(call)].prepared(a, b, none, sums, *_numbers(call, sums, repeat))
        scaled = call["scaled"].prepared(sums, *scales, bias, c, _activation(call))
        no_bias = None if call.problem.bias else bias
        return cls(product, scaled, tuple(sums.shape), none, no_bias, torch.get_num_threads())

    def run(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        scale_a: torch.Tensor | None,
        scale_b: torch.Tensor | None,
        bias: torch.Tensor | None,
        c: torch.Tensor,
    ) -> bool:
        """Whether it could: computes c for operands of the first call's shapes, strides and types at any such address."""
        bias = self.no_bias if bias is None else bias
        if not self._same_threads() or not aligned(a, b, scale_a, scale_b, bias, c):
            return False
        sums = c.new_empty(self.shape, dtype=torch.int32)
        for kernel, operands in (
            (self.product, (a, b, self.none, sums)),
            (self.scaled, (sums, scale_a, scale_b, bias, c)),
        ):
            kernel(*operands)
            launched(kernel, *operands)
        offer(c, temporary=[sums], still=self._same_threads)
        return True

    def _same_threads(self) -> bool:
        return torch.get_num_threads() == self.threads
