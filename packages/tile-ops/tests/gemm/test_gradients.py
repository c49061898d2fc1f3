"""Gradients of matmul agree with those of the reference, whatever broadcasts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

import tile_ops
from tile_ops.again import Again
from tile_ops.gemm import gradients, reference
from tile_ops.gemm.api import MATMUL
from tile_ops.gemm.configs import plan, shipped
from tile_ops.kernel import Target
from tile_ops.prebuild import ARCHS


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


@pytest.mark.parametrize(("m", "k", "n"), [(4, 0, 8), (4, 16, 0), (0, 16, 8)])
def test_gradients_of_what_is_empty(m, k, n):
    a, b = torch.randn(m, k, requires_grad=True), torch.randn(k, n, requires_grad=True)
    tile_ops.matmul(a, b).sum().backward()
    assert a.grad.shape == a.shape
    assert not a.grad.any()
    assert b.grad.shape == b.shape
    assert not b.grad.any()


def test_slopes_of_an_activation_on_a_gpu(monkeypatch, close):
    """One kernel for all of them."""
    monkeypatch.setenv("TILELANG_EXECUTION", "emulate")
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    generator = torch.Generator().manual_seed(0)
    a, w, grad = (torch.randn(shape, generator=generator).half() for shape in ((9, 40), (24, 40), (9, 24)))
    for activation in ("relu", "gelu", "silu"):
        before = (a.double() @ w.double().T).requires_grad_()
        reference.activate(before, activation).backward(grad.double())
        found = torch.ops.tile_ops.matmul_gradient(a, w.T, None, activation, grad)
        close(found, before.grad, reference.TOLERANCES["float16"])


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [((9, 40), (40, 24)), ((2, 3, 9, 40), (40, 24)), ((3, 9, 40), (1, 40, 24)), ((9, 40), (3, 40, 24))],
)
def test_gradients_lie_as_the_operands_do(close, a_shape, b_shape):
    """Autograd takes a leaf's gradient that lies as the leaf does, and copies another one."""
    generator = torch.Generator().manual_seed(0)
    for turned_a, turned_b in product((False, True), repeat=2):
        stored = [torch.randn(shape, generator=generator) for shape in (a_shape, b_shape)]
        turns = turned_a, turned_b
        a, b = (
            (x.mT.contiguous().mT if turned else x).requires_grad_() for x, turned in zip(stored, turns, strict=True)
        )
        y = tile_ops.matmul(a, b)
        grad = torch.randn(y.shape, generator=generator)
        found = torch.autograd.grad(y, (a, b), grad)
        exact = [x.detach().double().requires_grad_() for x in (a, b)]
        expected = torch.autograd.grad(exact[0] @ exact[1], exact, grad.double())
        for mine, right, x in zip(found, expected, (a, b), strict=True):
            assert mine.stride() == x.stride()
            close(mine, right, reference.TOLERANCES["float32"])


def test_only_what_is_asked_for(close):
    a, b = torch.randn(9, 40), torch.randn(40, 24, requires_grad=True)
    tile_ops.matmul(a, b).sum().backward()
    close(b.grad, a.double().T @ torch.ones(9, 24).double(), reference.TOLERANCES["float32"])


def exact_gradients(a, b, grad):
    leaves = [x.detach().double().requires_grad_() for x in (a, b)]
    return torch.autograd.grad(leaves[0] @ leaves[1], leaves, grad.double())


@pytest.mark.cpu("calls that come again")
@pytest.mark.parametrize("shape", [(20, 40), (128, 64), (3, 50, 64)])
@pytest.mark.parametrize("turned", [False, True])
def test_both_gradients_come_again_at_once(monkeypatch, close, shape, turned):
    """Small and larger products, whose tiles depend on the number of threads; one matrix, and several by one; and a bias's."""
    w = torch.randn(96, shape[-1]).T if turned else torch.randn(shape[-1], 96)
    a, b, bias = torch.randn(shape).requires_grad_(), w.requires_grad_(), torch.randn(96).requires_grad_()
    grad = torch.randn(*shape[:-1], 96)
    of_bias = grad.double().flatten(0, -2).sum(0)
    for given, exact in (((a, b), ()), ((a, b, bias), (of_bias,))):
        y = tile_ops.matmul(a, b, bias=given[2] if exact else None)

        def gradients_again(y=y, given=given):
            return torch.autograd.grad(y, given, grad, retain_graph=True)

        found = [gradients_again() for _ in range(4)]
        for one in found:
            assert all(map(torch.equal, one, found[0]))
        for mine, right in zip(found[0], (*exact_gradients(a, b, grad), *exact), strict=True):
            close(mine, right, reference.TOLERANCES["float32"])
        asked = []
        with monkeypatch.context() as watched:
            for way in ("run", "replay"):
                watched.setattr(Again, way, lambda *_, asked=asked: asked.append(1))
            assert all(map(torch.equal, gradients_again(), found[0]))
        assert not asked


