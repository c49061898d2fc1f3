"""Operands whose rows begin anywhere, copied to rows at multiples of 16 bytes: GPUs copy such tiles in bulk."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .problem import GemmProblem

#: Bytes at multiples of which a bulk copy's rows begin.
ROW = 16
#: Products from which on a copy of the operands costs less than it brings: 1000 x 5120 x 777 by single elements ran at
#: 65 TFLOP/s on an H200, in whole rows at 340 (22 November 2026).
WORTH = 1 << 28


def pays(problem: GemmProblem) -> bool:
    """Whether rows that begin anywhere are worth a copy: one plain product, with work enough for each element."""
    plain = problem.batch == 1 and not (problem.scales or problem.gradient)
    return plain and problem.m >= 64 and problem.m * problem.n * problem.k >= WORTH


def has_whole_rows(*tensors: torch.Tensor) -> bool:
    """Whether every row of (batch, rows, columns) begins and ends at a multiple of ROW bytes."""
    return not any(
        x.shape[2] * x.element_size() % ROW or x.stride(1) * x.element_size() % ROW or x.data_ptr() % ROW
        for x in tensors
    )


@dataclass(frozen=True)
class Padded:
    """A product of whole rows with that of `problem` in its corner: zeros behind k add nothing."""

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None
    c: torch.Tensor

    @classmethod
    def of(
        cls, problem: GemmProblem, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, c: torch.Tensor
    ) -> Padded:
        """Copies of what has no whole rows; `c` itself where it has them, a tensor for the result elsewhere."""
        unit = ROW // a.element_size()
        m, n, k = (-(-extent // unit) * unit for extent in (problem.m, problem.n, problem.k))
        m = m if problem.transpose_a else problem.m
        if bias is not None and n != problem.n:
            bias = _filled(bias.view(1, 1, -1), (1, 1, n)).view(n)
        return cls(
            _filled(a, (1, k, m) if problem.transpose_a else (1, m, k)),
            _filled(b, (1, n, k) if problem.transpose_b else (1, k, n)),
            bias,
            c if (m, n) == (problem.m, problem.n) and has_whole_rows(c) else c.new_empty((1, m, n)),
        )


def _filled(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """`x` with zeros behind it up to `shape`; itself where it has that shape and whole rows."""
    if x.shape == shape and has_whole_rows(x):
        return x
    wide = x.new_zeros(shape)
    wide[:, : x.shape[1], : x.shape[2]] = x
    return wide
