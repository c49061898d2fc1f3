"""Gradients of products with packed weights agree with autograd through the reference in float64."""

from __future__ import annotations

import re
from itertools import product

import pytest
import torch

import tile_ops
from tile_ops.dequantize import reference
from tile_ops.dequantize.configs import plan_backward
from tile_ops.dequantize.formats import FORMATS
from tile_ops.dequantize.gradients import DEQUANT_MATMUL_BACKWARD
from tile_ops.dequantize.problem import DequantProblem
from tile_ops.errors import WrongDtype, WrongShape
from tile_ops.kernel import Target

from .test_dequant_matmul import arguments, random_weight


def gradients(function, x, bias, w, dy):
    leaves = [t.detach().requires_grad_() for t in (x, bias)]
    y = function(leaves[0], w.packed, **arguments(w), bias=leaves[1])
    y.backward(dy.to(y.dtype))
    return [leaf.grad for leaf in leaves]


def check(close, m, n, k, format, group_size, dtype=torch.float16):
    w = random_weight(n, k, format, group_size, dtype)
    generator = torch.Generator().manual_seed(1)
    x, bias, dy = (torch.randn(s, generator=generator).to(dtype) for s in ((m, k), (n,), (m, n)))
    found = gradients(tile_ops.dequant_matmul, x, bias, w, dy)
    expected = gradients(reference.dequant_matmul, x.double(), bias.double(), w, dy)
    for gradient, wanted in zip(found, expected):
        assert gradient.dtype == dtype
        close(gradient, wanted, reference.TOLERANCES[str(dtype).removeprefix("torch.")])


@pytest.mark.amd_in_full
def test_of_inputs_and_bias(way, close):
    check(close, 20, 48, 96, "uint4", 32)


@pytest.mark.parametrize("format", [name for name, kind in FORMATS.items() if name != "uint4"])
def test_every_format(close, format):
    check(close, 5, 40, 64, format, 32, torch.bfloat16)


def test_one_token_whole_rows_and_a_view_as_gradient(close):
    check(close, 1, 33, 160, "int4", -1)
    w = random_weight(24, 64, "nf4", 64)
    x = torch.randn(2, 3, 64).half().requires_grad_()
    tile_ops.dequant_matmul(x, w.packed, **arguments(w)).sum().backward()  # its gradient is one number, expanded
    y = x.detach().double().requires_grad_()
    reference.dequant_matmul(y, w.packed, **arguments(w)).sum().backward()
    close(x.grad, y.grad, reference.TOLERANCES["float16"])


def test_an_adapter_learns_below_frozen_weights(close):
    """As LoRA is trained: y = x W.T + x A B, gradients of A, B and, through W, of x."""
    w = random_weight(64, 96, "nf4", 32, torch.bfloat16)
    generator = torch.Generator().manual_seed(2)
    x, a, b = (torch.randn(s, generator=generator).bfloat16() for s in ((7, 96), (96, 8), (8, 64)))

    def loss(x, a, b, product, packed):
        return (packed(x, w.packed, **arguments(w)) + product(product(x, a), b)).square().mean()

    found = [t.requires_grad_() for t in (x, a, b)]
    loss(*found, tile_ops.matmul, tile_ops.dequant_matmul).backward()
    expected = [t.detach().double().requires_grad_() for t in found]
    loss(*expected, torch.matmul, reference.dequant_matmul).backward()
    for leaf, wanted in zip(found, expected):
        close(leaf.grad, wanted.grad, 5e-2)


@pytest.mark.cpu("the gradient is called by itself")
def test_our_kernels_make_them():
    w, dy = random_weight(32, 64, "uint4", 32), torch.randn(4, 32).half()
    before = DEQUANT_MATMUL_BACKWARD.explain(dy, w.packed, **arguments(w))
    torch.ops.tile_ops.dequant_matmul_backward(dy, w.packed, *arguments(w).values())
    after = DEQUANT_MATMUL_BACKWARD.explain(dy, w.packed, **arguments(w))
    assert all(now.launches > then.launches for now, then in zip(after.kernels, before.kernels))
    assert after.why.startswith("all of W decoded, then ")


@pytest.mark.cpu("plans")
@pytest.mark.parametrize(("kind", "arch"), [("cpu", "x86-64-v4"), ("cuda", "sm_90a"), ("hip", "gfx942")])
def test_what_is_shipped_makes_them(kind, arch):
    target = Target(kind, arch)
    known = {spec for family in tile_ops.families() for spec in family.shipped(target)}
    for m, (n, k), dtype in product((1, 100, 5000), ((4096, 4096), (11008, 4096)), ("float16", "bfloat16")):
        for format, group in (("uint4", 128), ("nf4", 64)):
            problem = DequantProblem(m, n, k, format, group, dtype, dtype, format == "uint4", False)
            assert {spec for _, spec in plan_backward(problem, target).kernels} <= known


def test_empty():
    w = random_weight(32, 64, "uint4", 32)
    x = torch.empty(0, 64, dtype=torch.float16, requires_grad=True)
    tile_ops.dequant_matmul(x, w.packed, **arguments(w)).sum().backward()
    assert x.grad.shape == (0, 64)


def test_is_a_torch_operator(close):
    w, x = random_weight(32, 64, "uint4", 32), torch.randn(4, 64).half().requires_grad_()
    rest = (None, None)
    torch.library.opcheck(torch.ops.tile_ops.dequant_matmul.default, (x, w.packed, *arguments(w).values(), *rest))
    dy = torch.randn(4, 32).half()
    torch.library.opcheck(torch.ops.tile_ops.dequant_matmul_backward.default, (dy, w.packed, *arguments(w).values()))

    def layer(x):
        return tile_ops.dequant_matmul(x, w.packed, **arguments(w))

    (found,) = torch.autograd.grad(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), x, dy)
    (expected,) = torch.autograd.grad(layer(x), x, dy)
    assert torch.equal(found, expected)


@pytest.mark.cpu("the gradient is called by itself")
def test_refuses():
    w = random_weight(32, 64, "uint4", 32)
    rest = arguments(w).values()
    for dy, error, text in (
        (torch.ones(4, 33).half(), WrongShape, "the gradient has shape (4, 33), weight (32, 32)"),
        (torch.ones(4, 32), WrongDtype, "the gradient is torch.float32; expected float16 or bfloat16"),
    ):
        with pytest.raises(error, match=re.escape(text)):
            torch.ops.tile_ops.dequant_matmul_backward(dy, w.packed, *rest)
    x, scales = torch.ones(4, 64).half(), w.scales.requires_grad_()
    y = tile_ops.dequant_matmul(x, w.packed, **{**arguments(w), "scales": scales})
    with pytest.raises(RuntimeError, match="no gradient of scales"):
        y.sum().backward()
