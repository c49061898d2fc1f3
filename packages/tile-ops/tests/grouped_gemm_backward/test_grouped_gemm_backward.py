"""Gradients of products of groups agree with autograd through the reference in float64."""

from __future__ import annotations

import re
from itertools import product

import pytest
import torch

import tile_ops
from tile_ops.errors import WrongDtype, WrongShape
from tile_ops.grouped_gemm import reference
from tile_ops.grouped_gemm_backward import api
from tile_ops.grouped_gemm_backward.api import WEIGHT_GRADIENT
from tile_ops.grouped_gemm_backward.configs import plan
from tile_ops.grouped_gemm_backward.problem import WeightGradientProblem
from tile_ops.grouped_gemm_backward.reference import TOLERANCES
from tile_ops.kernel import Target


def operands(tokens, groups, n, k, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = (tokens, k), (groups, k, n), (tokens, n)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def agree(close, sizes, tokens, n, k, dtype=torch.float32, transposed=False):
    x, weights, dy = operands(tokens, len(sizes), n, k, dtype)
    weights = weights.mT.contiguous().mT if transposed else weights
    sizes = torch.tensor(sizes)
    found = [t.requires_grad_() for t in (x, weights)]
    expected = [t.detach().double().requires_grad_() for t in found]
    tile_ops.grouped_matmul(*found, sizes).backward(dy)
    reference.grouped_matmul(*expected, sizes).backward(dy.double())
    for leaf, wanted in zip(found, expected):
        assert leaf.grad.dtype == dtype
        close(leaf.grad, wanted.grad, TOLERANCES[str(dtype).removeprefix("torch.")])


def test_only_what_this_pass_asks_for(monkeypatch):
    """Gradients of tokens alone take no gradient of weights, though these require one."""
    monkeypatch.setattr("tile_ops.wanted.WORTH_ASKING", 1)
    made, known = [], api.grouped_weight_gradient
    monkeypatch.setattr(api, "grouped_weight_gradient", lambda *given: made.append(given) or known(*given))
    x, weights, dy = operands(20, 3, 16, 24)
    leaves = [t.requires_grad_() for t in (x, weights)]
    y = tile_ops.grouped_matmul(*leaves, torch.tensor([3, 9, 8]))
    (of_x,) = torch.autograd.grad(y, x, dy, retain_graph=True)
    assert not made
    both = torch.autograd.grad(y, leaves, dy)
    assert len(made) == 1
    assert torch.equal(of_x, both[0])


@pytest.mark.amd_in_full
def test_agrees_with_the_reference(way, close):
    """Groups without rows, with less and with more than a step, and rows that belong to none."""
    agree(close, [3, 0, 68, 1, 7], 90, 72, 40, torch.float16)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", [[200], [0, 0, 200], [64, 128, 8], [0, 0], [199, 1]])
def test_sizes(close, sizes, transposed):
    agree(close, sizes, 200, 270, 70, transposed=transposed)


@pytest.mark.parametrize("transposed", [False, True])
def test_the_gradient_lies_as_the_weights_do(transposed):
    """Autograd copies one that does not for the leaf that they are a view of."""
    x, weights, dy = operands(20, 3, 16, 24)
    weights = (weights.mT.contiguous().mT if transposed else weights).requires_grad_()
    (found,) = torch.autograd.grad(tile_ops.grouped_matmul(x, weights, torch.tensor([3, 9, 8])), weights, dy)
    assert found.stride() == weights.stride()


def test_what_other_groups_hold_is_no_part_of_it(close):
    """Infinite rows of one group, in the tile where another ends."""
    x, weights, dy = operands(40, 2, 24, 16)
    x[20:], dy[20:] = torch.inf, torch.nan
    leaf = weights.requires_grad_()
    tile_ops.grouped_matmul(x, leaf, torch.tensor([20, 20])).backward(dy)
    close(leaf.grad[0], x[:20].double().T @ dy[:20].double(), TOLERANCES["float32"])
    assert not leaf.grad[1].isfinite().any()


def test_repeats_bit_for_bit():
    x, weights, dy = operands(300, 3, 40, 24, torch.bfloat16)
    leaves = x.requires_grad_(), weights.requires_grad_()
    y = tile_ops.grouped_matmul(*leaves, torch.tensor([100, 150, 50], dtype=torch.int32))
    first, second = (torch.autograd.grad(y, leaves, dy, retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.cpu("the gradient is called by itself")
def test_our_kernels_make_them():
    x, _, dy = operands(30, 2, 40, 24)
    sizes = torch.tensor([15, 15])
    before = WEIGHT_GRADIENT.explain(x, dy, sizes)
    torch.ops.tile_ops.grouped_weight_gradient(x, dy, sizes)
    after = WEIGHT_GRADIENT.explain(x, dy, sizes)
    assert [k.launches + 2 for k in before.kernels] == [k.launches for k in after.kernels]  # one for each group
    assert after.why.startswith("a product for each group, of 15 rows on average")


@pytest.mark.cpu("plans")
@pytest.mark.parametrize(
    "target", [Target("cpu", "x86-64-v3"), Target("cuda", "sm_80"), Target("hip", "gfx942")], ids=str
)
def test_what_is_shipped_makes_them(target):
    known = {spec for family in tile_ops.families() for spec in family.shipped(target)}
    for dtype, sizes in product(("float16", "bfloat16"), ("int32", "int64")):
        chosen = plan(WeightGradientProblem(1000, 8, 512, 256, dtype, sizes), target)
        assert {spec for _, spec in chosen.kernels} <= known


def test_empty():
    for tokens, n, k in ((0, 8, 4), (5, 0, 4), (5, 8, 0)):
        x, weights, _ = (t.requires_grad_() for t in operands(tokens, 2, n, k))
        tile_ops.grouped_matmul(x, weights, torch.tensor([2, 3])).sum().backward()
        assert x.grad.shape == x.shape
        assert torch.equal(weights.grad, torch.zeros(2, k, n))


def test_is_a_torch_operator(close):
    x, weights, dy = operands(40, 2, 24, 16)
    sizes = torch.tensor([20, 15])
    leaves = x.requires_grad_(), weights.requires_grad_()
    torch.library.opcheck(torch.ops.tile_ops.grouped_matmul.default, (*leaves, sizes, None))
    torch.library.opcheck(torch.ops.tile_ops.grouped_weight_gradient.default, (x.detach(), dy, sizes))
    layer = torch.compile(lambda x, w: tile_ops.grouped_matmul(x, w, sizes), fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(layer(*leaves), leaves, dy)
    expected = torch.autograd.grad(tile_ops.grouped_matmul(*leaves, sizes), leaves, dy)
    assert all(map(torch.equal, found, expected))


@pytest.mark.cpu("the gradient is called by itself")
def test_refuses():
    x, _, dy = operands(40, 2, 24, 16)
    sizes = torch.tensor([20, 20])
    for operand, lengths, error, text in (
        (dy[1:], sizes, WrongShape, "(40, 16), (39, 24), (2,)"),
        (dy.half(), sizes, WrongDtype, "x is torch.float32, dy torch.float16"),
        (dy, sizes.float(), WrongDtype, "group_sizes is torch.float32"),
    ):
        with pytest.raises(error, match=re.escape(text)):
            torch.ops.tile_ops.grouped_weight_gradient(x, operand, lengths)