@pytest.mark.cpu("calls that come again")
def test_both_gradients_of_any_gradient(close):
    """Of a sum, which is one number with strides of 0, of a transposed one, and of one that begins at no multiple of 16 bytes."""
    x, w = torch.randn(70, 64), torch.randn(96, 64)
    for _ in range(5):
        odd = torch.randn(70 * 96 + 1)[1:].view(70, 96)
        for grad in (torch.randn(()).expand(70, 96), torch.randn(96).expand(70, 96), torch.randn(96, 70).T, odd):
            found = torch.ops.tile_ops.matmul_backward(x, w.T, grad)
            for mine, right in zip(found, exact_gradients(x, w.T, grad), strict=True):
                close(mine, right, reference.TOLERANCES["float32"])


@pytest.mark.cpu("calls that come again")
def test_operands_that_begin_at_one_address_are_not_taken_for_each_other(close):
    x, grad = torch.randn(24, 24), torch.randn(24, 24)
    for w in (*[x] * 5, torch.randn(24, 24)):
        found = torch.ops.tile_ops.matmul_backward(x, w.T, grad)
        for mine, right in zip(found, exact_gradients(x, w.T, grad), strict=True):
            close(mine, right, reference.TOLERANCES["float32"])


@pytest.mark.cpu("calls that come again")
def test_both_gradients_for_another_number_of_threads(close):
    x, w, grad = torch.randn(128, 64), torch.randn(96, 64), torch.randn(128, 96)
    threads = torch.get_num_threads()
    try:
        for count in (1, 1, 1, 1, 2, 2, 1):
            torch.set_num_threads(count)
            found = torch.ops.tile_ops.matmul_backward(x, w.T, grad)
            for mine, right in zip(found, exact_gradients(x, w.T, grad), strict=True):
                close(mine, right, reference.TOLERANCES["float32"])
    finally:
        torch.set_num_threads(threads)


