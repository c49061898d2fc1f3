"""Gradients of matmul agree with those of the reference, whatever broadcasts."""

from __future__ import annotations

import pytest
import torch

import tile_ops
from tile_ops.gemm import reference


@pytest.mark.parametrize(
    ("shapes", "activation"),
    [
        (((9, 40), (40, 24)), None),
        (((9, 40), (40, 24)), "relu"),
        (((9, 40), (40, 24)), "gelu"),
        (((9, 40), (40, 24)), "silu"),
        (((2, 3, 9, 40), (40, 24)), "gelu"),
        (((3, 9, 40), (2, 1, 40, 24)), None),
        (((9, 40), (3, 40, 24)), None),
    ],
)
def test_gradients_agree(close, shapes, activation):
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(s, generator=generator).requires_grad_() for s in (*shapes, (24,))]
    exact = [x.detach().double().requires_grad_() for x in given]
    a, b, bias = given
    result = tile_ops.matmul(a, b, bias=bias, activation=activation)
    grad = torch.randn(result.shape, generator=generator)
    found = torch.autograd.grad(result, given, grad)
    a, b, bias = exact
    expected = torch.autograd.grad(reference.matmul(a, b, bias=bias, activation=activation), exact, grad.double())
    for mine, right in zip(found, expected):
        close(mine, right, reference.TOLERANCES["float32"])


def test_only_what_is_asked_for(close):
    a, b = torch.randn(9, 40), torch.randn(40, 24, requires_grad=True)
    tile_ops.matmul(a, b).sum().backward()
    close(b.grad, a.double().T @ torch.ones(9, 24).double(), reference.TOLERANCES["float32"])


def test_under_a_compiler(close):
    a, b = torch.randn(9, 40, requires_grad=True), torch.randn(40, 24)
    compiled = torch.compile(
        lambda a: tile_ops.matmul(a, b, activation="silu").sum(), fullgraph=True, backend="aot_eager"
    )
    compiled(a).backward()
    exact = a.detach().double().requires_grad_()
    reference.matmul(exact, b, activation="silu").sum().backward()
    close(a.grad, exact.grad, reference.TOLERANCES["float32"])