def test_both_gradients_are_a_torch_operator(close):
    x, w, grad = torch.randn(2, 9, 40), torch.randn(24, 40), torch.randn(2, 9, 24)
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.tile_ops.matmul_backward.default, (x, w.T, grad), test_utils=checks)
    leaves = x.requires_grad_(), w.requires_grad_()
    step = torch.compile(lambda x, w: tile_ops.matmul(x, w.T), fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(step(*leaves), leaves, grad)
    rows = grad.double().flatten(0, 1)
    close(found[0], grad.double() @ w.detach().double(), reference.TOLERANCES["float32"])
    close(found[1], rows.T @ x.detach().double().flatten(0, 1), reference.TOLERANCES["float32"])


@pytest.mark.cpu("counts products")
def test_only_what_this_pass_asks_for(monkeypatch, close):
    """Forces of a learned potential, penalties on gradients: weights require gradients, and nobody wants them here."""
    monkeypatch.setattr("tile_ops.wanted.WORTH_ASKING", 1)
    x, w, bias = (torch.randn(shape, requires_grad=True) for shape in ((128, 96), (96, 64), (64,)))
    hidden = 2 * x
    made = []

    def multiply(*operands):
        made.append(operands)
        return torch.ops.tile_ops.matmul(*operands)

    def multiply_both(a, b, grad):
        return multiply(grad, b.mT, None, None, None), multiply(a.mT, grad, None, None, None)

    def multiply_all(a, b, grad, bias):
        return *multiply_both(a, b, grad), multiply(torch.ones(1, len(grad)), grad, None, None, None)[0]

    class Layer(torch.autograd.Function):
        """As the operator is registered, with products that are counted."""

        forward = staticmethod(torch.ops.tile_ops.matmul)
        setup_context = staticmethod(gradients.setup_context)
        backward = staticmethod(
            gradients.backward_by(multiply, torch.ops.tile_ops.matmul_gradient, multiply_both, multiply_all)
        )

    y = Layer.apply(hidden, w, bias, None, None).sum()

    def products(*operands):
        made.clear()
        found = torch.autograd.grad(y, operands, retain_graph=True)
        exact = torch.autograd.grad((hidden.double() @ w.double() + bias.double()).sum(), operands, retain_graph=True)
        for mine, right in zip(found, exact):
            close(mine, right, reference.TOLERANCES["float32"])
        return len(made)

    assert [products(x), products(hidden), products(w), products(bias)] == [1, 1, 1, 1]
    assert [products(x, w), products(w, bias), products(x, w, bias)] == [2, 2, 3]
    made.clear()
    y.backward()
    assert len(made) == 3
    assert all(leaf.grad is not None for leaf in (x, w, bias))
    by_func = torch.func.grad(lambda x: tile_ops.matmul(x, w.detach()).sum())(x.detach())
    close(by_func, w.detach().double().sum(1).expand(128, 96), reference.TOLERANCES["float32"])


def test_under_a_compiler(close):
    a, b = torch.randn(9, 40, requires_grad=True), torch.randn(40, 24)
    compiled = torch.compile(
        lambda a: tile_ops.matmul(a, b, activation="silu").sum(), fullgraph=True, backend="aot_eager"
    )
    compiled(a).backward()
    exact = a.detach().double().requires_grad_()
    reference.matmul(exact, b, activation="silu").sum().backward()
    close(a.grad, exact.grad, reference.TOLERANCES["float32"])


@pytest.fixture(scope="module")
def of_a_layer():
    """The products of which training a layer of activation(x @ weight.T + bias) consists."""
    found, kept = [], MATMUL.plan
    try:
        MATMUL.plan = lambda problem, target: found.append(problem) or kept(problem, target)
        MATMUL._calls.clear()
        weight, bias, x = (torch.randn(shape, requires_grad=True) for shape in ((24, 40), (24,), (2, 9, 40)))
        tile_ops.matmul(x, weight.T, bias=bias, activation="silu").sum().backward()
    finally:
        MATMUL.plan = kept
    assert len({(p.transpose_a, p.transpose_b, p.gradient, p.m == 1) for p in found}) == 5
    return found


def test_gradients_of_4_bytes_take_smaller_tiles(of_a_layer):
    """Sums and gradients of 128 x 256 are more than the registers of a Hopper block; of 2 bytes they are not."""
    slopes = replace(next(p for p in of_a_layer if p.gradient), m=8192, n=8192, k=8192)
    tiles = {}
    for dtype, tf32 in (("float16", False), ("float32", True), ("float32", False)):
        asked = replace(slopes, dtype=dtype, out_dtype=dtype, bias=slopes.bias and dtype, tf32=tf32)
        ((_, spec),) = plan(asked, Target("cuda", "sm_90a")).kernels
        tiles[dtype, tf32] = (dict(spec.arguments)["block_m"], dict(spec.arguments)["block_n"])
    assert tiles == {("float16", False): (128, 256), ("float32", True): (128, 128), ("float32", False): (64, 64)}


@pytest.mark.parametrize(("kind", "arch"), [(kind, arch) for kind, archs in ARCHS.items() for arch in archs])
def test_shipped_kernels_train_a_layer(of_a_layer, kind, arch):
    target = Target(kind, arch)
    there = set(shipped(target))
    for problem, dtype, times in product(of_a_layer, ("float16", "bfloat16", "float32"), (1, 12, 100, 400)):
        m, n, k = (times * extent if extent > 1 else 1 for extent in (problem.m, problem.n, problem.k))
        bias = problem.bias and dtype
        asked = replace(problem, m=m, n=n, k=k, dtype=dtype, out_dtype=dtype, bias=bias)
        missing = [str(spec) for _, spec in plan(asked, target).kernels if spec not in there]
        assert not missing, asked
